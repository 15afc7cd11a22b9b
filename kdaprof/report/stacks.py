"""A recording of host stacks as text: for a terminal, and as `report.md`."""

from __future__ import annotations

from collections.abc import Iterator

from kdaprof.analysis.stacks import PhaseTime, ThreadTime
from kdaprof.analysis.stacks_document import StacksView, judged, layer_facts, phase_facts
from kdaprof.analysis.stacks_layers import MEANING, Layer
from kdaprof.report.units import utc
from kdaprof.runs.facts import Fact
from kdaprof.runs.stacks import FLAME_FILE
from kdaprof.runs.units import format_fraction, format_ns

_THREADS = 4  # on a terminal; the others are in the document
_HOT_FROM = 0.02
_BAR = 30


def terminal_lines(view: StacksView) -> list[str]:
    """What `stacks` prints at the end."""
    lines: list[str] = []
    for thread in view.threads[:_THREADS]:
        lines += [_title(view, thread), *(f"  {text}" for text in _layer_lines(view, thread))]
        lines += [f"  {text}" for text in _phase_lines(view, thread)]
        lines += [f"  {text}" for text in _hot_lines(thread)]
        lines.append("")
    return [*lines, *_footer(view)]


def markdown(view: StacksView) -> str:
    """`report.md` of a recording."""
    began = view.record.started_unix_ns
    out = [
        "# Host stacks",
        "",
        *([f"Began {utc(began)}.", ""] if began is not None else []),
        *([f"![Flame graph]({FLAME_FILE})", ""] if view.record.missing is None else []),
    ]
    for thread in view.threads:
        out += [f"## {_title(view, thread)}", "", "| layer | share | |", "|---|--:|---|"]
        out += [f"| {layer_name(layer)} | {_text(fact)} | {MEANING[layer]} |" for layer, fact in _facts(view, thread)]
        out += [""]
        if thread.phases:
            out += ["```", *_phase_lines(view, thread), "```", ""]
        found = _hottest(thread)
        out += (
            ["Lines with most time, waiting included:", "", *(f"- {share} `{line}`" for share, line in found), ""]
            if found
            else []
        )
    out += ["## The recording", ""]
    return "\n".join([*out, *(f"- {text}" for text in _footer(view)), ""])


def _title(view: StacksView, thread: ThreadTime) -> str:
    main = ", the main one" if thread.tid == view.record.pid else ""
    return f"thread {thread.name or '?'} ({thread.tid or '?'}{main}), seen for {format_ns(thread.observed_ns)}"


def _facts(view: StacksView, thread: ThreadTime) -> Iterator[tuple[Layer, Fact]]:
    """The layers worth a line: those that were there, and those that could not be seen."""
    facts = layer_facts(view, thread.layers, float(thread.observed_ns), counted=thread.counted)
    yield from sorted(
        ((layer, fact) for layer, fact in facts.items() if fact.value), key=lambda item: -(item[1].value or 0)
    )


def _layer_lines(view: StacksView, thread: ThreadTime) -> Iterator[str]:
    for layer, fact in _facts(view, thread):
        bar = "█" * max(1, round(_BAR * (fact.value or 0)))
        yield f"{layer_name(layer):<16}{_text(fact):>7}  {bar}"


def _phase_lines(view: StacksView, thread: ThreadTime) -> list[str]:
    if not thread.phases:
        return []
    columns = [layer for layer, _ in _facts(view, thread)]
    wide = [max(9, len(layer_name(layer)) + 2) for layer in columns]
    rows = [
        "",
        f"{'phase':<16}{'time':>10}" + "".join(f"{layer_name(c):>{w}}" for c, w in zip(columns, wide, strict=True)),
    ]
    return rows + [_phase_row(view, thread, phase, columns, wide) for phase in thread.phases]


def _phase_row(view: StacksView, thread: ThreadTime, phase: PhaseTime, columns: list[Layer], wide: list[int]) -> str:
    facts = phase_facts(view, thread, phase)
    cells = "".join(f"{_text(facts[c]):>{w}}" for c, w in zip(columns, wide, strict=True))
    return f"{phase.name[:15]:<16}{format_ns(phase.span_ns):>10}{cells}"


def _hot_lines(thread: ThreadTime) -> list[str]:
    found = _hottest(thread)
    return (
        ["", "lines with most time, waiting included:", *(f"  {share:>6}  {line}" for share, line in found)]
        if found
        else []
    )


def _hottest(thread: ThreadTime) -> list[tuple[str, str]]:
    """Share and place of the lines worth a line."""
    return [
        (format_fraction(hot.ns / thread.observed_ns), f"{hot.frame.name} ({hot.frame.file}:{hot.frame.line})")
        for hot in thread.hottest[:5]
        if hot.ns >= _HOT_FROM * thread.observed_ns
    ]


def _footer(view: StacksView) -> Iterator[str]:
    record = view.record
    how = (
        f"native stacks; the process was stopped for each{_held(view)}: no times to quote from it"
        if record.native
        else ("Python stacks, taken without stopping the process: what happens inside a C call needs --native")
    )
    if record.missing is not None:
        yield f"no stacks: {record.missing.text}"
        yield f"what to do: {record.missing.next}"
    else:
        rate = "" if record.rate_hz is None else f"{record.rate_hz} samples a second over "
        yield f"{rate}{format_ns(record.span_ns)}: {how}"
        yield judged(view)
        if record.rate_hz is not None:
            yield f"its own cost: {_text(view.own_cost)} of a core (kdaprof and py-spy)"
    if view.others:
        busiest = ", ".join(f"{o.name} {format_ns(o.run_ns)}" for o in view.others[:4])
        yield f"threads without Python, time on a core: {busiest}"
    if any(thread.phases for thread in view.threads) and record.anchor_uncertainty_ns is not None:
        yield f"stacks and phases are on one clock to within {format_ns(record.anchor_uncertainty_ns)}"
    blurred = [(thread.blur_ns, p.name) for thread in view.threads[:1] for p in thread.phases if p.blurred]
    if blurred:
        yield (
            f"in parentheses, not to be quoted: the calls of {', '.join(name for _, name in blurred)} are short beside "
            f"the {format_ns(blurred[0][0])} to within which shares are told, so that those are their neighbours', too"
        )
    yield from record.notes


def _held(view: StacksView) -> str:
    return "" if view.held.value is None else f", {_text(view.held)} of the time, which is left out"


def layer_name(layer: Layer) -> str:
    """The layer as people read it."""
    return {"aten": "ATen", "cuda_launch": "CUDA launch", "triton_launcher": "Triton launcher"}.get(
        layer, layer.replace("_", " ")
    )


def _text(fact: Fact) -> str:
    if fact.value is None:
        return "–"
    text = format_fraction(fact.value)
    return text if fact.quotable else f"({text})"

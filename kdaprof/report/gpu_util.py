"""A watch of the GPU as text: for a terminal, and as `report.md`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdaprof.analysis.util_document import MEANING, OWN_COST_WANTED, CardView, WatchView
from kdaprof.report.units import utc
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_bytes, format_fraction, format_ns, format_value
from kdaprof.runs.watch import PICTURE_FILE

# fact → how the table calls it
_ROWS = (
    ("util_mean", "utilisation, mean"),
    ("util_p50", "utilisation, median"),
    ("util_idle_share", "time at ≤ 5 %"),
    ("longest_idle_s", "longest idle stretch"),
    ("gpm_sm", "SM activity (GPM)"),
    ("gpm_occupancy", "occupancy (GPM)"),
    ("gpm_tensor", "tensor activity (GPM)"),
    ("gpm_dram", "DRAM activity (GPM)"),
    ("gpm_pcie_rx", "PCIe read (GPM)"),
    ("gpm_pcie_tx", "PCIe write (GPM)"),
    ("gpm_nvlink_rx", "NVLink read (GPM)"),
    ("gpm_nvlink_tx", "NVLink write (GPM)"),
    ("mem_util", "memory controller"),
    ("mem_used_bytes", "memory used"),
    ("sm_clock_hz", "SM clock"),
    ("mem_clock_hz", "memory clock"),
    ("limited_share", "samples with a clock limit"),
    ("power_w", "power"),
    ("energy_j", "energy"),
    ("temperature_c", "temperature"),
)
_BAR = 40


def terminal_lines(view: WatchView) -> list[str]:
    """What `gpu-util` prints at the end."""
    lines: list[str] = []
    for card in view.cards:
        lines += ["", _title(card), *(f"  {text}" for text in _card_lines(card))]
    busy = [f"  {share.cell}: {_text(share.share)}" for share in view.busy]
    lines += ["", "device-busy share (GPU busy / wall, from the profiled repeats):", *busy] if busy else []
    return [*lines, "", *_footer(view)][1:]


def markdown(view: WatchView) -> str:
    """`report.md` of a watch."""
    record = view.record
    out = ["# GPU utilisation", "", MEANING, "", f"![Utilisation over time]({PICTURE_FILE})", ""]
    for card in view.cards:
        out += [f"## {_title(card)}", ""]
        if card.card.stopped is not None:
            out += [f"**The series ended early**: {card.card.stopped.reason}", ""]
        out += ["| figure | value | lowest | highest | p10 | p90 | readings | |", "|---|--:|--:|--:|--:|--:|--:|---|"]
        out += [_row(label, card.use.facts[fact]) for fact, label in _ROWS]
        lists = [f"- {text}" for text in _lists(card)]
        out += ["", *_histogram_table(card), *lists, *([""] if lists else [])]
    if view.busy:
        out += ["## Device-busy share", "", "GPU busy / wall of each cell, from its profiled repeats.", ""]
        out += ["| cell | busy / wall |", "|---|--:|"]
        out += [f"| `{share.cell}` | {_text(share.share)} |" for share in view.busy] + [""]
    out += ["## The watch", "", f"Began {utc(record.started_unix_ns)}.", ""]
    return "\n".join([*out, *(f"- {text}" for text in _footer(view, meaning=False)), ""])


def _title(card: CardView) -> str:
    place = "MIG" if card.card.index is None else f"GPU {card.card.index}"
    return " · ".join(part for part in (place, card.card.name, card.card.uuid) if part)


def _card_lines(card: CardView) -> Iterator[str]:
    facts = card.use.facts
    if card.card.stopped is not None:
        yield f"the series ended early: {card.card.stopped.reason}"
    if facts["util_mean"].value is None:
        yield f"utilisation: missing ({facts['util_mean'].detail})"
    else:
        spread = " · ".join(f"{name} {format_fraction(value)}" for name, value in card.use.percentiles.items())
        yield f"utilisation {_text(facts['util_mean'])} mean, {_text(facts['util_p50'])} median ({spread})"
        yield f"{facts['util_idle_share'].detail} ({_text(facts['util_idle_share'])}); longest idle stretch " + _text(
            facts["longest_idle_s"]
        )
        yield from _bars(card)
    gpm = [f"{label.removesuffix(' (GPM)')} {_text(facts[fact])}" for fact, label in _ROWS[4:8] if facts[fact].n]
    yield "GPM: " + (", ".join(gpm) if gpm else f"missing ({facts['gpm_sm'].detail})")
    used = facts["mem_used_bytes"]
    most = f", at most {format_bytes(used.max)}" if used.max is not None else ""
    yield f"memory {_text(used)}{most} · SM clock {_text(facts['sm_clock_hz'])} · {_text(facts['temperature_c'])}"
    yield f"power {_text(facts['power_w'])} · energy {_text(facts['energy_j'])}"
    yield from _lists(card)


def _bars(card: CardView) -> Iterator[str]:
    histogram = card.use.histogram
    total = sum(histogram.counts) if histogram else 0
    if histogram is None or not total:
        return
    for i, count in enumerate(histogram.counts):
        if count:
            low, high = (f"{100 * edge:.0f}" for edge in histogram.edges[i : i + 2])
            bar = "█" * max(1, round(_BAR * count / total))
            yield f"{low:>4}–{high:<3} % {bar} {count}"


def _histogram_table(card: CardView) -> list[str]:
    histogram = card.use.histogram
    if histogram is None:
        return []
    rows = [
        f"| {100 * histogram.edges[i]:.0f}–{100 * histogram.edges[i + 1]:.0f} % | {count} |"
        for i, count in enumerate(histogram.counts)
        if count
    ]
    return ["| utilisation | readings |", "|---|--:|", *rows, ""]


def _lists(card: CardView) -> Iterator[str]:
    """Limits, processes and joined names, a line each."""
    for limit in card.use.limits:
        yield f"clock event {limit.reason}: in {format_fraction(limit.share)} of the samples"
    for process in card.use.processes:
        told = [f"process {process.pid} ({process.name or 'name not known here'})"]
        told += [f"at most {format_bytes(process.used_bytes)}"] if process.used_bytes is not None else []
        told += [f"SM share {format_fraction(process.util)}"] if process.util is not None else []
        yield ", ".join(told)
    for joined in card.joined:
        told = [_joined_text(name, fact) for name, fact in joined.facts.items() if fact.value is not None]
        mixed = " (shorter than what a reading averages: mixed with its neighbours)" if joined.mixed else ""
        calls = f"{joined.name}, {joined.calls} × in {format_ns(joined.span_ns)}"
        yield f"{calls}: {', '.join(told) or 'no reading lies in it'}{mixed}"


def _joined_text(name: str, fact: Fact) -> str:
    """A figure of a name; with what is not its own, where a GPM reading crosses its borders."""
    crossed = f" ({fact.detail})" if name.startswith("gpm_") and fact.detail else ""
    return f"{name} {_text(fact)}{crossed}"


def _footer(view: WatchView, *, meaning: bool = True) -> list[str]:
    record = view.record
    late = view.lateness
    out = [f"{record.samples_taken} of {record.samples_due} samples at {record.hz:g} Hz in {format_ns(record.span_ns)}"]
    if late.value is not None and late.max is not None:
        out[0] += f"; late by {format_ns(late.value)} (median), {format_ns(late.max)} (most)"
    if view.own_cost.value is not None:
        wanted = f" (at 2 Hz at most {100 * OWN_COST_WANTED:g} % is wanted)"
        out.append(f"kdaprof itself took {format_fraction(view.own_cost.value)} of one core{wanted}")
    if record.child is not None:
        out.append(f"{record.child.argv0} ended with exit code {record.child.exit}")
    if not record.complete:
        out.append("partial: the watch did not go as planned (see above)")
    return [*out, *record.notes, *([MEANING] if meaning else [])]


def _row(label: str, fact: Fact) -> str:
    ends: Sequence[float | None] = (fact.min, fact.max, fact.p10, fact.p90)
    spread = " | ".join("" if end is None else format_value(end, fact.unit) for end in ends)
    why = fact.detail or ""
    return f"| {label} | {_text(fact)} | {spread} | {fact.n or ''} | {why.replace('|', '/')} |"


def _text(fact: Fact) -> str:
    if fact.value is None:
        return "—"
    return format_value(fact.value, fact.unit)

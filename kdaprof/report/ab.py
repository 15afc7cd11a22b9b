"""An experiment on a terminal and as report.md: the table, memory, each gate, and the decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from kdaprof.analysis.ab.peaks import change_text
from kdaprof.analysis.ab.result import Party, Result
from kdaprof.analysis.ab.rows import Row
from kdaprof.report.gfm import plain, text_table
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_number

DECISIONS = {"go": "GO", "no-go": "NO-GO", "not-established": "NOT ESTABLISHED"}
_STYLE = {"go": "bold green", "no-go": "bold red", "not-established": "bold yellow"}
_GATE_STYLE = {"pass": "green", "fail": "bold red", "not-established": "yellow"}
_DASH = "—"
_TABLE = (
    "shape",
    "role",
    "n",
    "base ms",
    "p10",
    "p90",
    "candidate ms",
    "p10",
    "p90",
    "speedup [95 %]",
    "verdict",
)
_FIGURES = (2, 3, 4, 5, 6, 7, 8, 9)


def show_experiment(console: Console, result: Result) -> None:
    """Print one experiment: who against whom, times in ms, memory, gates, decision."""
    _line(console, _title(result), "bold")
    for told in _head(result):
        _line(console, told, "dim")
    if result.outcome.rows:
        console.print()
        _grid(console, _TABLE, [_cells(row) for row in result.outcome.rows], _FIGURES)
        for text in _notes(result.outcome.rows):
            _line(console, text, "dim")
        console.print()
        _line(console, "peak memory above what was held before", "bold")
        _grid(console, ("shape", "change"), [(row.shape, change_text(row)) for row in result.outcome.rows])
    console.print()
    _line(console, "gates", "bold")
    width = max((len(gate.name) for gate in result.outcome.gates), default=0)
    for gate in result.outcome.gates:
        line = Text(f"  {gate.name:<{width}}  ")
        line.append(f"{gate.verdict.replace('-', ' '):<15}", style=_GATE_STYLE[gate.verdict])
        line.append(f"  wanted {gate.want}; got {gate.got}")
        console.print(line, soft_wrap=True)
    for error in result.errors:
        _line(console, f"failed: {error}", "bold red")
    console.print()
    _line(console, f"{DECISIONS[result.outcome.decision]}: {result.outcome.why}", _STYLE[result.outcome.decision])


def experiment_markdown(result: Result) -> str:
    """The same as report.md, with environment and revisions."""
    outcome = result.outcome
    lines = [f"# {plain(_title(result))}", "", f"**{DECISIONS[outcome.decision]}**: {plain(outcome.why)}", ""]
    lines += [f"- {plain(line)}" for line in _head(result)]
    lines += [f"- failed: {plain(error)}" for error in result.errors]
    if outcome.rows:
        lines += ["", "## Times in ms", "", *text_table(_TABLE, [_cells(row) for row in outcome.rows], _FIGURES)]
        lines += [line for text in _notes(outcome.rows) for line in ("", plain(text))]
        memory = [(row.shape, change_text(row)) for row in outcome.rows]
        lines += ["", "## Peak memory above what was held before", "", *text_table(("shape", "change"), memory)]
    gates = [(gate.name, gate.want, gate.got, gate.verdict.replace("-", " ")) for gate in outcome.gates]
    lines += ["", "## Gates", "", *text_table(("gate", "wanted", "got", "verdict"), gates)]
    machine = list(_machine(result))
    if machine:
        lines += ["", "## Environment", "", *(f"- {plain(line)}" for line in machine)]
    return "\n".join(lines).rstrip() + "\n"


def _title(result: Result) -> str:
    return f"{result.contract.name}: {result.cand.name} against {result.base.name}"


def _head(result: Result) -> Iterator[str]:
    yield f"base {_party(result.base)} · candidate {_party(result.cand)}"
    measure = result.contract.measure
    if result.source is not None:
        yield f"judged from {result.source}; nothing was measured"
    else:
        yield f"{measure.rounds} interleaved rounds of {measure.samples} samples a side and shape"
    if result.attempt is not None:
        limit = result.contract.attempts
        allowed = f" of at most {limit.most}" if limit is not None else ""
        yield f"attempt {result.attempt}{allowed} · contract {result.digest[:12]}"
    if result.started_unix_ns is not None:
        yield datetime.fromtimestamp(result.started_unix_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    env = result.environment
    if env is not None:
        versions = [f"{name} {version}" for name in ("torch", "triton", "driver") if (version := env.version(name))]
        yield " · ".join([env.gpu.name if env.gpu is not None else "no GPU", *versions])
    if not result.complete:
        yield "interrupted: what follows is partial"


def _party(party: Party) -> str:
    return party.name if party.commit is None else f"{party.name} ({party.commit[:12]})"


def _machine(result: Result) -> Iterator[str]:
    env = result.environment
    if env is None:
        return
    for name, party in (("base", result.base), ("candidate", result.cand)):
        if party.commit is not None:
            yield f"{name}: {party.name}, commit {party.commit}"
    yield f"GPU: {env.gpu.name if env.gpu is not None else f'none ({env.gpu_missing})'}"
    yield f"host: {env.host.cpu_model or 'CPU not known'}, {env.host.cores_total or '?'} cores, {env.host.platform}"
    yield "versions: " + ", ".join(f"{v.name} {v.version}" for v in env.versions if v.version is not None)
    for when, seen in (("before", result.before), ("after", result.after)):
        if seen is not None:
            load, clock = seen.host.load1, seen.gpu.sm_clock_hz if seen.gpu is not None else None
            told = [f"load {load:g}" if load is not None else "load not known"]
            told += [f"SM clock {clock / 1e6:.0f} MHz"] if clock is not None else []
            others = seen.gpu.foreign if seen.gpu is not None else None
            told += [f"{len(others)} other processes on the card"] if others else []
            yield f"{when}: {', '.join(told)}"


def _cells(row: Row) -> tuple[str, ...]:
    """One line of the table, times in ms."""
    name = row.shape if row.size is None else f"{row.shape} ({row.size})"
    times = [text for fact in (row.base, row.cand) for text in (_ms(fact), _in_ms(fact.p10), _in_ms(fact.p90))]
    return (
        name,
        row.role,
        str(min(row.base.n, row.cand.n)),
        *times,
        _speedup(row),
        row.ratio.verdict.replace("-", " "),
    )


def _ms(fact: Fact) -> str:
    if fact.value is None:
        return _DASH
    text = f"{fact.value / 1e6:.6f}" if fact.value < 1e6 else f"{fact.value / 1e6:.4f}"
    return text if fact.quotable else f"({text})"


def _in_ms(value: float | None) -> str:
    return _DASH if value is None else f"{value / 1e6:.6f}" if value < 1e6 else f"{value / 1e6:.4f}"


def _speedup(row: Row) -> str:
    found = row.speedup
    if found.value is None:
        return _DASH
    if found.interval is None:
        return f"{found.value:.6f}"
    return f"{found.value:.4f} [{', '.join(format_number(end, 4) for end in found.interval)}]"


def _notes(rows: Sequence[Row]) -> list[str]:
    """Why there is no ratio or no verdict, each reason once with its shapes; and what parentheses mean."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.ratio.why is not None:
            reasons.setdefault(row.ratio.why, []).append(row.shape)
    notes = [f"{', '.join(shapes)}: {why}" for why, shapes in reasons.items()]
    refused = {r.rule for row in rows for fact in (row.base, row.cand) for r in fact.reasons}
    return [*notes, f"in parentheses: not to be quoted ({', '.join(sorted(refused))})"] if refused else notes


def _grid(console: Console, headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    for number, texts in enumerate([headers, *rows]):
        padded = [t.rjust(w) if i in right else t.ljust(w) for i, (t, w) in enumerate(zip(texts, widths, strict=True))]
        _line(console, "  " + "  ".join(padded).rstrip(), "dim" if number == 0 else "")


def _line(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style=style), soft_wrap=True)

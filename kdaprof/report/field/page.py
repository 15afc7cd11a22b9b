"""The tables of a field report, from the run itself: implementations, speedups, MHA, GEMM, roofline, methods, gaps."""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.analysis.view import RawRun
from kdaprof.report.field.columns import by_which_rules, column, end_of, medians
from kdaprof.report.field.gaps import gaps
from kdaprof.report.field.library import attention, products
from kdaprof.report.field.speedups import speedups
from kdaprof.report.gfm import plain, table_lines, text_table
from kdaprof.report.machine import judged
from kdaprof.report.markdown import title
from kdaprof.report.pairs import Cell, cells_of, naming, pairs_of, shape_text
from kdaprof.report.scene import Scene
from kdaprof.report.tables import figure_table
from kdaprof.report.units import utc
from kdaprof.runs.facts import Fact
from kdaprof.runs.results import RunResults

_LIBRARY = {"mha": ("Attention (MHA)", attention), "gemm": ("GEMM", products)}
_OP = frozenset({"fwd", "bwd", "fwdbwd"})
MARKS = "Each is the median of steady samples. ~~Struck out~~ figures may not be quoted; the rule stands beside them."


def field_tables(raw: RawRun, results: RunResults) -> str:
    """Markdown of one run: same input, same text. Nothing is estimated; what was not measured is named."""
    record = raw.record
    cells = cells_of(record, results)
    scene = Scene(record, results, cells, pairs_of(cells), naming(cells))
    gpu = record.environment.gpu
    lines = [f"# Field report: {title(scene)}", ""]
    lines += [f"Run `{record.run}`, {utc(record.started_unix_ns)}, {plain(record.tool)}."]
    lines += [f"Machine: {plain(gpu.name if gpu else 'no GPU')}. {plain(judged(scene))}"]
    number = 0
    for number, (heading, group) in enumerate(_groups([c for c in cells if c.key.workload not in _LIBRARY]), 1):
        lines += ["", f"## {number}. {plain(heading)}", "", *_implementations(group), "", "### Speedups", ""]
        lines += speedups(raw, group)
    for name, (words, table) in _LIBRARY.items():
        number += 1
        mine = [cell for cell in cells if cell.key.workload == name]
        lines += ["", f"## {number}. {words}", "", *(table(raw, mine) if mine else ["Not measured in this run."])]
    for heading, body in (
        ("Roofline", _roofline(scene)),
        ("Methods", _methods(scene)),
        ("What was not measured", gaps(scene)),
    ):
        number += 1
        lines += ["", f"## {number}. {heading}", "", *body]
    return "\n".join(lines) + "\n"


def _groups(cells: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    """Cells of one workload, shape and dtype: one table each."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        heading = f"{cell.key.workload}: {shape_text(cell.key)}, {cell.key.dtype}"
        groups.setdefault(heading, []).append(cell)
    return list(groups.items())


def implementation(cell: Cell) -> str:
    """`fused`, `fused in a CUDA Graph`, `tensor under autocast`."""
    context = f" under {cell.key.context}" if cell.key.context != "plain" else ""
    return f"{cell.key.path}{context}{' in a CUDA Graph' if cell.key.mode == 'graph' else ''}"


def _implementations(group: Sequence[Cell]) -> list[str]:
    """Implementation × fwd median, min, max, bwd, fwd + bwd, peak, allocations; a row for the floor."""
    rows: dict[str, dict[str, Cell]] = {}
    for cell in group:
        rows.setdefault(implementation(cell), {})[cell.key.phase] = cell
    # A step's forward is a part of the step, not a call of its own: its phases stand below each other.
    if any("step" in phases for phases in rows.values()) or all(_OP.isdisjoint(phases) for phases in rows.values()):
        return _by_phase(group)
    known = list(rows.values())
    ends = [end_of(_fact(phases, "fwd", "wall_ns"), "min") for phases in known]
    tops = [end_of(_fact(phases, "fwd", "wall_ns"), "max") for phases in known]
    columns = [
        column("fwd median", "ns", [_fact(phases, "fwd", "wall_ns") for phases in known], "ci95"),
        column("fwd min", "ns", ends),
        column("fwd max", "ns", tops),
        column("bwd median", "ns", [_fact(phases, "bwd", "wall_ns") for phases in known]),
        column("fwd + bwd median", "ns", [_fact(phases, "fwdbwd", "wall_ns") for phases in known]),
        column("peak", "B", [_most(phases, "peak_bytes") for phases in known]),
        column("allocs", "1", [_most(phases, "allocs") for phases in known]),
    ]
    table = figure_table([("implementation", list(rows))], columns)
    told = "fwd + bwd is measured as one call, not added up; peak and allocations are of the largest phase measured."
    return [
        *table_lines(table),
        "",
        f"{MARKS} In brackets: 95 % interval, from rounds. {told}",
        *by_which_rules(table, "Refused by:"),
    ]


def _by_phase(group: Sequence[Cell]) -> list[str]:
    """For workloads with other phases: a row an implementation and phase."""
    names = [("implementation", [implementation(c) for c in group]), ("phase", [c.key.phase for c in group])]
    walls = [cell.fact("wall_ns") for cell in group]
    columns = [
        *medians(walls),
        column("busy", "ns", [cell.fact("gpu_busy_ns") for cell in group]),
        column("peak", "B", [cell.fact("peak_bytes") for cell in group]),
        column("allocs", "1", [cell.fact("allocs") for cell in group]),
    ]
    table = figure_table(names, columns)
    return [*table_lines(table), "", MARKS, *by_which_rules(table, "Refused by:")]


def _roofline(scene: Scene) -> list[str]:
    """Floor and share of the roofline, from the ceilings of this run."""
    cells = [c for c in scene.cells if (floor := c.fact("floor_ns")) and floor.value is not None]
    if not cells:
        return ["No floor: this run has no ceilings, or the operations of its workloads are not known."]
    names = [(header, [get(cell.key) for cell in cells]) for header, get in scene.naming.columns]
    columns = [
        column("wall", "ns", [cell.fact("wall_ns") for cell in cells]),
        column("busy", "ns", [cell.fact("gpu_busy_ns") for cell in cells]),
        column("roofline", "ns", [cell.fact("floor_ns") for cell in cells]),
        column("share of roofline", "fraction", [cell.fact("floor_share") for cell in cells], "ci95"),
    ]
    table = figure_table(names, columns)
    used = ", ".join(f"{c.name} ({c.provenance})" for c in scene.record.ceilings)
    legend = "Share of roofline = roofline / busy: GPU work against the larger of operations and compulsory bytes."
    return [*table_lines(table), "", f"{legend} Ceilings: {plain(used)}.", *by_which_rules(table, "Refused by:")]


def _methods(scene: Scene) -> list[str]:
    record, env = scene.record, scene.record.environment
    walls = [f for c in scene.cells if (f := c.fact("wall_ns")) and f.value is not None]
    busy = [f for c in scene.cells if (f := c.fact("gpu_busy_ns")) and f.value is not None]
    seen = [c.record.observed for c in scene.cells if c.record.observed]
    caches = sorted({one.cache for one in seen})
    checked = [one.check for one in seen if one.check]
    have = ", ".join(f"{v.name} {v.version}" for v in env.versions if v.version)
    rows = [
        ("samples", f"wall and host: {_counts(walls)} steady samples a cell, paths in turn within each round"),
        ("busy", f"{_counts(busy)} profiled repeats a cell, in a process of their own" if busy else "not measured"),
        ("warm-up", "every sample is kept from step 0; the steady part is found by change points"),
        ("cache", ", ".join(caches) or "not recorded"),
        ("outputs", f"{sum(c.passed for c in checked)} of {len(checked)} cells agree with {_against(checked)}"),
        ("versions", have or "not recorded"),
        ("command", f"`{' '.join(record.command)}`"),
    ]
    return text_table(("what", "how"), rows)


def _against(checked: Sequence[object]) -> str:
    return ", ".join(sorted({str(getattr(check, "against", "")) for check in checked})) or "nothing"


def _counts(facts: Sequence[Fact]) -> str:
    counts = sorted({fact.n for fact in facts})
    if not counts:
        return "no"
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _fact(phases: dict[str, Cell], phase: str, name: str) -> Fact | None:
    cell = phases.get(phase)
    return cell.fact(name) if cell else None


def _most(phases: dict[str, Cell], name: str) -> Fact | None:
    found = [fact for phase in ("fwdbwd", "bwd", "fwd") if (fact := _fact(phases, phase, name)) is not None]
    real = [fact for fact in found if fact.value is not None]
    return max(real, key=lambda fact: fact.value or 0) if real else (found[0] if found else None)

"""A run on a terminal: a table a path with figures down and phases across, then verdict and findings.

A probed step is shown by its attribution instead: parts down, figures across, what else it says in sentences.

Reads without colour and when piped: refused figures stand in parentheses with their rule, nothing is cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from kdaprof.analysis.verdict import sentence
from kdaprof.report.groups import Group, groups_of
from kdaprof.report.labels import SEVERITY
from kdaprof.report.named import named_values
from kdaprof.report.pairs import Cell, Pair, cells_of, naming, pairs_of
from kdaprof.report.places import place_of
from kdaprof.report.rules import rule_explanation, rule_title, short_list
from kdaprof.report.scene import Scene
from kdaprof.report.sheets import Spec
from kdaprof.report.step import step_name
from kdaprof.report.step_brief import Brief, briefs
from kdaprof.report.trouble import troubles
from kdaprof.report.upright import Upright, blocks, upright
from kdaprof.runs.cells import OWN_PATH
from kdaprof.runs.record import RunRecord
from kdaprof.runs.results import Evidence, Finding, RunResults
from kdaprof.runs.store import REPORT_FILE

RECORDED_RUN = "reports/h200-kda"
FIELD_WORKLOADS = ("mha", "gemm")
"""What is read from the field tables: rates, the card's clock and power, whether a product's figure stands."""

ROWS: tuple[Spec, ...] = (
    ("eager", "wall_ns", "wall", "ci95"),
    ("eager", "host_ns", "host", None),
    ("eager", "gpu_busy_ns", "busy", None),
    ("eager", "host_bound", "host-bound", None),
    ("eager", "launches", "launches", None),
    ("eager", "allocs", "allocations", None),
    ("graph", "wall_ns", "graph wall", None),
    ("eager", "graph_removed", "graph removes", None),
    ("eager", "floor_ns", "floor", None),
    ("eager", "error_l2", "error", None),
)
# In a running loop the GPU's own span of a phase is its time; the host's says when it was issued.
LOOP_ROWS: tuple[Spec, ...] = (ROWS[0], ("eager", "gpu_span_ns", "GPU span", None), *ROWS[2:6])
_STYLE = {"error": "bold red", "warn": "yellow", "info": "cyan"}
_EVIDENCE = {
    "confirmed": "green",
    "partial": "yellow",
    "gate-only": "yellow",
    "contradicted": "bold red",
    "none": "red",
}


def show_run(console: Console, record: RunRecord, results: RunResults, *, path: Path | None = None) -> None:
    """Print one run: tables, verdict, findings, what stands in parentheses and why, and where the run lies."""
    cells = cells_of(record, results)
    scene = Scene(record, results, cells, pairs_of(cells), naming(cells))
    _line(console, _heading(scene), "bold")
    _line(console, f"run {record.run}", "dim")
    rules: set[str] = set()
    steps = briefs(scene)
    for brief in steps:
        rules |= _show_step(console, brief)
    covered = [pair for brief in steps for pair in brief.covered]
    for group in groups_of(scene, [pair for pair in scene.pairs if pair not in covered]):
        rules |= _show_group(console, group)
    _show_trouble(console, scene)
    _section(console, "Verdict")
    for text in sentence(record, results):
        _paragraph(console, Text(text))
    if results.findings:
        _section(console, "Findings")
        _show_findings(console, scene)
    if rules:
        _section(console, "In parentheses: not to be quoted")
        for rule in sorted(rules):
            _paragraph(console, Text(f"{rule} {rule_title(rule)}: {rule_explanation(rule)}", style="dim"))
    hint = recorded_run_hint(record)
    if hint:
        console.print()
        _paragraph(console, Text(hint), indent=0)
    if path is not None:
        console.print()
        _line(console, f"run directory  {path}", "dim")
        if (path / REPORT_FILE).exists():  # a probe that was killed had no time to write one
            _line(console, f"whole report   {path / REPORT_FILE}", "dim")
        if any(cell.key.workload in FIELD_WORKLOADS for cell in record.cells):
            _line(console, f"rates, clocks  kdaprof report {path} --tables field", "dim")


def recorded_run_hint(record: RunRecord) -> str | None:
    """Where to see the real thing, for a run without a GPU; None where there was one."""
    if record.environment.gpu is not None:
        return None
    return (
        f"No GPU here, so no GPU figures. A run recorded on an NVIDIA H200 shows them: read {RECORDED_RUN}/report.md, "
        f"or `kdaprof report {RECORDED_RUN}`."
    )


def _show_step(console: Console, brief: Brief) -> set[str]:
    _show_title(console, step_name(brief.whole), brief.covered)
    rules = _show_table(console, brief.table)
    for text in brief.sentences:
        _paragraph(console, Text(text))
    return rules


def _show_group(console: Console, group: Group) -> set[str]:
    cells = _show_title(console, group.name, group.pairs)
    in_loop = any(cell.record.observed is not None and cell.record.observed.borders == "loop" for cell in cells)
    return _show_table(console, upright(group.pairs, LOOP_ROWS if in_loop else ROWS, group.across))


def _show_title(console: Console, name: str, pairs: Sequence[Pair]) -> list[Cell]:
    """The group's name and whether its path was proven; returns the group's cells."""
    cells = [cell for pair in pairs for cell in (pair.eager, pair.graph) if cell]
    ran = [cell for cell in cells if cell.record.status == "ok"] or cells
    console.print()
    title = Text(name, style="bold")
    title.append("  ").append(_proof(_telling(ran)))
    console.print(title, soft_wrap=True)
    return cells


def _show_table(console: Console, table: Upright) -> set[str]:
    for block in blocks(table, console.width) if table.rows else ():
        _draw(console, block)
    for number, reason in enumerate(table.notes, 1):
        _paragraph(console, Text(f"({number}) {reason}", style="dim"))
    if table.shared_rules:
        text = f"each figure in parentheses also: {' '.join(table.shared_rules)}"
        _paragraph(console, Text(text, style="dim"))
    for left in table.left_out:
        _paragraph(console, Text(f"no {', '.join(left.headers)}: {'; '.join(left.reasons)}", style="dim"))
    return {rule for row in table.rows for entry in row.entries for rule in entry.rules}


def _draw(console: Console, table: Upright) -> None:
    first, widths = table.widths()
    head = Text(" " * first)
    for phase, width in zip(table.across, widths, strict=True):
        head.append("  " + phase.rjust(width), style="dim")
    console.print(head, soft_wrap=True)
    for row in table.rows:
        line = Text(row.header.ljust(first))
        for entry, width in zip(row.entries, widths, strict=True):
            text = table.text(entry)
            line.append("  " + " " * (width - len(text)))
            line.append(text, style="dim" if entry.rules or entry.missing else "")
        console.print(line, soft_wrap=True)


def _telling(ran: Sequence[Cell]) -> list[Evidence]:
    """The evidence that a title is about. Nothing is declared of a captured step: it adds what it contradicts."""
    eager = [cell for cell in ran if cell.key.mode == "eager"]
    return [
        cell.result.evidence
        for cell in ran
        if cell.key.workload != "step" or not eager or cell in eager or cell.result.evidence.verdict == "contradicted"
    ]


def _proof(found: Sequence[Evidence]) -> Text:
    """The worst verdict of the group's cells, with what each kind of witness said where they disagree."""
    if found[0].expected == OWN_PATH:
        return Text("no call of the op was counted: no path to prove", style="dim")
    order = list(_EVIDENCE)
    worst = max(found, key=lambda evidence: order.index(evidence.verdict))
    names = ", ".join(w.name for w in worst.witnesses if w.says == worst.expected)
    against = [f"{w.name} says {w.says}" for w in worst.witnesses if w.says not in (None, worst.expected)]
    detail = {"confirmed": names, "partial": f"{names} only", "gate-only": "no device to look at"}.get(
        worst.verdict, ""
    )
    if worst.verdict == "contradicted":
        detail = "; ".join(against)
    proven = sum(evidence.verdict in ("confirmed", "partial") for evidence in found)
    if proven and worst.verdict in ("gate-only", "none"):
        text = f"path proven in {proven} of {len(found)} cells (the rest was not profiled)"
        return Text(text, style=_EVIDENCE[worst.verdict])
    text = {"none": "path not proven"}.get(worst.verdict, f"path {worst.verdict}")
    return Text(f"{text} ({detail})" if detail else text, style=_EVIDENCE[worst.verdict])


def _show_trouble(console: Console, scene: Scene) -> None:
    found = troubles(scene)
    if not scene.record.complete or found:
        _section(console, "Not measured" if scene.record.complete else "Partial run: it ended before its plan did")
    for trouble in found:
        _paragraph(console, Text(f"{trouble.cells}: {trouble.status}, {trouble.why}"))
    _show_notes(console, scene, headed=bool(found) or not scene.record.complete)


def _show_notes(console: Console, scene: Scene, *, headed: bool) -> None:
    """Where a loop ended, and what failed in its profiler; the notes of a probe stand here where it is partial."""
    seen = [cell.record.observed for cell in scene.cells]
    watched = not seen or any(one is not None and one.borders == "loop" for one in seen)  # none: a loop without a step
    if not scene.record.notes or (scene.record.complete and not watched):
        return
    if not headed:
        _section(console, "Notes")
    for note in dict.fromkeys(scene.record.notes):
        _paragraph(console, Text(note))


def _show_findings(console: Console, scene: Scene) -> None:
    """The first of each kind in full; the next ones without what they would only repeat. Errors always in full."""
    names = {cell.record.id: scene.naming.name(cell.key, mode=True) for cell in scene.cells}
    kinds: dict[tuple[str, str], list[Finding]] = {}
    for finding in scene.results.findings:
        kinds.setdefault((finding.severity, finding.id), []).append(finding)
    for (severity, kind), found in kinds.items():
        for i, finding in enumerate(found):
            if i == 0 or severity != "info":
                _show_finding(console, finding, place_of(finding, scene), full=i == 0 or severity == "error")
        if severity == "info" and len(found) > 1:
            places = short_list(names.get(f.cell or "", f.cell or "the run") for f in found[1:])
            _paragraph(console, Text(f"{kind} also: {places} (numbers in the report)", style="dim"), indent=4)


def _show_finding(console: Console, finding: Finding, where: str | None, *, full: bool) -> None:
    text = Text(SEVERITY[finding.severity], style=_STYLE[finding.severity])
    text.append(f" {finding.id}{f' ({where})' if where else ''}: {finding.text}", style="default")
    _paragraph(console, text)
    if not full:
        return
    if finding.threshold:
        _paragraph(console, Text(f"threshold {named_values(finding.threshold)}", style="dim"), indent=4)
    if finding.next:
        _paragraph(console, Text(f"next: {finding.next}"), indent=4)


def _heading(scene: Scene) -> str:
    gpu = scene.record.environment.gpu
    parts = (scene.naming.common, gpu.name if gpu else "no GPU")
    return " · ".join(part for part in parts if part)


def _section(console: Console, heading: str) -> None:
    console.print()
    _line(console, heading, "bold")


def _line(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style=style), highlight=False, soft_wrap=True)


def _paragraph(console: Console, text: Text, indent: int = 2) -> None:
    """Wrapped by words and indented, without the trailing blanks that a padded block would pipe on."""
    for line in text.wrap(console, max(20, console.width - indent)):
        line.rstrip()
        console.print(Text(" " * indent).append_text(line), highlight=False, soft_wrap=True)

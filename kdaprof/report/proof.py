"""Sections of report.md that say what may be believed: findings, witnesses, refused figures."""

from __future__ import annotations

from kdaprof.report.gfm import plain, text_table
from kdaprof.report.labels import SEVERITY
from kdaprof.report.named import named_values
from kdaprof.report.places import place_of
from kdaprof.report.rules import Refused, refused_figures, rule_explanation, rule_title, short_list
from kdaprof.report.scene import Scene
from kdaprof.runs.results import Finding, Witness

VERDICTS = (
    "confirmed: all three name the path asked for; partial: some cannot speak; gate-only: no device to look at; "
    "contradicted: one names another path, and the figures of that cell mean nothing."
)
"""What the verdict on a cell's path means."""


def findings(scene: Scene) -> list[str]:
    """Each finding with its numbers, its threshold and the next step."""
    if not scene.results.findings:
        return ["None."]
    lines: list[str] = []
    for finding in scene.results.findings:
        lines += _finding(finding, place_of(finding, scene))
    return lines


def evidence(scene: Scene) -> list[str]:
    """Three witnesses a cell: what each says, and whether they agree."""
    ran = [cell for cell in scene.cells if cell.record.status in {"ok", "failed"}]
    cells = [cell for cell in ran if cell.result.evidence.witnesses]
    if not cells:
        return []
    headers = [*(header for header, _ in scene.naming.columns), "mode", "verdict", "gate", "kernels", "counts"]
    rows = []
    for cell in cells:
        said = {witness.name: witness for witness in cell.result.evidence.witnesses}
        told = [witness_text(said.get(name), cell.key.path) for name in ("gate", "kernels", "counts")]
        lead = [get(cell.key) for _, get in scene.naming.columns]
        rows.append([*lead, cell.key.mode, cell.result.evidence.verdict, *told])
    return [*text_table(headers, rows), "", VERDICTS]


def refusals(scene: Scene) -> list[str]:
    """Every rule that refuses a figure here, with the numbers that tripped it."""
    lines: list[str] = []
    last = ""
    for refused in refused_figures(scene.cells, scene.naming):
        if refused.rule != last:
            title = f"**{refused.rule} {rule_title(refused.rule)}.**"
            lines += ["", f"{title} {plain(rule_explanation(refused.rule))}", ""]
            last = refused.rule
        lines.append(f"- {plain(refused.text)}: {plain(who(refused))}")
    return lines[1:]


def _finding(finding: Finding, where: str | None) -> list[str]:
    place = f" · {plain(where)}" if where else ""
    lines = [f"- **{SEVERITY[finding.severity]}** `{finding.id}`{place}: {plain(finding.text)}"]
    numbers = [named_values(finding.evidence)] if finding.evidence else []
    numbers += [f"threshold {named_values(finding.threshold)}"] if finding.threshold else []
    if numbers:
        lines[-1] += "  "
        lines.append(f"  {plain('; '.join(numbers))}")
    if finding.next:
        lines[-1] += "  "
        lines.append(f"  **Next:** {plain(finding.next)}")
    return lines


def witness_text(witness: Witness | None, expected: str) -> str:
    """What one witness says, and that it is silent or against where it is."""
    if witness is None:
        return "—"
    if witness.says is None:
        return f"silent: {witness.detail}"
    return witness.detail if witness.says == expected else f"says {witness.says}: {witness.detail}"


def who(refused: Refused) -> str:
    """`fused fwd (wall, host-bound)`, or the cells alone where they all share a long list of figures."""
    sets = {names for _, names in refused.figures}
    if len(sets) == 1:
        names = next(iter(sets))
        return f"{short_list(names)} of {short_list(cell for cell, _ in refused.figures)}"
    return "; ".join(f"{cell} ({short_list(names, 4)})" for cell, names in refused.figures[:8]) + (
        f" and {len(refused.figures) - 8} more cells" if len(refused.figures) > 8 else ""
    )

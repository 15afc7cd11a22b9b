"""Where a finding belongs, said once."""

from __future__ import annotations

from kdaprof.analysis.findings.figures import phase_of
from kdaprof.report.scene import Scene
from kdaprof.runs.results import Finding

SPOKEN = ("path", "phase", "context")
"""What a text that begins with its cell's name says of it already; the mode, too."""


def place_of(finding: Finding, scene: Scene) -> str | None:
    """The name of the finding's cell, as the tables of this run have it; None where there is none to say.

    Of a text that begins with path and phase it is the rest of the name: shape, dtype and workload, where they differ.
    """
    if finding.cell is None:
        return None
    key = next((cell.key for cell in scene.cells if cell.record.id == finding.cell), None)
    if key is None:
        return finding.cell
    if not finding.text.startswith(f"{key.path} {phase_of(key)}"):
        return scene.naming.name(key, mode=True)
    return " ".join(get(key) for name, get in scene.naming.columns if name not in SPOKEN) or None

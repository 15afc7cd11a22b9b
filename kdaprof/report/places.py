"""Where a finding belongs, said once."""

from __future__ import annotations

from collections.abc import Mapping

from kdaprof.runs.results import Finding


def place_of(finding: Finding, names: Mapping[str, str]) -> str | None:
    """The name of the finding's cell; None where it has none, or where its text begins with that path already."""
    if finding.cell is None:
        return None
    name = names.get(finding.cell, finding.cell)
    path = name.split(" ", 1)[0]
    return None if finding.text.startswith((f"{path} ", f"{path}:")) else name

"""A path recorded on an H200 and given another path's name comes out contradicted, through the whole derivation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.analysis.view import RawRun
from kdaprof.kda.declared import declared_counts
from kdaprof.kda.shapes import OpShape
from kdaprof.runs.record import CellRecord
from kdaprof.runs.results import CellResult, Finding

RUN = Path(__file__).parents[2] / "reports" / "h200-kda"
PATHS = ("fused", "tensor", "tensor-rows")


@pytest.fixture(scope="module")
def raw() -> RawRun:
    return load_raw(RUN)


def derived(raw: RawRun, path: str, label: str) -> tuple[CellResult, tuple[Finding, ...]]:
    """The forward cell of `path` alone, under the name `label`; the gate keeps what it recorded."""
    cell = next(c for c in raw.record.cells if c.key.path == path and (c.key.mode, c.key.phase) == ("eager", "fwd"))
    named = relabelled(cell, label)
    one = RawRun(
        record=replace(raw.record, cells=(named,)),
        samples={named.id: tuple(replace(s, cell=named.id) for s in raw.samples[cell.id])},
        timelines={(named.id, kind): line for (of, kind), line in raw.timelines.items() if of == cell.id},
        util=raw.util,
    )
    results = derive(one)
    return results.cells[0], results.findings


def relabelled(cell: CellRecord, label: str) -> CellRecord:
    size = dict(cell.key.shape)
    extents = OpShape(*(size[axis] for axis in ("B", "T", "H", "K", "V")))
    counts = declared_counts(label, cell.key.phase, extents, size["C"], cell.key.dtype)
    assert counts is not None
    assert cell.observed is not None
    return replace(cell, key=replace(cell.key, path=label), observed=replace(cell.observed, declared=counts))


@pytest.mark.parametrize("path", PATHS)
def test_under_its_own_name_a_path_is_confirmed(raw: RawRun, path: str) -> None:
    result, _ = derived(raw, path, path)
    assert result.evidence.verdict == "confirmed"


@pytest.mark.parametrize("label", PATHS)
@pytest.mark.parametrize("path", PATHS)
def test_under_another_name_it_is_contradicted_and_refused(raw: RawRun, path: str, label: str) -> None:
    if label == path:
        return
    result, findings = derived(raw, path, label)
    assert result.evidence.verdict == "contradicted"
    assert any(finding.id == "path-contradicted" and finding.severity == "error" for finding in findings)
    wall = result.facts["wall_ns"]
    assert not wall.quotable
    assert "Q06" in {reason.rule for reason in wall.reasons}

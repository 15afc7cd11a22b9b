"""The estimate that a trace alone gives of a capture, against the capture that the probe measured on an H200."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdaprof.analysis.recompute import load_raw, recompute
from kdaprof.analysis.trace.counterfactual import GRAPH_FIXED_HIGH_NS
from kdaprof.analysis.trace.report import Scope, analyse
from kdaprof.analysis.view import RawRun

RUN = Path(__file__).parents[2] / "reports" / "h200-kda"


@pytest.fixture(scope="module")
def raw() -> RawRun:
    return load_raw(RUN)


@pytest.fixture(scope="module")
def replay_ns() -> dict[str, float]:
    """Measured wall of a replay, by the eager cell's id."""
    graphs = {cell.id: cell.facts["wall_ns"].value for cell in recompute(RUN).cells if "/graph/" in cell.id}
    return {cell.replace("/graph/", "/eager/"): float(wall) for cell, wall in graphs.items() if wall is not None}


@pytest.mark.parametrize("kind", ["profiled-cuda", "profiled-full"])
@pytest.mark.parametrize("path", ["fused", "tensor", "tensor-rows", "compiled"])
def test_the_measured_replay_lies_in_the_estimated_range(
    raw: RawRun, replay_ns: dict[str, float], path: str, kind: str
) -> None:
    cell = next(of for of, _ in raw.timelines if of.startswith(f"kda/{path}/plain/eager/fwd/"))
    estimate = analyse(raw.timelines[cell, kind], Scope()).devices[0].counterfactual
    assert estimate is not None
    repeats = sum(sample.repeat == kind for sample in raw.samples[cell])
    # The trace holds several calls in a row; each would be a graph of its own, with the fixed cost of one.
    low = estimate.low_ns / repeats
    high = (estimate.high_ns - GRAPH_FIXED_HIGH_NS) / repeats + GRAPH_FIXED_HIGH_NS
    assert low <= replay_ns[cell] <= high
    assert high < estimate.now_ns / repeats

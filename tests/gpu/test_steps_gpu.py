"""The step profiler on a card: marks against the clock, windows, captures. (What it costs: benchmarks.)"""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kdaprof import StepProfiler  # noqa: E402
from kdaprof.analysis.derive import derive  # noqa: E402
from kdaprof.analysis.recompute import load_raw  # noqa: E402
from kdaprof.integrations.steps import WindowPlan  # noqa: E402
from kdaprof.runs.facts import Fact  # noqa: E402

pytestmark = pytest.mark.gpu
PLAN = WindowPlan(first=20, every=20, steps=2, most=4)


def watched(out: Path, width: int, depth: int, *, steps: int = 100, sync: bool = False) -> dict[str, dict[str, Fact]]:
    """A stack of matrix products: a wide one keeps the device busy, a deep narrow one the host."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(depth))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x = torch.randn(256, width, device="cuda")
    with StepProfiler(out, shape={"B": 256}, windows=PLAN, environ={}, history=False) as prof:
        for _ in range(steps):
            with prof.step(tokens=256):
                with prof.phase("fwd"):
                    loss = model(x).square().mean()
                with prof.phase("bwd"):
                    loss.backward()
                with prof.phase("opt"):
                    optimizer.step()
                    optimizer.zero_grad()
                if sync:
                    loss.item()
    assert prof.notes == ()
    raw = load_raw(out)
    return {cell.id.split("/")[4]: cell.facts for cell in derive(raw).cells}


def value(fact: Fact) -> float:
    assert fact.value is not None, fact.detail
    return float(fact.value)


def test_a_gpu_bound_loop(tmp_path: Path) -> None:
    facts = watched(tmp_path / "run", 8192, 8)
    assert value(facts["step"]["host_bound"]) < 0.15
    assert value(facts["step"]["gpu_busy_ns"]) <= 1.02 * value(facts["step"]["gpu_span_ns"])
    # The backward of a matrix product is two of them.
    assert 1.5 < value(facts["bwd"]["gpu_busy_ns"]) / value(facts["fwd"]["gpu_busy_ns"]) < 2.5


@pytest.mark.parametrize("sync", [False, True])
def test_a_host_bound_loop(tmp_path: Path, sync: bool) -> None:
    facts = watched(tmp_path / "run", 64, 64, sync=sync)
    assert value(facts["step"]["host_bound"]) > 0.5
    # A layer is one product forward and two backward, of a kernel or more each; cuBLAS splits some and clears first.
    assert value(facts["fwd"]["launches"]) >= 64
    assert value(facts["bwd"]["launches"]) >= 2 * 64
    for name in ("gpu_span_ns", "gpu_busy_ns"):
        parts = sum(value(facts[phase][name]) for phase in ("fwd", "bwd", "opt", "other"))
        assert parts == pytest.approx(value(facts["step"][name]), rel=0.1)
    assert value(facts["step"]["allocs"]) > 64


def test_spans_add_up_to_the_step_and_follow_the_clock(tmp_path: Path) -> None:
    watched(tmp_path / "run", 64, 64, sync=True)
    raw = load_raw(tmp_path / "run")
    timed = {cell: [row for row in rows if row.wall_ns is not None] for cell, rows in raw.samples.items()}
    spans = {cell.split("/")[4]: {r.index: r.gpu_span_ns or 0 for r in rows} for cell, rows in timed.items()}
    walls = {r.index: r.wall_ns or 0 for cell, rows in timed.items() for r in rows if cell.split("/")[4] == "step"}
    for number, span in spans["step"].items():
        assert sum(of[number] for phase, of in spans.items() if phase != "step") == span
    steady = [number for number in spans["step"] if number > 50]
    # Every step ends with a synchronise: the device's span of it and the host's are the same time.
    assert sum(spans["step"][n] for n in steady) == pytest.approx(sum(walls[n] for n in steady), rel=0.05)


def test_a_capture_inside_a_phase_does_no_harm(tmp_path: Path) -> None:
    x = torch.randn(64, 64, device="cuda")
    torch.testing.assert_close(x @ x, x @ x)  # the library's handle is made here: a capture cannot make it
    with StepProfiler(tmp_path / "run", shape={"B": 64}, windows=WindowPlan(most=0), environ={}, history=False) as prof:
        with prof.step(), prof.phase("capture"):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = x @ x
        for _ in range(5):
            with prof.step(), prof.phase("replay"):
                graph.replay()
    assert prof.notes == ()
    assert torch.allclose(y, x @ x)
    rows = {cell.split("/")[4]: found for cell, found in load_raw(tmp_path / "run").samples.items()}
    assert all((row.gpu_span_ns or 0) > 0 for row in rows["replay"])

"""A cold step by cause, on the real hooks of Triton and torch.compile; what is laid over samples, and what drifts."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.callback import callback_handler
from triton import Config, knobs
from triton.runtime.autotuner import Autotuner

from kdaprof.analysis.step.cold import DRIFT_SAMPLES_MIN, cold_cost, drift_of, retuned
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.compiles import CompileWatch
from kdaprof.instruments.fakes.clock import FakeClock
from kdaprof.probe.child import ChildSpec, StepTask
from kdaprof.probe.step.plan import STEP_EFFORT
from kdaprof.probe.step.slow import slow_steps
from kdaprof.probe.step.worker import work_through
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.compiles import Cause, CompileEvent, SlowStep
from kdaprof.runs.samples import Sample
from kdaprof.workloads.step.spec import HOST_MODEL, StepSpec

MS = 1_000_000


def event(cause: Cause, start: int, ns: int, name: str = "k", count: int = 1) -> CompileEvent:
    return CompileEvent(cause=cause, name=name, start_ns=start, ns=ns, count=count)


def step(*events: CompileEvent, index: int = 0, wall: int = 1000, fresh: bool = False) -> SlowStep:
    return SlowStep(fresh=fresh, index=index, start_ns=100, wall_ns=wall, events=events)


# ---------------------------------------------------------------- the cut by cause


def test_time_that_causes_share_is_counted_once_and_all_adds_up() -> None:
    cost = cold_cost(
        step(
            event("torch.compile", 200, 500),
            event("autotune", 300, 300, "tuned", 7),
            event("triton", 320, 100, "a"),
            event("triton", 350, 150, "b"),  # side by side with a
            event("library", 900, 50),
        )
    )
    parts = {part.cause: part for part in cost.parts}
    assert {cause: part.ns for cause, part in parts.items()} == {
        "triton": 180, "autotune": 120, "torch.compile": 200, "library": 50,
    }  # fmt: skip
    assert parts["triton"].work_ns == 250
    assert parts["triton"].longest == "b"
    assert parts["autotune"].count == 7
    assert cost.rest_ns == 450
    assert sum(part.ns for part in cost.parts) + cost.rest_ns == cost.wall_ns


def test_what_lies_outside_the_step_is_cut_off() -> None:
    (part,) = cold_cost(step(event("triton", 0, 150), event("triton", 1050, 400))).parts
    assert part.ns == 50 + 50


def test_only_the_steady_part_is_retuned() -> None:
    late = event("autotune", 200, 5)
    steps = (step(late), step(late, index=5), step(late, index=9), step(late, index=7, fresh=True))
    assert [index for index, _ in retuned(steps, 5)] == [5, 9]
    assert retuned(steps, None) == ()


def test_events_find_their_step_and_the_first_step_is_always_kept() -> None:
    def sample(index: int, start: int, repeat: str = "unprofiled") -> Sample:
        return Sample(cell="c", repeat=repeat, round=0, index=index, t_ns=start, wall_ns=100)

    samples = [sample(0, 0), sample(1, 200), sample(2, 400), sample(0, 600, "alloc")]
    found = slow_steps(samples, [event("triton", 420, 10), event("triton", 620, 10), event("triton", 150, 20)])
    assert [(one.index, len(one.events)) for one in found] == [(0, 0), (2, 1)]


# ---------------------------------------------------------------- drift


def test_a_series_without_a_trend_does_not_drift_however_noisy() -> None:
    noisy = [round(50 * MS * (1 + 0.2 * ((i * 7919) % 13 - 6) / 6)) for i in range(200)]
    found = drift_of(noisy)
    assert found is not None
    assert not found.drifts
    assert drift_of(noisy[: DRIFT_SAMPLES_MIN - 1]) is None
    assert drift_of([0] * 60) is None


def test_a_trend_is_found_in_a_long_series() -> None:
    found = drift_of([round(50 * MS * (1 + 0.5 * i / 4999)) for i in range(5000)])
    assert found is not None
    assert found.drifts
    assert found.share == pytest.approx(0.4, rel=0.01)  # of the median, which is a quarter above the first


# ---------------------------------------------------------------- the real hooks


def kda_kernel() -> None:
    """What a tuner finds under its kernel."""


class Kernel:
    """What an Autotuner needs of a kernel."""

    arg_names = ("x",)

    def __init__(self) -> None:
        self.runs = 0
        self.fn = kda_kernel

    def run(self, *args: object, **kwargs: object) -> None:
        self.runs += 1


def tuner(kernel: Kernel) -> Any:
    configs = [Config({"BLOCK": size}) for size in (1, 2, 4)]
    return Autotuner(
        kernel, ["x"], configs, ["x"], None, None, do_bench=lambda call, quantiles: (call(), [1.0, 1.0, 1.0])[1]
    )


def test_a_tuning_is_seen_once_a_key_with_its_configurations() -> None:
    watch, kernel = CompileWatch(MonotonicClock()), Kernel()
    tuned = tuner(kernel)
    before = Autotuner.run, Autotuner._bench
    with watch.watching():
        for x in (1, 1, 2, 1):
            tuned.run(x)
    assert (Autotuner.run, Autotuner._bench) == before
    assert [(one.cause, one.name, one.count) for one in watch.events] == [("autotune", "kda_kernel", 3)] * 2
    tuned.run(3)
    assert len(watch.events) == 2


def test_triton_s_listener_is_chained_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    mine = lambda **seen: told.append(seen["metadata"]["name"])  # noqa: E731
    monkeypatch.setattr(knobs.compilation, "listener", mine)
    watch = CompileWatch(FakeClock(5 * MS))
    times = SimpleNamespace(total=2000)
    with watch.watching():
        listener: Any = knobs.compilation.listener
        for hit in (False, True):
            listener(src=None, metadata={"name": "kernel"}, metadata_group={}, times=times, cache_hit=hit)
    assert knobs.compilation.listener is mine
    assert told == ["kernel", "kernel"]
    assert watch.events == [event("triton", 3 * MS, 2 * MS, "kernel"), event("triton-cached", 3 * MS, 2 * MS, "kernel")]


def test_torch_compile_is_seen_at_its_first_call_and_for_a_new_shape_only() -> None:
    compiled = torch.compile(lambda x: x * 2 + 1, backend="eager", dynamic=False)
    watch = CompileWatch(MonotonicClock())
    counts = []
    registered = len(callback_handler.start_callbacks)
    with watch.watching():
        for size in (3, 3, 5, 3):
            compiled(torch.ones(size))
            counts.append(len(watch.events))
    assert counts == [1, 1, 2, 2]
    assert {one.cause for one in watch.events} == {"torch.compile"}
    assert all(one.ns > 0 for one in watch.events)
    assert len(callback_handler.start_callbacks) == registered


def test_tunings_in_threads_do_not_mix() -> None:
    watch = CompileWatch(MonotonicClock())
    with watch.watching():
        threads = [threading.Thread(target=tuner(Kernel()).run, args=(1,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [one.count for one in watch.events] == [3] * 8


def test_a_cold_step_of_the_child_comes_with_its_causes() -> None:
    key = CellKey("step", "tensor", "plain", "eager", "step", make_shape("step", (2, 20, 2)), "float32")
    task = StepTask(spec=StepSpec(key=key, device="cpu", seed=0, size=HOST_MODEL), mode="eager")
    child = ChildSpec(task="cold", cases=(), effort=STEP_EFFORT, out="", steps=(task,))
    ((cell,),) = work_through(child)
    assert cell.error is None
    (first,) = cell.slow_steps
    assert first.fresh
    assert first.wall_ns == cell.samples[0].wall_ns
    assert first.driver_allocs is None  # the CPU's allocator counts nothing

"""A step's memory: a leak made for it, blocks that no request fits, a pool that only fills; call sites; the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from kdaprof.analysis.step.allocator import fragmentation, growth_of, pools_of
from kdaprof.instruments import memory_history
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.device import CpuDevice
from kdaprof.instruments.fakes.clock import FakeClock
from kdaprof.instruments.fakes.memory import FakePool
from kdaprof.instruments.memory_history import NO_PYTHON, place_of, pool_of, read, sites_of
from kdaprof.probe.bench import Bench
from kdaprof.probe.benches import make_bench
from kdaprof.probe.series import Series
from kdaprof.probe.step.memory import PAIRS, STEPS, history_of, step_memory
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.memory import StepMemory

MIB = 1 << 20
KEY = CellKey("step", "fused", "plain", "eager", "step", make_shape("step", (8, 512, 4)), "float32")


class Step:
    """A step that allocates from a fake pool; `body(pool, index)` is one."""

    def __init__(self, body: Callable[[FakePool, int], None], pool: FakePool) -> None:
        self._body, self._pool, self.steps = body, pool, 0

    def prepare(self, index: int) -> None:
        pass

    def run(self) -> None:
        self._body(self._pool, self.steps)
        self.steps += 1


def recorded(body: Callable[[FakePool, int], None]) -> StepMemory:
    pool = FakePool()
    bench: Bench = replace(make_bench("cpu", util=False), allocator=pool, clock=FakeClock(tick_ns=1000))
    memory = step_memory(Series(KEY, Step(body, pool)), bench, pool)
    assert memory is not None
    assert pool.recordings == [True]
    return memory


def steady(pool: FakePool, step: int) -> None:
    for name in [pool.alloc(MIB), pool.alloc(4 * MIB, "model.py:2 in loss")]:
        pool.release(name)


def leaking(pool: FakePool, step: int) -> None:
    steady(pool, step)
    pool.alloc(3 * MIB)  # kept: a list of losses with their graphs


def growing(pool: FakePool, step: int) -> None:
    pool.release(pool.alloc(MIB * 3**step))  # each request is larger than every free block


def test_a_leak_is_seen_with_its_bytes_a_step() -> None:
    growth = growth_of(recorded(leaking))
    assert growth is not None
    assert growth.grows
    assert growth.held
    # The first step's blocks are there to be taken by later leaks once; what is left grows by the leak.
    assert growth.bytes_a_step == pytest.approx(3 * MIB, rel=0.35)


def test_a_leak_is_seen_in_a_pool_that_others_have_filled() -> None:
    pool = FakePool()
    pool.release(pool.alloc(1 << 40))
    bench = replace(make_bench("cpu", util=False), allocator=pool, clock=FakeClock(tick_ns=1000))
    memory = step_memory(Series(KEY, Step(leaking, pool)), bench, pool)
    assert memory is not None
    growth = growth_of(memory)
    assert growth is not None
    assert growth.grows
    assert memory.reserved_bytes[-1] < 1 << 40


def test_blocks_that_no_request_fits_are_told_from_a_leak() -> None:
    growth = growth_of(recorded(growing))
    assert growth is not None
    assert growth.grows
    assert not growth.held


def test_a_pool_that_is_reused_does_not_grow() -> None:
    memory = recorded(steady)
    growth = growth_of(memory)
    assert growth is not None
    assert not growth.grows
    assert growth.total_bytes == 0
    assert memory.allocs == (2,) * STEPS
    assert memory.peak_bytes == 5 * MIB
    assert [(site.where, site.count) for site in memory.sites] == [
        ("model.py:1 in forward", STEPS), ("model.py:2 in loss", STEPS),
    ]  # fmt: skip
    assert fragmentation(memory) == pytest.approx(1 / 5)


def test_two_steps_say_nothing_of_growth() -> None:
    memory = replace(recorded(leaking), reserved_bytes=(1, 2))
    assert growth_of(memory) is None


def test_the_history_is_off_again_when_a_step_fails() -> None:
    pool = FakePool()
    bench = replace(make_bench("cpu", util=False), allocator=pool, clock=MonotonicClock())

    def failing(pool: FakePool, step: int) -> None:
        if pool.recordings:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        step_memory(Series(KEY, Step(failing, pool)), bench, pool)
    assert pool.recordings == [True]


def test_two_pools_are_apart_only_when_no_sample_overlaps() -> None:
    memory = recorded(steady)
    assert len(memory.warm_wall_ns) == len(memory.emptied_wall_ns) == PAIRS
    one = pools_of(replace(memory, warm_wall_ns=(10, 11, 12), emptied_wall_ns=(13, 14, 15)))
    other = pools_of(replace(memory, warm_wall_ns=(10, 11, 13), emptied_wall_ns=(13, 14, 15)))
    assert one is not None
    assert other is not None
    assert (one.warm_ns, one.emptied_ns, one.apart, other.apart) == (11, 14, True, False)
    assert pools_of(replace(memory, warm_wall_ns=())) is None


def test_a_snapshot_as_torch_gives_it() -> None:
    inner = {"filename": f"{torch.__path__[0]}/nn/functional.py", "line": 3, "name": "linear"}
    outer = {"filename": "/home/me/project/model.py", "line": 12, "name": "forward"}
    native = {"filename": "??", "line": 0, "name": "c10::alloc"}
    event = {"action": "alloc", "addr": 1, "size": 512, "stream": 0, "time_us": 5, "frames": [native, inner, outer]}
    free = event | {"action": "free_completed"}
    raw = {
        "segments": [
            {"device": 0, "total_size": 4 * MIB, "segment_type": "large", "blocks": [
                {"size": MIB, "state": "active_allocated", "address": 1},
                {"size": 2 * MIB, "state": "inactive"},
                {"size": MIB, "state": "inactive"},
            ]},
            {"device": 1, "total_size": MIB, "blocks": [{"size": MIB, "state": "inactive"}]},
        ],
        "device_traces": [[event, free, event, event | {"frames": [native]}]],
        "allocator_settings": {},
    }  # fmt: skip
    taken = read(raw)
    pool = pool_of(taken, 0)
    assert (pool.reserved_bytes, pool.free_bytes, pool.largest_free_bytes, pool.segments) == (
        4 * MIB,
        3 * MIB,
        2 * MIB,
        1,
    )
    (site,) = sites_of(taken.device_traces[0], 10)
    assert (site.where, site.size_bytes, site.count) == ("project/model.py:12 in forward", 512, 2)
    assert place_of(taken.device_traces[0][3].frames) == NO_PYTHON


def test_the_cpu_keeps_no_history() -> None:
    assert history_of(CpuDevice()) is None
    assert memory_history.MAX_ENTRIES > 0

"""The memory history on a card: a leak made for it is found with its call site, and a step without one is not."""

from __future__ import annotations

import pytest
import torch

from kdaprof.analysis.step.allocator import growth_of, pools_of
from kdaprof.probe.benches import make_bench
from kdaprof.probe.series import Series
from kdaprof.probe.step.memory import history_of, step_memory
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.memory import StepMemory

pytestmark = pytest.mark.gpu
BYTES = 32 << 20


class Step:
    """Allocates 64 MiB in two pieces; with `leak`, keeps one of them."""

    def __init__(self, leak: bool) -> None:
        self._leak = leak
        self._kept: list[torch.Tensor] = []

    def prepare(self, index: int) -> None:
        pass

    def run(self) -> None:
        made = torch.empty(BYTES, dtype=torch.uint8, device="cuda")
        torch.empty(BYTES, dtype=torch.uint8, device="cuda")
        if self._leak:
            self._kept.append(made)


def recorded(leak: bool) -> StepMemory:
    bench = make_bench("cuda:0", util=False)
    history = history_of(bench.device)
    assert history is not None
    key = CellKey("step", "tensor", "plain", "eager", "step", make_shape("step", (1, 1, 1)), "float32")
    case = Step(leak)
    case.run()
    memory = step_memory(Series(key, case), bench, history)
    assert memory is not None
    return memory


def test_a_leak_is_found_with_its_size_and_place() -> None:
    memory = recorded(leak=True)
    growth = growth_of(memory)
    assert growth is not None
    assert growth.grows
    assert growth.held
    assert growth.bytes_a_step == pytest.approx(BYTES, rel=0.5)
    assert any(site.size_bytes == BYTES and "test_step_memory_gpu.py" in site.where for site in memory.sites)


def test_a_step_that_frees_what_it_takes_does_not_grow() -> None:
    memory = recorded(leak=False)
    growth = growth_of(memory)
    assert growth is not None
    assert not growth.grows
    assert memory.allocs == (2,) * len(memory.allocs)
    pools = pools_of(memory)
    assert pools is not None
    assert pools.emptied_ns > pools.warm_ns


def test_the_history_is_off_afterwards() -> None:
    recorded(leak=False)
    assert not torch._C._cuda_isHistoryEnabled()

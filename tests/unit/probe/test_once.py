"""One call a phase in a range of its name, warm calls outside: what Nsight Compute is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdaprof.errors import UsageError
from kdaprof.instruments.device import CpuDevice
from kdaprof.instruments.fakes import FakeRanges
from kdaprof.kda import counters, reset_counters
from kdaprof.probe.once import WARM_CALLS, call_once, main
from kdaprof.runs.cells import CellKey, make_shape

SHAPE = make_shape("kda", (1, 32, 2, 16, 16, 16))


def key(phase: str) -> CellKey:
    return CellKey("kda", "tensor", "plain", "eager", phase, SHAPE, "float32")


def test_each_phase_is_called_once_inside_its_range_and_warmed_outside() -> None:
    ranges = FakeRanges()
    reset_counters()
    call_once([key("fwd"), key("bwd"), key("fwdbwd")], CpuDevice(), ranges)
    assert ranges.started == [("fwd", "phase", None), ("bwd", "phase", None), ("fwdbwd", "phase", None)]
    assert ranges.open == set()
    assert f"tensor={3 * (WARM_CALLS + 1)}/{2 * (WARM_CALLS + 1)}" in str(counters())


def test_the_range_is_ended_when_the_call_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = FakeRanges()
    calls = 0

    def fail_in_the_range(self: CpuDevice) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("the device failed")

    monkeypatch.setattr(CpuDevice, "synchronize", fail_in_the_range)
    with pytest.raises(RuntimeError, match="the device failed"):
        call_once([key("fwd")], CpuDevice(), ranges)
    assert [name for name, *_ in ranges.started] == ["fwd"]
    assert ranges.open == set()


def test_the_module_s_own_command_line(tmp_path: Path) -> None:
    main(["tensor", "--phases", "fwd", "--shape", "1,16,1,16,16", "--device", "cpu"])
    with pytest.raises(UsageError, match="--shape"):
        main(["tensor", "--shape", "1,16", "--device", "cpu"])

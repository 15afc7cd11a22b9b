"""Ranges without a tool, and the ways to have none; what a tool sees is in `test_nvtx_injection`."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.fakes import FakeClock, FakeRanges
from kdaprof.instruments.nvtx import ModuleRanges, NoRanges, NvtxRanges, in_range, open_ranges, range_cost_ns


def test_without_a_tool_the_real_package_says_that_nobody_listens() -> None:
    ranges = open_ranges({})
    assert isinstance(ranges, NvtxRanges)
    if os.environ.get("NVTX_INJECTION64_PATH") is None:
        assert "no tool" in (ranges.missing or "")
    with in_range(ranges, "x", "phase", 3):
        pass
    assert 0 < range_cost_ns(ranges, MonotonicClock(), 100) < 100_000


def test_switched_off() -> None:
    ranges = open_ranges({"KDAPROF_NVTX": "0"})
    assert isinstance(ranges, NoRanges)
    assert "KDAPROF_NVTX=0" in (ranges.missing or "")
    ranges.end(ranges.start("x", "run"))


def test_package_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    assert "pip install" in (open_ranges({}).missing or "")


def test_a_range_is_ended_when_its_block_raises() -> None:
    ranges = FakeRanges()
    with pytest.raises(ZeroDivisionError), in_range(ranges, "x", "stage"):
        _ = 1 / 0
    assert ranges.started == [("x", "stage", None)]
    assert ranges.open == set()


def test_cost_is_the_mean_over_many() -> None:
    clock = FakeClock()

    class Slow(FakeRanges):
        def start(self, name: str, category: str, payload: int | float | None = None) -> int:
            clock.advance(400)
            return super().start(name, category, payload)

    assert range_cost_ns(Slow(), clock, 10) == 400


class Nvtx0211:
    """The module nvtx as version 0.2.11 has it: its domains begin no ranges, and ids are objects."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def get_domain(self, name: str) -> Any:
        return SimpleNamespace(get_event_attributes=None)

    def start_range(self, message: str, color: str, domain: str, category: str, payload: float | None) -> Any:
        self.calls.append(("start", message, domain, category, payload))
        return SimpleNamespace(message=message)

    def end_range(self, range_id: Any) -> None:
        self.calls.append(("end", range_id.message))


def test_the_oldest_version_that_we_take_has_ranges_on_the_module_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    old = Nvtx0211()
    monkeypatch.setitem(sys.modules, "nvtx", old)
    ranges = open_ranges({"NVTX_INJECTION64_PATH": "/opt/nsight/libToolsInjection64.so"})
    assert isinstance(ranges, ModuleRanges)
    assert ranges.missing is None
    outer = ranges.start("cell", "cell")
    with in_range(ranges, "fwd", "phase", 3):
        pass
    ranges.end(outer)
    assert old.calls == [
        ("start", "cell", "kdaprof", "cell", None),
        ("start", "fwd", "kdaprof", "phase", 3),
        ("end", "fwd"),
        ("end", "cell"),
    ]
    assert "no tool" in (open_ranges({}).missing or "")

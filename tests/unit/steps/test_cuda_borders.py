"""CUDA marks without a card: torch's events and streams replaced, the pool and the stream's cache real."""

from __future__ import annotations

import contextlib

import pytest
import torch

from kdaprof.instruments.steps import cuda_borders
from kdaprof.instruments.steps.cuda_borders import CudaBorders


class Driver:
    """What torch would ask of the driver."""

    def __init__(self) -> None:
        self.stream, self.capturing, self.made, self.looked_up, self.waited = 1, False, 0, 0, 0
        self.recorded: list[tuple[Event, object]] = []


class Event:
    driver: Driver

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.driver.made += 1
        self.at = 0.0

    def record(self, stream: object = None) -> None:
        self.driver.recorded.append((self, stream))
        self.at = float(len(self.driver.recorded))

    def query(self) -> bool:
        return self.at < 100

    def elapsed_time(self, other: Event) -> float:
        if other.at >= 100:
            raise RuntimeError("device not ready")
        return other.at - self.at


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    one = Driver()
    monkeypatch.setattr(Event, "driver", one, raising=False)

    def current_stream(index: int) -> str:
        assert index == 2
        one.looked_up += 1
        return f"stream {one.stream}"

    def synchronize(index: int) -> None:
        one.waited += 1

    monkeypatch.setattr(cuda_borders, "_Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: one.capturing, raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentStream", lambda index: (one.stream, index, 1), raising=False)
    return one


def test_marks_come_from_the_pool_and_go_back(driver: Driver) -> None:
    borders = CudaBorders(2, pool=3)
    assert driver.made == len(driver.recorded) == 3  # made and recorded once, before the loop
    marks = [borders.mark() for _ in range(3)]
    assert driver.made == 3
    extra = borders.mark()
    assert driver.made == 4
    assert len({id(mark) for mark in (*marks, extra)}) == 4
    borders.free(extra)
    assert borders.mark() is extra


def test_the_stream_is_looked_up_when_it_changes(driver: Driver) -> None:
    borders = CudaBorders(2, pool=8)
    for stream in (1, 1, 1, 5, 5, 1):
        driver.stream = stream
        borders.mark()
    assert driver.looked_up == 3
    assert [stream for _, stream in driver.recorded[8:]] == ["stream 1"] * 3 + ["stream 5"] * 2 + ["stream 1"]


def test_times_and_what_cannot_be_told(driver: Driver) -> None:
    borders = CudaBorders(2, pool=4)
    first, second = borders.mark(), borders.mark()
    assert first is not None
    assert second is not None
    assert borders.between_ns(first, second) == 1_000_000
    assert borders.reached(second)
    assert isinstance(second, Event)
    second.at = 100.0
    assert not borders.reached(second)
    assert borders.between_ns(first, second) is None
    driver.capturing = True
    assert borders.mark() is None
    borders.wait()
    assert driver.waited == 1

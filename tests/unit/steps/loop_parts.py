"""Recorders in fake time: a host, a device with one queue, and a loop that issues work."""

from __future__ import annotations

from dataclasses import dataclass, field

from kdaprof.instruments.allocator import Allocator, NoAllocator
from kdaprof.instruments.fakes import FakeClock, FakeDevice, FakeRanges
from kdaprof.instruments.fakes.borders import FakeBorders
from kdaprof.instruments.steps import StepRecorder
from kdaprof.instruments.steps.borders import Borders, NoBorders
from kdaprof.instruments.steps.recorder import Windows
from kdaprof.instruments.steps.spans import StepSpans

MS = 1_000_000


@dataclass
class Loop:
    """A recorder on a fake GPU, and all the steps that it handed out."""

    on_gpu: bool = True
    mark_ns: int = 0
    allocator: Allocator = field(default_factory=lambda: NoAllocator("fake"))
    windows: Windows | None = None

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.device = FakeDevice(self.clock)
        self.marks = FakeBorders(self.device, cost_ns=self.mark_ns)
        self.ranges = FakeRanges()
        self.steps: list[StepSpans] = []
        borders: Borders = self.marks if self.on_gpu else NoBorders("no device")
        self.recorder = StepRecorder(
            clock=self.clock,
            borders=borders,
            ranges=self.ranges,
            allocator=self.allocator,
            on_step=self.steps.append,
            windows=self.windows,
            allocator_every=2,
        )

    def work(self, name: str, host_ns: int, device_ns: int) -> None:
        """One phase that issues one kernel."""
        with self.recorder.phase(name):
            self.device.launch(host_ns, device_ns)

    def train(self, steps: int, host_ns: int = 1 * MS, device_ns: int = 3 * MS) -> None:
        """A loop whose device is slower than its host."""
        for _ in range(steps):
            with self.recorder.step(tokens=100):
                self.work("fwd", host_ns, device_ns)
                self.work("bwd", host_ns, 2 * device_ns)
                self.clock.advance(host_ns)  # what the host does between phases
                self.work("opt", host_ns, device_ns)

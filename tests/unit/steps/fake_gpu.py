"""A whole fake GPU machine: a device that remembers what was launched, and a profiler that writes it as a trace."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from kdaprof.instruments.device import Device
from kdaprof.instruments.fakes import FakeClock, FakeDevice
from kdaprof.instruments.fakes.borders import FakeBorders
from kdaprof.instruments.nvtx import NoRanges
from kdaprof.instruments.steps.window import Kind, Profiler
from kdaprof.integrations.steps.lab import LoopLab, open_loop_lab
from kdaprof.runs.conditions import ConditionsSnapshot


@dataclass(frozen=True)
class Launch:
    call: tuple[int, int]
    kernel: tuple[int, int]


class RecordingGpu(FakeDevice):
    """Remembers every launch. `slow_ns` is added to each launch call, as a profiler does that never lets go."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.launches: list[Launch] = []
        self.slow_ns = 0
        self.kernel = "a_kernel"

    def launch(self, host_ns: int, device_ns: int) -> None:
        start = self.clock.time_ns
        super().launch(host_ns + self.slow_ns, device_ns)
        call = (start, self.clock.time_ns)
        self.launches.append(Launch(call, (self.free_at_ns - device_ns, self.free_at_ns)))


class FakeProfiler:
    """Writes what was launched between start and stop; `fails` makes one of its methods raise."""

    def __init__(self, gpu: RecordingGpu, kind: str, fails: str = "", *, stays: int = 0) -> None:
        self.gpu, self.kind, self.fails, self.stays = gpu, kind, fails, stays
        self.first = self.last = 0

    def start(self) -> None:
        self._may_fail("start")
        self.first = len(self.gpu.launches)

    def stop(self) -> None:
        self._may_fail("stop")
        self.last = len(self.gpu.launches)
        self.gpu.slow_ns = self.stays

    def export(self, path: Path) -> None:
        self._may_fail("export")
        events: list[str] = []
        offset = self.gpu.clock.unix_offset_ns
        for number, one in enumerate(self.gpu.launches[self.first : self.last], 1):
            for cat, name, borders, where in (
                ("cuda_runtime", "cudaLaunchKernel", one.call, {"pid": 1, "tid": 1}),
                ("kernel", self.gpu.kernel, one.kernel, {"pid": 0, "tid": 7}),
            ):
                start, length = borders[0] + offset, borders[1] - borders[0]
                head = json.dumps({"ph": "X", "cat": cat, "name": name, **where})[:-1]
                times = f'"ts": {start // 1000}.{start % 1000:03d}, "dur": {length // 1000}.{length % 1000:03d}'
                args = {"correlation": number, "device": 0, "stream": 7} if cat == "kernel" else {"correlation": number}
                events.append(f'{head}, {times}, "args": {json.dumps(args)}}}')
        path.write_text(
            '{"schemaVersion": 1, "baseTimeNanoseconds": 0, "traceEvents": [\n' + ",\n".join(events) + "\n]}"
        )

    def _may_fail(self, where: str) -> None:
        if self.fails == where:
            raise RuntimeError(f"cannot {where}")


def fake_lab(fails: str = "", *, stays: int = 0) -> tuple[LoopLab, RecordingGpu, list[str]]:
    """The lab, its GPU, and the kinds of the windows that were begun."""
    clock = FakeClock(tick_ns=10)
    gpu = RecordingGpu(clock)
    kinds: list[str] = []

    def make(kind: Kind, device: Device) -> Profiler:
        kinds.append(kind)
        return FakeProfiler(gpu, kind, fails, stays=stays)

    real = open_loop_lab("cpu")

    def quiet(_: bool) -> ConditionsSnapshot:
        """A machine on which nothing else runs, whatever runs on this one."""
        now = real.snapshot(False)
        return replace(now, host=replace(now.host, load1=0.1, steal=0.0))

    lab = replace(
        real,
        device=gpu,
        clock=clock,
        borders=FakeBorders(gpu, cost_ns=8_500),
        ranges=NoRanges("fake"),
        snapshot=quiet,
        make_profiler=make,
        clock_resolution_ns=10,
    )
    return lab, gpu, kinds

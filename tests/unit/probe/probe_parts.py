"""A probe's surroundings on paper: a bench in fake time, cases that only pass it, a lab whose children are scripted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kdaprof.instruments.allocator import AllocatorCounters, NoAllocator
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.device import CpuDevice
from kdaprof.instruments.fakes import FakeClock, FakeDevice, FakeRanges, no_sensor
from kdaprof.probe.bench import Bench
from kdaprof.probe.child import ChildResult, ChildSpec
from kdaprof.probe.lab import Lab
from kdaprof.probe.plan import Effort, Plan, Request
from kdaprof.probe.series import Series
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.conditions import ConditionsSnapshot, HostConditions
from kdaprof.runs.environment import Environment, HostHardware, Secrets, Variable, Version
from kdaprof.runs.util import UtilReading
from kdaprof.workloads.op import CaseSpec

TINY = (1, 20, 1, 16, 16)
QUICK = Effort(rounds=2, rounds_most=1, samples=2, warmup=1, allocator=1, events=1, util_seconds=0, cold_runs=3)


def request(**changes: Any) -> Request:
    """What `kdaprof probe` asks for without a flag."""
    values: dict[str, Any] = {
        "paths": "fused,tensor",
        "contexts": "plain",
        "modes": "eager,graph",
        "phases": "fwd,bwd,fwdbwd",
        "shape": None,
        "chunk": 16,
        "dtype": "float32",
        "device": "auto",
        "cache": "rotate",
        "cold": False,
        "seed": 0,
        "effort": Effort(),
        "out": None,
        "force": False,
        "anonymous": False,
        "command": ("kdaprof", "probe"),
    }
    return Request(**(values | changes))


def tiny_plan(out: Path, device: str = "cpu", **changes: Any) -> Plan:
    """A plan that the CPU gets through in a fraction of a second. Device `cpu:0` is the CPU taken for a GPU."""
    values: dict[str, Any] = {
        "paths": "tensor,reference",
        "modes": "eager",
        "phases": "fwd",
        "shape": ",".join(map(str, TINY)),
        "effort": QUICK,
        "out": out,
    }
    return request(**(values | changes)).plan(device)


def key(path: str = "tensor", phase: str = "fwd", mode: str = "eager", context: str = "plain") -> CellKey:
    return CellKey("kda", path, context, mode, phase, make_shape("kda", (*TINY, 16)), "float32")


def spec(path: str = "tensor", phase: str = "fwd", mode: str = "eager", context: str = "plain") -> CaseSpec:
    return CaseSpec(key=key(path, phase, mode, context), device="cpu", seed=0, input_sets=1)


# ---------------------------------------------------------------- in fake time


class FakeAllocator:
    """Every call of a case asks for two blocks of 1 KiB; reserved memory is what the test says."""

    missing: str | None = None

    def __init__(self) -> None:
        self.allocs = 0
        self.reserved_bytes = 1 << 20
        self.peak_resets = 0

    def read(self) -> AllocatorCounters | None:
        return AllocatorCounters(
            allocs=self.allocs,
            alloc_bytes=512 * self.allocs,
            peak_bytes=1000 + 512 * self.allocs,
            current_bytes=1000,
            reserved_bytes=self.reserved_bytes,
        )

    def reset_peak(self) -> None:
        self.peak_resets += 1


@dataclass
class Scene:
    """A GPU in fake time, and everything that watches it."""

    clock: FakeClock = field(default_factory=FakeClock)
    ranges: FakeRanges = field(default_factory=FakeRanges)
    allocator: Any = field(default_factory=FakeAllocator)
    kind: Any = "cuda"
    log: list[str] = field(default_factory=list)
    """Names of cases in the order of their calls."""
    sample_while: Callable[[Callable[[], None]], tuple[UtilReading, ...]] | None = None

    def __post_init__(self) -> None:
        self.device = FakeDevice(self.clock, kind=self.kind)

    @property
    def bench(self) -> Bench:
        return Bench(
            device=self.device,
            clock=self.clock,
            allocator=self.allocator,
            ranges=self.ranges,
            sensor=no_sensor(),
            sm_clock=lambda: 1_980_000_000,
            clock_resolution_ns=1,
            sample_while=self.sample_while,
        )

    def series(self, path: str = "tensor", phase: str = "fwd", mode: str = "eager", **case: Any) -> Series:
        return Series(key(path, phase, mode), PaperCase(self, path, **case))


class PaperCase:
    """Costs the host `host_ns` and the device `device_ns` a call; `prepare` costs the device ten times as much.

    `durations` are device times of successive calls, the last for ever after; `fail_at` is the call that raises.
    """

    def __init__(
        self,
        scene: Scene,
        name: str,
        *,
        host_ns: int = 1_000,
        device_ns: int = 5_000,
        durations: Sequence[int] = (),
        fail_at: int | None = None,
    ) -> None:
        self.scene, self.name = scene, name
        self.host_ns, self.durations = host_ns, list(durations) or [device_ns]
        self.fail_at = fail_at
        self.calls = 0
        self.prepared: list[int] = []
        self.run: Callable[[], None] = self._run

    def prepare(self, index: int) -> None:
        self.prepared.append(index)
        self.scene.device.launch(self.host_ns, 50_000)

    def _run(self) -> None:
        if self.calls == self.fail_at:
            raise RuntimeError(f"{self.name} broke in call {self.calls}")
        self.scene.log.append(self.name)
        self.scene.device.launch(self.host_ns, self.durations[min(self.calls, len(self.durations) - 1)])
        if isinstance(self.scene.allocator, FakeAllocator):
            self.scene.allocator.allocs += 2
        self.calls += 1


# ---------------------------------------------------------------- a lab for whole sessions on the CPU

HOST = HostConditions(0.1, 2, 2, 0.0, None, 1 << 33, None)
SECRETS = Secrets(cwd="/srv/checkouts/kda", home="/home/ada", hostname="turing7", user="ada")


def environment() -> Environment:
    """One that gives its user away in every field that could."""
    return Environment(
        versions=(Version("torch", "2.13.0", None),),
        variables=(Variable("TRITON_CACHE_DIR", "/home/ada/.triton"), Variable("CUDA_CACHE_PATH", "/scratch/ada/cuda")),
        host=HostHardware("turing7", "a CPU", 2, "Linux", "x86_64", 1 << 34),
        gpu=None,
        gpu_missing="the run used the CPU",
        torch=None,
        torch_missing="not looked at",
        argv=("kdaprof", "probe", "--out", "/srv/checkouts/kda/runs/one"),
        cwd="/srv/checkouts/kda",
        git_commit=None,
        git_dirty=None,
        git_missing="none",
    )


@dataclass
class PaperProgress:
    """Keeps what it is told; `interrupt_at` is the text at whose sight Ctrl-C is pressed."""

    interrupt_at: str | None = None
    told: list[str] = field(default_factory=list)
    total: int | None = None
    closed: int = 0

    def start(self, total: int) -> None:
        self.total = total

    def advance(self, text: str) -> None:
        self.told.append(text)
        if self.interrupt_at is not None and self.interrupt_at in text:
            raise KeyboardInterrupt

    def note(self, text: str) -> None:
        self.told.append(text)

    def close(self) -> None:
        self.closed += 1


@dataclass
class PaperSpawn:
    """Children that answer as the test says, or do not answer at all."""

    answer: Callable[[ChildSpec], ChildResult] = lambda _spec: ChildResult(failure="no child in this test")
    asked: list[tuple[ChildSpec, dict[str, str], float]] = field(default_factory=list)

    def __call__(self, spec: ChildSpec, *, env: Mapping[str, str], timeout_s: float) -> ChildResult:
        self.asked.append((spec, dict(env), timeout_s))
        return self.answer(spec)


def cpu_bench() -> Bench:
    clock = MonotonicClock()
    return Bench(
        device=CpuDevice(),
        clock=clock,
        allocator=NoAllocator("torch counts no allocations on the CPU"),
        ranges=FakeRanges(),
        sensor=no_sensor(),
        sm_clock=lambda: None,
        clock_resolution_ns=30,
        sample_while=None,
    )


@dataclass
class PaperLab:
    """The seams of a session, each to be looked at afterwards."""

    progress: PaperProgress = field(default_factory=PaperProgress)
    spawn: PaperSpawn = field(default_factory=PaperSpawn)
    bench: Bench = field(default_factory=cpu_bench)
    looks: list[bool] = field(default_factory=list)

    def snapshot(self, careful: bool) -> ConditionsSnapshot:
        self.looks.append(careful)
        return ConditionsSnapshot(len(self.looks), 10**18 + len(self.looks), None, HOST, ())

    def lab(self, **changes: Any) -> Lab:
        lab = Lab(
            bench=self.bench,
            spawn=self.spawn,
            snapshot=self.snapshot,
            environment=environment,
            secrets=lambda: SECRETS,
            progress=self.progress,
        )
        return replace(lab, **changes)

"""Synthetic runs in memory, with exact answers: records, samples and timelines of a quiet H200 by default.

`scene(...)` makes one cell with samples and recordings, `raw(...)` gathers scenes to a run; the rest are its parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kdaprof.analysis.view import CellView, KernelRow, RawRun, WarmUp
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.conditions import Conditions, ConditionsSnapshot, GpuConditions, HostConditions
from kdaprof.runs.environment import Environment, GpuHardware, HostHardware, TorchSettings, Version
from kdaprof.runs.facts import EAGER_FACTS, GRAPH_FACTS, Fact, absent
from kdaprof.runs.record import (
    Capture,
    Ceiling,
    CellError,
    CellRecord,
    Check,
    DeclaredCounts,
    GateObservation,
    Observed,
    OwnCost,
    PathSignature,
    Profiled,
    RunRecord,
    TensorError,
    Work,
)
from kdaprof.runs.results import Evidence, Witness
from kdaprof.runs.samples import Sample
from kdaprof.runs.util import UtilReading
from kdaprof.timeline.columns import MISSING, Device, Kind, Source, Thread, Timeline

RUN_ID = "20261202T000000Z-scene-0000"
GPU_UUID = "GPU-00000000-0000-0000-0000-000000000001"
MS = 1_000_000
US = 1_000
SECOND = 1_000_000_000
PRODUCTION = (10, 512, 12, 64, 64, 16)

SIGNATURES = (
    PathSignature(path="fused", patterns=(r"^kdaprof_kda_",)),
    PathSignature(path="tensor", patterns=(r"trsm|triangular", r"gemm|cutlass|cublas")),
)
FUSED_KERNELS = ("kdaprof_kda_fwd_prepare", "kdaprof_kda_fwd_recur")


# ---------------------------------------------------------------- machine


def environment(*, gpu: bool = True) -> Environment:
    """An H200 box, or a laptop without a card."""
    hardware = GpuHardware(
        name="NVIDIA H200",
        uuid=GPU_UUID,
        pci_bus_id="00000000:01:00.0",
        capability="9.0",
        sm_count=132,
        l2_bytes=60 << 20,
        total_memory_bytes=141 << 30,
    )
    return Environment(
        versions=(Version("python", "3.11.7", None), Version("torch", "2.11.0", None)),
        variables=(),
        host=HostHardware(
            hostname=None,
            cpu_model="a CPU",
            cores_total=16,
            platform="Linux",
            machine="x86_64",
            mem_total_bytes=128 << 30,
        ),
        gpu=hardware if gpu else None,
        gpu_missing=None if gpu else "no CUDA device",
        torch=TorchSettings("highest", False, False, False, False, 8),
        torch_missing=None,
        argv=("kdaprof", "probe"),
        cwd=None,
        git_commit=None,
        git_dirty=None,
        git_missing="not a git checkout",
    )


def gpu_conditions(**changes: Any) -> GpuConditions:
    """A quiet card, alone with us."""
    quiet = GpuConditions(
        uuid=GPU_UUID,
        name="NVIDIA H200",
        pci_bus_id="00000000:01:00.0",
        util=0.0,
        util_before=0.0,
        busy_window_ns=SECOND,
        mem_used_bytes=1 << 30,
        mem_total_bytes=141 << 30,
        sm_clock_hz=1_980_000_000,
        sm_clock_max_hz=1_980_000_000,
        mem_clock_hz=3_201_000_000,
        power_w=120.0,
        power_limit_w=700.0,
        power_limit_default_w=700.0,
        temperature_c=35,
        temperature_slowdown_c=85,
        throttle_reasons=(),
        persistence=True,
        compute_mode="default",
        ecc=True,
        mig=False,
        foreign=(),
    )
    return replace(quiet, **changes)


def host_conditions(**changes: Any) -> HostConditions:
    """A quiet host of 16 cores."""
    quiet = HostConditions(
        load1=0.5,
        cores_available=16,
        cores_total=16,
        steal=0.0,
        governor="performance",
        mem_available_bytes=100 << 30,
        container=None,
    )
    return replace(quiet, **changes)


def snapshot(
    at_ns: int = 0, *, gpu: GpuConditions | str | None = "quiet", host: HostConditions | None = None
) -> ConditionsSnapshot:
    """Card and host at one moment; `gpu=None` is a machine without a card."""
    card = gpu_conditions() if isinstance(gpu, str) else gpu
    return ConditionsSnapshot(
        monotonic_ns=at_ns, unix_ns=at_ns, gpu=card, host=host if host is not None else host_conditions(), missing=()
    )


def conditions(*, gpu: bool = True) -> Conditions:
    """Quiet before, during and after."""
    one = snapshot() if gpu else snapshot(gpu=None)
    return Conditions(before=one, during=(one,), after=one)


CEILINGS = (
    Ceiling(name="copy", value=4.27e12, unit="B/s", provenance="measured", n=20),
    Ceiling(name="matmul_float32", value=50.2e12, unit="FLOP/s", provenance="measured", n=20),
    Ceiling(name="matmul_tf32", value=332e12, unit="FLOP/s", provenance="measured", n=20),
    Ceiling(name="matmul_tf32x3", value=332e12 / 3, unit="FLOP/s", provenance="derived"),
    Ceiling(name="matmul_bfloat16", value=653e12, unit="FLOP/s", provenance="measured", n=20),
)


# ---------------------------------------------------------------- cells


def key(
    path: str = "fused",
    phase: str = "fwd",
    mode: str = "eager",
    *,
    context: str = "plain",
    dtype: str = "float32",
    sizes: tuple[int, ...] = PRODUCTION,
) -> CellKey:
    """A KDA cell key at the production shape."""
    return CellKey(
        workload="kda", path=path, context=context, mode=mode, phase=phase, shape=make_shape("kda", sizes), dtype=dtype
    )


def good_check(l2: float = 3.1e-7, max_abs: float = 2e-6, *, against: str = "reference") -> Check:
    """Outputs that agree with the reference."""
    tensors = (TensorError(name="o", l2=l2, max_abs=max_abs, finite=True),)
    return Check(against=against, tolerance_l2=1e-5, tensors=tensors, passed=True)


def gate(path: str, calls: int = 100, *, backward: int = 0) -> GateObservation:
    """A dispatcher that took `path` on every call."""
    return GateObservation(
        calls=calls, chosen=path, forward={path: calls}, backward={path: backward} if backward else {}, refused=()
    )


def observed(path: str = "fused", phase: str = "fwd", **changes: Any) -> Observed:
    """What a good probe sees of a cell on a GPU."""
    trains = phase != "fwd"
    seen = Observed(
        device="cuda",
        trains=trains,
        cache="rotate",
        input_sets=3,
        tokens=5120,
        clock_resolution_ns=20,
        l2_bytes=60 << 20,
        declared=DeclaredCounts(launches=(2, 2), allocs=(3, 4)),
        signatures=SIGNATURES,
        gate=gate(path, backward=100 if trains else 0),
        check=good_check(),
        work=Work(flops=2_154_823_680, bytes_compulsory=78_888_960, bytes_path=220_000_000, rate="matmul_tf32x3"),
    )
    return replace(seen, **changes)


# ---------------------------------------------------------------- samples


def series(
    cell: str,
    repeat: str,
    rounds: Sequence[Sequence[int]],
    *,
    first_round: int = 0,
    start_ns: int = 0,
    hosts: Sequence[Sequence[int]] | None = None,
    spacing_ns: int = 10 * MS,
    **columns: Any,
) -> tuple[Sample, ...]:
    """Samples whose walls are `rounds[r][i]`, indexed through; `hosts` alike; further columns the same in each."""
    made: list[Sample] = []
    for number, walls in enumerate(rounds):
        for place, wall in enumerate(walls):
            index = len(made)
            made.append(
                Sample(
                    cell=cell,
                    repeat=repeat,
                    round=first_round + number,
                    index=index,
                    t_ns=start_ns + index * spacing_ns,
                    wall_ns=wall,
                    **({"host_ns": hosts[number][place]} if hosts is not None else {}),
                    **columns,
                )
            )
    return tuple(made)


def wobble(centre: int, rounds: int = 5, per_round: int = 20, *, relative: float = 0.004) -> list[list[int]]:
    """Rounds of samples around `centre`: a fixed small pattern, symmetric, so that the median is exactly `centre`."""
    half = per_round // 2
    steps = [0] * (per_round % 2) + [sign * (i + 1) for i in range(half) for sign in (1, -1)]
    # Each round is shifted by its own amount, symmetric about 0 over the rounds, so that intervals are not empty.
    shifts = [r - (rounds - 1) / 2 for r in range(rounds)]
    scale = centre * relative
    return [[round(centre + scale * (s / max(1, half) + shift / rounds)) for s in steps] for shift in shifts]


# ---------------------------------------------------------------- timelines


@dataclass(frozen=True)
class Kernel:
    """One device event: launched `call_ns` after the repeat began, running from `at_ns` for `busy_ns`."""

    name: str
    call_ns: int
    at_ns: int
    busy_ns: int
    kind: Kind = Kind.KERNEL
    call_length_ns: int = 5 * US
    api: str = "cuLaunchKernelEx"
    stream: int = 7
    graph: bool = False


@dataclass(frozen=True)
class HostEvent:
    """One host event inside a repeat: an operator or a runtime call that launches nothing."""

    name: str
    at_ns: int
    length_ns: int
    kind: Kind = Kind.CPU_OP
    thread: int = 0


@dataclass
class _Rows:
    rows: list[dict[str, int]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)

    def add(self, kind: Kind, name: str, start: int, end: int, **columns: int) -> None:
        row = dict.fromkeys(("device", "stream", "thread", "correlation", "graph_node", "step", "phase"), MISSING)
        row["stack"] = MISSING
        row |= {"kind": int(kind), "name": self.names.setdefault(name, len(self.names)), "start": start, "end": end}
        self.rows.append(row | columns)


def timeline(
    kernels: Sequence[Kernel] | Sequence[Sequence[Kernel]],
    *,
    wall_ns: int,
    repeats: int = 5,
    host: Sequence[HostEvent] = (),
    spacing_ns: int = 5 * MS,
    sync_ns: int = 10 * US,
) -> Timeline:
    """A recording of `repeats` repeats of one call (or one list of kernels a repeat), borders annotated.

    Each repeat lies in an annotation `kdaprof.repeat#<i>` of `wall_ns` that ends with a synchronising call.
    """
    table = _Rows()
    correlation = 0
    for index in range(repeats):
        base = 1_000_000 + index * (wall_ns + spacing_ns)
        table.add(Kind.ANNOTATION, f"kdaprof.repeat#{index}", base, base + wall_ns, thread=0)
        mine = kernels[index] if kernels and not isinstance(kernels[0], Kernel) else kernels
        in_graph = 0
        for kernel in mine:
            assert isinstance(kernel, Kernel)
            if not (kernel.graph and in_graph):
                correlation += 1
                in_graph = correlation if kernel.graph else 0
                start = base + kernel.call_ns
                table.add(
                    Kind.DRIVER if kernel.api.startswith("cu") and not kernel.api.startswith("cuda") else Kind.RUNTIME,
                    kernel.api,
                    start,
                    start + kernel.call_length_ns,
                    thread=0,
                    correlation=correlation,
                )
            start = base + kernel.at_ns
            node = {"graph_node": 1} if kernel.graph else {}
            table.add(
                kernel.kind,
                kernel.name,
                start,
                start + kernel.busy_ns,
                device=0,
                stream=kernel.stream,
                correlation=correlation,
                **node,
            )
        for event in host:
            table.add(
                event.kind, event.name, base + event.at_ns, base + event.at_ns + event.length_ns, thread=event.thread
            )
        if sync_ns:
            end = base + wall_ns
            table.add(Kind.RUNTIME, "cudaDeviceSynchronize", end - sync_ns, end, thread=0)
    types = {"kind": np.uint8, "device": np.int16, "correlation": np.int64, "graph_node": np.int64}
    columns = {
        name: np.array([row[name] for row in table.rows], dtype=types.get(name, np.int32))
        for name in (
            "kind",
            "name",
            "device",
            "stream",
            "thread",
            "correlation",
            "graph_node",
            "step",
            "phase",
            "stack",
        )
    }
    times = {f"{end}_ns": np.array([row[end] for row in table.rows], dtype=np.int64) for end in ("start", "end")}
    return Timeline(
        **columns,
        **times,
        names=tuple(table.names),
        threads=(Thread(1, 1), Thread(1, 2)),
        source=Source(format="kineto", devices=(Device(0, "NVIDIA H200"),)),
    )


def fused_timeline(
    *, wall_ns: int = 250 * US, busy: tuple[int, int] = (70 * US, 58 * US), repeats: int = 5
) -> Timeline:
    """The two launches of a fused forward: prepare, then recur right behind it."""
    first = 60 * US
    kernels = (
        Kernel(FUSED_KERNELS[0], call_ns=40 * US, at_ns=first, busy_ns=busy[0]),
        Kernel(FUSED_KERNELS[1], call_ns=50 * US, at_ns=first + busy[0] + 1 * US, busy_ns=busy[1]),
    )
    return timeline(kernels, wall_ns=wall_ns, repeats=repeats)


# ---------------------------------------------------------------- whole scenes


@dataclass(frozen=True)
class Scene:
    """One cell with everything that was seen of it."""

    cell: CellRecord
    samples: tuple[Sample, ...] = ()
    timelines: Mapping[str, Timeline] = field(default_factory=dict)
    util: tuple[UtilReading, ...] = ()

    @property
    def id(self) -> str:
        return self.cell.id


def scene(
    path: str = "fused",
    phase: str = "fwd",
    mode: str = "eager",
    *,
    wall_ns: int = 200 * US,
    host_ns: int = 60 * US,
    profiled_wall_ns: int = 250 * US,
    timelines: Mapping[str, Timeline] | None = None,
    warm: Sequence[int] = (4_000_000, 200_000, 200_000, 200_000, 200_000),
    rounds: int = 5,
    per_round: int = 20,
    cell_key: CellKey | None = None,
    extra: Sequence[Sample] = (),
    util: Sequence[float] = (),
    **seen: Any,
) -> Scene:
    """A cell of a quiet run: warm-up, interleaved rounds, events, bursts, allocator repeats, two recordings."""
    name = cell_key or key(path, phase, mode)
    cid = name.id
    main = list(series(cid, "unprofiled", [list(warm)], first_round=-1))
    offset = len(main)
    hosts = wobble(host_ns, rounds, per_round)
    main.extend(
        replace(sample, index=sample.index + offset, reserved_bytes=512 << 20, sm_clock_hz=1_980_000_000)
        for sample in series(cid, "unprofiled", wobble(wall_ns, rounds, per_round), hosts=hosts, start_ns=SECOND)
    )
    recordings = timelines
    if recordings is None:
        one = fused_timeline(wall_ns=profiled_wall_ns)
        recordings = {"profiled-cuda": one, "profiled-full": one}
    samples = [
        *main,
        *(
            replace(s, gpu_span_ns=s.wall_ns, wall_ns=None)
            for s in series(cid, "events", wobble(wall_ns - 20 * US, rounds, 4), start_ns=2 * SECOND)
        ),
        *series(cid, "pipelined", wobble(50 * (wall_ns // 2), rounds, 1), start_ns=3 * SECOND, calls=50),
        *series(
            cid, "alloc", [[wall_ns] * 3], start_ns=4 * SECOND, allocs=3, alloc_bytes=90 << 20, peak_bytes=88 << 20
        ),
        *(s for kind in recordings for s in series(cid, kind, [[profiled_wall_ns]] * 5, start_ns=5 * SECOND)),
        *series(cid, "util", [[SECOND] * 5], start_ns=6 * SECOND, spacing_ns=SECOND, calls=5000),
        *extra,
    ]
    capture = Capture(captured=True, pool_bytes=90 << 20, nodes=2, check=good_check(0.0, 0.0, against="eager"))
    details = {
        "profiled": tuple(
            Profiled(kind=kind, timeline=f"timeline-{name.slug}-{kind}.parquet", repeats=5)  # type: ignore[arg-type]
            for kind in recordings
        ),
        **({"capture": capture} if name.mode == "graph" else {}),
        **seen,
    }
    record = CellRecord(key=name, status="ok", observed=observed(name.path, name.phase, **details))
    readings = tuple(
        UtilReading(t_ns=7 * SECOND + i * 250 * MS, uuid=GPU_UUID, field="util", value=value, stale=False, missing=None)
        for i, value in enumerate(util)
    )
    return Scene(record, tuple(samples), recordings, readings)


def failed_scene(
    path: str = "fused", phase: str = "fwd", mode: str = "eager", *, status: str = "failed", **seen: Any
) -> Scene:
    """A cell that ended in an error."""
    error = CellError(type="RuntimeError", text="CUDA error: operation not permitted when stream is capturing")
    where = observed(path, phase, **seen) if seen else None
    return Scene(CellRecord(key=key(path, phase, mode), status=status, error=error, observed=where))  # type: ignore[arg-type]


def cpu_scene(path: str = "fused", *, interpreted: bool = True, **seen: Any) -> Scene:
    """A cell on a machine without a card: walls, and nothing of a device."""
    name = key(path, sizes=(1, 40, 2, 16, 16, 16))
    samples = series(name.id, "unprofiled", wobble(80 * MS, 5, 4), hosts=wobble(79 * MS, 5, 4))
    details = {"device": "cpu", "interpreted": interpreted, "l2_bytes": None, "work": None, **seen}
    record = CellRecord(key=name, status="ok", observed=observed(path, **details))
    return Scene(record, samples)


def run_record(cells: Sequence[CellRecord], *, gpu: bool = True, **changes: Any) -> RunRecord:
    """run.json of a finished quiet run."""
    record = RunRecord(
        run=RUN_ID,
        tool="kdaprof 0.1.0",
        command=("kdaprof", "probe"),
        started_unix_ns=1_796_000_000 * SECOND,
        started_monotonic_ns=0,
        complete=True,
        environment=environment(gpu=gpu),
        conditions=conditions(gpu=gpu),
        ceilings=CEILINGS if gpu else (),
        overhead=(OwnCost(name="clock", ns=40.0, n=1000),),
        cells=tuple(cells),
        ended_unix_ns=1_796_000_600 * SECOND,
        ended_monotonic_ns=600 * SECOND,
    )
    return replace(record, **changes)


def raw(*scenes: Scene, gpu: bool = True, **changes: Any) -> RawRun:
    """A run of these scenes; `changes` go into its record."""
    return RawRun(
        record=run_record([s.cell for s in scenes], gpu=gpu, **changes),
        samples={s.id: s.samples for s in scenes},
        timelines={(s.id, kind): line for s in scenes for kind, line in s.timelines.items()},
        util=tuple(reading for s in scenes for reading in s.util),
    )


# ---------------------------------------------------------------- views, for the rules and findings


def figure(value: float, unit: str = "ns", *, half: float = 0.01, n: int = 100, **changes: Any) -> Fact:
    """A good measured figure with an interval of ± `half` (relative)."""
    made = Fact(
        value=value,
        unit=unit,  # type: ignore[arg-type]
        n=n,
        min=value * (1 - 2 * half),
        max=value * (1 + 2 * half),
        p10=value * (1 - half),
        p90=value * (1 + half),
        ci95=(value * (1 - half), value * (1 + half)),
    )
    return replace(made, **changes)


def good_facts(mode: str = "eager", **changes: Fact) -> dict[str, Fact]:
    """Every fact of the mode: the main ones with the figures of a good fused forward, the others missing."""
    units = GRAPH_FACTS if mode == "graph" else EAGER_FACTS
    facts = {name: absent(unit, "not-applicable", "not in this scene") for name, unit in units.items()}
    wall = 70 * US if mode == "graph" else 200 * US
    known = {
        "wall_ns": figure(wall),
        "host_ns": figure(60 * US),
        "gpu_span_ns": figure(180 * US),
        "gpu_busy_ns": figure(60 * US if mode == "graph" else 128 * US),
        "pipelined_ns": figure(130 * US),
        "idle_ns": figure(72 * US, half=0.05, provenance="derived"),
        "host_bound": figure(0.36, "fraction", half=0.05, provenance="derived"),
        "launches": figure(2, "1", half=0.0, n=5),
        "allocs": figure(3, "1", half=0.0, n=3),
        "reserved_growth_bytes": figure(0, "B", half=0.0, n=5),
        "inflation": figure(1.25, "1", provenance="derived"),
        "floor_ns": figure(19 * US, half=0.0, provenance="derived"),
        "error_l2": figure(3.1e-7, "fraction", half=0.0, n=1),
        "tokens_per_s": figure(2.56e7, "1", provenance="derived"),
    }
    return facts | {name: fact for name, fact in known.items() if name in units} | changes


def good_evidence(path: str = "fused") -> Evidence:
    """Three witnesses that agree."""
    names = ("gate", "kernels", "counts")
    witnesses = tuple(Witness(name=name, says=path, detail="as declared") for name in names)  # type: ignore[arg-type]
    return Evidence(verdict="confirmed", expected=path, witnesses=witnesses)


def view(one: Scene | None = None, **changes: Any) -> CellView:
    """A view of a good cell as the rules see it, with `changes` to any of its fields."""
    shown = one or scene()
    record = changes.pop("run", None) or run_record([shown.cell])
    made = CellView(
        run=record,
        cell=shown.cell,
        samples=shown.samples,
        warmup=WarmUp(steady_from=1, change_points=(1,), n=sum(s.repeat == "unprofiled" for s in shown.samples)),
        kernels=tuple(
            KernelRow(name=name, calls=1, busy_ns=ns)
            for name, ns in zip(FUSED_KERNELS, (70 * US, 58 * US), strict=True)
        ),
        facts=good_facts(shown.cell.key.mode),
        evidence=good_evidence(shown.cell.key.path),
        backward_kernels_seen=None if shown.cell.key.phase == "fwd" else True,
    )
    return replace(made, **changes)

"""Runs on paper: records and results with known figures, for tests of what is shown and printed.

The figures resemble the H200 rows of an early probe; nothing here is derived, so that a test of the report does not
depend on the derivation.
"""

from __future__ import annotations

from dataclasses import replace

from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.conditions import Conditions, ConditionsSnapshot, GpuConditions, HostConditions, MissingField
from kdaprof.runs.environment import Environment, GpuHardware, HostHardware, TorchSettings, Version
from kdaprof.runs.facts import Fact, Reason, Unit, absent, fact_id, facts_of
from kdaprof.runs.record import (
    Capture,
    Ceiling,
    CellError,
    CellRecord,
    Check,
    Observed,
    OwnCost,
    RunRecord,
    TensorError,
)
from kdaprof.runs.results import CellResult, Evidence, Finding, RunResults, Stage, Witness

RUN = "20261202T015500Z-kda-fused-1f3a"
SHAPE = make_shape("kda", (10, 512, 12, 64, 64, 16))
NO_CARD = "no CUDA device: torch.cuda.is_available() is false"


def key(path: str, phase: str = "fwd", mode: str = "eager") -> CellKey:
    return CellKey("kda", path, "plain", mode, phase, SHAPE, "float32")


def snapshot(second: int, *, gpu: bool = True, load1: float = 1.2) -> ConditionsSnapshot:
    card = GpuConditions(
        uuid="GPU-0",
        name="NVIDIA H200",
        pci_bus_id="0000:01:00.0",
        util=0.0,
        util_before=0.0,
        busy_window_ns=1_000_000_000,
        mem_used_bytes=3 << 30,
        mem_total_bytes=141 << 30,
        sm_clock_hz=1_980_000_000,
        sm_clock_max_hz=1_980_000_000,
        mem_clock_hz=3_201_000_000,
        power_w=118.4,
        power_limit_w=700.0,
        power_limit_default_w=700.0,
        temperature_c=34,
        temperature_slowdown_c=87,
        throttle_reasons=(),
        persistence=True,
        compute_mode="default",
        ecc=True,
        mig=False,
        foreign=(),
    )
    host = HostConditions(
        load1=load1,
        cores_available=16,
        cores_total=16,
        steal=0.0,
        governor=None,
        mem_available_bytes=120 << 30,
        container="docker",
    )
    missing = [MissingField("host.governor", "no cpufreq on this host")]
    if not gpu:
        missing.append(MissingField("gpu", "NVML library not found"))
    stamp = second * 1_000_000_000
    return ConditionsSnapshot(
        monotonic_ns=stamp,
        unix_ns=1_796_176_500_000_000_000 + stamp,
        gpu=card if gpu else None,
        host=host,
        missing=tuple(missing),
    )


def environment(*, gpu: bool = True, anonymous: bool = False) -> Environment:
    return Environment(
        versions=(
            Version("torch", "2.11.0+cu130", None),
            Version("triton", "3.6.0", None),
            Version("fla", None, "not installed"),
        ),
        variables=(),
        host=HostHardware(None if anonymous else "box", "AMD EPYC 9654", 16, "Linux 6.8", "x86_64", 128 << 30),
        gpu=GpuHardware("NVIDIA H200", "GPU-0", "0000:01:00.0", "9.0", 132, 50 << 20, 141 << 30) if gpu else None,
        gpu_missing=None if gpu else NO_CARD,
        torch=TorchSettings("highest", False, False, False, False, 16),
        torch_missing=None,
        argv=("kdaprof", "probe", "--paths", "fused,tensor"),
        cwd=None if anonymous else "/srv/kda",
        git_commit="0123456789abcdef",
        git_dirty=False,
        git_missing=None,
    )


def measured(value: float, unit: Unit = "ns", *, half: float = 0.01, n: int = 100) -> Fact:
    whole = unit in {"ns", "B"}
    shown = round(value) if whole else value
    return Fact(
        value=shown,
        unit=unit,
        n=n,
        min=value * 0.98,
        max=value * 1.3,
        p10=value * 0.99,
        p90=value * 1.05,
        ci95=(value * (1 - half), value * (1 + half)),
    )


def exact(value: float, unit: Unit = "1", n: int = 5) -> Fact:
    return Fact(value=value, unit=unit, n=n, min=value, max=value)


def derived(value: float, unit: Unit, *sources: str, half: float = 0.02) -> Fact:
    return Fact(
        value=value,
        unit=unit,
        n=5,
        ci95=(value * (1 - half), value * (1 + half)),
        provenance="derived",
        sources=sources,
    )


def evidence(path: str, launches: int) -> Evidence:
    seen = "kdaprof_kda_fwd_prepare" if path == "fused" else "ampere_sgemm_32x32_sliced1x4_nn"
    return Evidence(
        verdict="confirmed",
        expected=path,
        witnesses=(
            Witness(name="gate", says=path, detail="forward 100 of 100, backward 0 of 100"),
            Witness(name="kernels", says=path, detail=f"{seen} and 1 more"),
            Witness(name="counts", says=path, detail=f"{launches} launches, declared {launches}"),
        ),
    )


def eager(path: str, phase: str, times_ns: tuple[float, float, float], launches: int, allocs: int) -> CellResult:
    """`times_ns` are wall, host and busy."""
    wall, host, busy = times_ns
    cell = key(path, phase)
    source = fact_id(RUN, cell.id, "wall_ns")
    idle = wall - busy
    have: dict[str, Fact] = {
        "wall_ns": measured(wall),
        "host_ns": measured(host),
        "gpu_span_ns": measured(wall * 0.97, n=20),
        "gpu_busy_ns": measured(busy, half=0.002, n=5),
        "pipelined_ns": measured(max(busy, wall * 0.9), n=5),
        "idle_ns": derived(idle, "ns", source),
        "host_bound": derived(idle / wall, "fraction", source),
        "launches": exact(launches),
        "allocs": exact(allocs),
        "alloc_bytes": exact(210_000_000, "B"),
        "peak_bytes": exact(173_000_000, "B"),
        "reserved_growth_bytes": exact(0, "B"),
        "inflation": derived(1.32, "1", source),
        "graph_removed": derived(0.974, "fraction", source, fact_id(RUN, cell.sibling(mode="graph").id, "wall_ns")),
        "idle_dispatch_ns": derived(idle * 0.7, "ns", source),
        "idle_launch_call_ns": derived(idle * 0.2, "ns", source),
        "idle_drain_ns": derived(idle * 0.1, "ns", source),
        "floor_ns": derived(49_300, "ns", source),
        "floor_share": derived(49_300 / busy, "fraction", source),
        "util_mean": measured(busy / wall * 1.05, "fraction", n=48),
        "util_idle_share": exact(0.0, "fraction", 48),
        "error_l2": exact(1.9e-7, "fraction", 1),
        "error_max": exact(3.2e-6, "1", 1),
        "tokens_per_s": derived(5120 / (wall / 1e9), "1", source),
    }
    facts = {name: have.get(name) or _not_had(name, unit) for name, unit in facts_of("eager").items()}
    stages = (
        Stage(name="prepare", kernels=1, busy_ns=round(busy * 0.55), share=busy * 0.55 / wall),
        Stage(name="recurrence", kernels=1, busy_ns=round(busy * 0.45), share=busy * 0.45 / wall),
    )
    return CellResult(id=cell.id, facts=facts, evidence=evidence(path, launches), stages=stages)


def _not_had(name: str, unit: Unit) -> Fact:
    if name == "cold_ns":
        return absent(unit, "not-applicable", "not asked for: add --cold")
    if name.startswith(("idle_", "drained")):
        return Fact(value=0, unit=unit, n=5, ci95=(0.0, 0.0), provenance="derived")
    return absent(unit, "not-supported", "not recorded")


def graph(path: str, phase: str, wall: float, busy: float) -> CellResult:
    facts: dict[str, Fact] = {
        "wall_ns": measured(wall),
        "gpu_busy_ns": measured(busy, half=0.002, n=5),
        "pool_bytes": exact(182_000_000, "B", 1),
        "input_copy_ns": measured(61_000, n=20),
        "error_l2": exact(0.0, "fraction", 1),
    }
    return CellResult(id=key(path, phase, "graph").id, facts=facts, evidence=evidence(path, 1))


def passed(against: str, l2: float) -> Check:
    tensor = TensorError(name="o", l2=l2, max_abs=l2 * 17, finite=True)
    return Check(against=against, tolerance_l2=1e-6, tensors=(tensor,), passed=True)


def observed(mode: str) -> Observed:
    capture = Capture(captured=True, pool_bytes=182_000_000, nodes=287, check=passed("eager", 0.0))
    return Observed(
        device="cuda",
        tokens=5120,
        check=passed("reference", 1.9e-7),
        capture=capture if mode == "graph" else None,
        clock_resolution_ns=40,
    )


def record(
    cells: tuple[CellRecord, ...], *, gpu: bool = True, complete: bool = True, anonymous: bool = False
) -> RunRecord:
    return RunRecord(
        run=RUN,
        tool="kdaprof 0.1.0",
        command=("kdaprof", "probe", "--paths", "fused,tensor"),
        started_unix_ns=1_796_176_500_000_000_000,
        started_monotonic_ns=0,
        ended_unix_ns=1_796_176_590_000_000_000 if complete else None,
        ended_monotonic_ns=90_000_000_000 if complete else None,
        complete=complete,
        environment=environment(gpu=gpu, anonymous=anonymous),
        conditions=Conditions(snapshot(0, gpu=gpu), (snapshot(40, gpu=gpu, load1=2.5),), snapshot(90, gpu=gpu)),
        ceilings=(
            Ceiling(name="copy", value=4.27e12, unit="B/s", provenance="measured", n=20, detail="1 GiB, read + write"),
            Ceiling(name="matmul-float32", value=5.02e13, unit="FLOP/s", provenance="measured", n=20),
        )
        if gpu
        else (),
        overhead=(OwnCost(name="nvtx range", ns=905.0, n=1000), OwnCost(name="cuda event pair", ns=26_000.0, n=200)),
        cells=cells,
    )


def h200_run() -> tuple[RunRecord, RunResults]:
    """Two paths, three phases, both modes; two refused figures, one finding of each severity."""
    rows = (
        ("fused", "fwd", 156_000, 60_000, 128_000, 2, 7, 135_000),
        ("fused", "bwd", 410_000, 190_000, 350_000, 4, 12, 362_000),
        ("fused", "fwdbwd", 620_000, 260_000, 479_000, 6, 19, 497_000),
        ("tensor", "fwd", 7_250_000, 7_220_000, 1_170_000, 287, 282, 1_330_000),
        ("tensor", "bwd", 36_900_000, 36_800_000, 4_810_000, 1092, 642, 5_470_000),
        ("tensor", "fwdbwd", 44_300_000, 44_300_000, 5_980_000, 1379, 924, 6_800_000),
    )
    cells: list[CellRecord] = []
    results: list[CellResult] = []
    for path, phase, wall, host, busy, launches, allocs, replay in rows:
        cells.append(CellRecord(key=key(path, phase), status="ok", observed=observed("eager")))
        results.append(eager(path, phase, (wall, host, busy), launches, allocs))
        cells.append(CellRecord(key=key(path, phase, "graph"), status="ok", observed=observed("graph")))
        results.append(graph(path, phase, replay, busy))
    spread = Reason(rule="Q02", text="the interval of wall_ns is 14 % wide on each side; 10 % is the limit")
    results[0] = refused(results[0], spread, "wall_ns", "host_bound")
    findings = (
        Finding(
            id="host-bound",
            severity="warn",
            cell=results[6].id,
            text="84 % of a forward call is host dispatch: wall 7.25 ms, busy 1.17 ms, 287 launches.",
            evidence={"host_bound": 0.84, "launches": 287},
            threshold={"host_bound": 0.5},
            next="capture the step into a CUDA Graph: measured here, 7.25 → 1.33 ms; or take --path fused",
        ),
        Finding(
            id="profiler-inflation",
            severity="info",
            cell=None,
            text="The profiler makes a call 1.32 × as long.",
            next="read wall only from unprofiled repeats",
        ),
    )
    return record(tuple(cells)), RunResults(run=RUN, cells=tuple(results), findings=findings)


def refused(cell: CellResult, reason: Reason, *names: str) -> CellResult:
    return replace(cell, facts=cell.facts | {name: cell.facts[name].refuse(reason) for name in names})


def laptop_run() -> tuple[RunRecord, RunResults]:
    """No GPU: fused interpreted, tensor on the CPU; GPU figures missing, times refused by Q08; one cell failed."""
    why = Reason(rule="Q08", text="taken without a device: the time of a CPU or an interpreter, not of a GPU")
    cells, results = [], []
    for path, wall in (("fused", 812_000_000), ("tensor", 3_210_000)):
        cell = key(path)
        facts = {}
        for name, unit in facts_of("eager").items():
            if name in {"wall_ns", "host_ns"}:
                facts[name] = measured(wall).refuse(why)
            elif name == "error_l2":
                facts[name] = exact(2.1e-7, "fraction", 1)
            elif name == "error_max":
                facts[name] = exact(1.1e-6, "1", 1)
            else:
                facts[name] = absent(unit, "no-device", NO_CARD)
        seen = Observed(device="cpu", interpreted=path == "fused", tokens=5120, check=passed("reference", 2.1e-7))
        witness = Witness(name="gate", says=path, detail="1 of 1 forward")
        cells.append(CellRecord(key=cell, status="ok", observed=seen))
        results.append(
            CellResult(
                id=cell.id, facts=facts, evidence=Evidence(verdict="gate-only", expected=path, witnesses=(witness,))
            )
        )
    broken = CellRecord(
        key=key("compiled"),
        status="failed",
        error=CellError(type="InvalidCxxCompiler", text="no working C++ compiler: install g++"),
    )
    cells.append(broken)
    return record(tuple(cells), gpu=False), RunResults(run=RUN, cells=tuple(results))

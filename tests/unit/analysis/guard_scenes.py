"""For every live rule: scenes that trip it alone, and near misses that trip nothing.

`SCENES[rule]` holds pairs (trips, spares): the figure looked at, the view that must be refused by that rule alone,
and the view just on the other side of the threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import scenes
from scenes import US, figure, good_facts, view

from kdaprof.analysis.view import CellView, KernelRow, WarmUp
from kdaprof.runs.conditions import ForeignProcess
from kdaprof.runs.facts import Fact, absent
from kdaprof.runs.record import Capture, Check, GateObservation, PathSignature, Profiled, RunRecord, TensorError
from kdaprof.runs.results import Evidence, Witness
from kdaprof.runs.samples import Sample


@dataclass(frozen=True)
class RuleScene:
    """One way to earn a refusal, and its near miss."""

    what: str
    figure: str
    trips: CellView
    spares: CellView


def with_facts(mode: str = "eager", base: CellView | None = None, **facts: Fact) -> CellView:
    one = base or view(scenes.scene(mode=mode))
    return replace(one, facts={**one.facts, **facts})


def source(name: str, *, run: str = scenes.RUN_ID, mode: str = "eager") -> str:
    return f"{run}/{scenes.key(mode=mode).id}/{name}"


def in_run(**changes: Any) -> CellView:
    one = scenes.scene()
    return view(one, run=scenes.run_record([one.cell], **changes))


def in_conditions(
    *, before: Any = None, during: Any = None, after: Any = None, host: Mapping[str, Any] | None = None
) -> CellView:
    """A run whose snapshots differ from the quiet ones in fields of the card, or of the host before."""

    def shot(gpu: Mapping[str, Any] | None, host_fields: Mapping[str, Any] | None = None) -> Any:
        return scenes.snapshot(
            gpu=scenes.gpu_conditions(**(gpu or {})), host=scenes.host_conditions(**(host_fields or {}))
        )

    quiet = scenes.conditions()
    return in_run(conditions=replace(quiet, before=shot(before, host), during=(shot(during),), after=shot(after)))


def foreign(used: int | None, util: float | None = None) -> dict[str, Any]:
    return {"foreign": (ForeignProcess(pid=4242, name="train.py", used_bytes=used, util=util),)}


def seen(phase: str = "fwd", mode: str = "eager", **changes: Any) -> CellView:
    return view(scenes.scene(phase=phase, mode=mode, **changes))


def resampled(**by_index: Any) -> CellView:
    """The good scene with one column of its unprofiled samples as a function of their place among them."""
    one = scenes.scene()
    (column, function), *_ = by_index.items()
    changed: list[Sample] = []
    for sample in one.samples:
        value = function(sample.index) if sample.repeat == "unprofiled" else getattr(sample, column)
        changed.append(replace(sample, **{column: value}))
    return view(replace(one, samples=tuple(changed)))


def check(l2: float | None, *, finite: bool = True, tolerance: float = 1e-5) -> Check:
    passed = finite and l2 is not None and l2 <= tolerance
    tensor = TensorError(name="o", l2=l2, max_abs=l2, finite=finite)
    return Check(against="reference", tolerance_l2=tolerance, tensors=(tensor,), passed=passed)


def evidence(verdict: Any, kernels: str | None = None) -> Evidence:
    witnesses = (
        Witness(name="gate", says="fused", detail=""),
        Witness(name="kernels", says=kernels, detail="287 seen"),
    )
    return Evidence(verdict=verdict, expected="fused", witnesses=witnesses)


def beside_floor(busy_ns: int, *, l2_bytes: int | None = 60 << 20, input_sets: int = 3, **more: Any) -> CellView:
    one = view(scenes.scene(l2_bytes=l2_bytes, input_sets=input_sets, **more))
    floor = figure(100 * US, half=0.0, provenance="derived")
    share = figure(100 * US / busy_ns, "fraction", half=0.01, provenance="derived", sources=(source("gpu_busy_ns"),))
    return with_facts(base=one, gpu_busy_ns=figure(busy_ns), floor_ns=floor, floor_share=share)


def ceilings_of(run: RunRecord, provenance: Any) -> CellView:
    changed = tuple(replace(c, provenance=provenance) if c.name == "copy" else c for c in run.ceilings)
    return in_run(ceilings=changed)


def handed_on(share: float, *, beside: str = "flashkda", gate: GateObservation | None = None) -> CellView:
    """FLA with `share` of its device time in FlashKDA's kernels, measured beside another path; evidence partial."""
    signatures = (
        *scenes.SIGNATURES,
        PathSignature(path="flashkda", patterns=("flash_kda",)),
        PathSignature(path="fla", patterns=("^chunk_",)),
    )
    peer = scenes.scene("fla", signatures=signatures, gate=gate)
    run = scenes.run_record([peer.cell, scenes.scene(beside).cell])
    rows = (("_flash_kda_fwd_recurrence", share), ("chunk_kda_fwd_kernel_inter_solve_fused", 1 - share))
    kernels = tuple(KernelRow(name=name, calls=1, busy_ns=round(part * 187 * US)) for name, part in rows if part)
    partial = Evidence(verdict="partial", expected="fla", witnesses=(Witness(name="kernels", says="fla", detail=""),))
    return view(peer, run=run, kernels=kernels, evidence=partial)


_RUN = scenes.run_record([])
NO_FLOOR = absent("ns", "not-applicable", "no floor in this scene")
_GATE_NO_BACKWARD = GateObservation(calls=100, chosen="fused", forward={"fused": 100}, backward={})
_GATE_HANDED_ON = GateObservation(calls=1, chosen="flashkda", forward={"flashkda": 1}, backward={})
_BURSTS = 50

SCENES: dict[str, tuple[RuleScene, ...]] = {
    "Q01": (
        RuleScene(
            "a series that never settles",
            "wall_ns",
            trips=view(warmup=WarmUp(steady_from=None, change_points=(), n=105, detail="still drifting")),
            spares=view(
                warmup=WarmUp(steady_from=104, change_points=(104,), n=105),
                facts=good_facts(wall_ns=figure(200 * US, n=1), host_ns=figure(60 * US, n=1)),
            ),
        ),
        RuleScene(
            "a median that counts a warm-up step",
            "wall_ns",
            trips=with_facts(wall_ns=figure(200 * US, n=101)),
            spares=with_facts(wall_ns=figure(200 * US, n=100)),
        ),
    ),
    "Q02": (
        RuleScene(
            "a wall with a wide interval",
            "wall_ns",
            trips=with_facts(wall_ns=figure(200 * US, half=0.101)),
            spares=with_facts(wall_ns=figure(200 * US, half=0.099)),
        ),
        RuleScene(
            "a busy time with an interval that a wall may have",
            "gpu_busy_ns",
            trips=with_facts(gpu_busy_ns=figure(128 * US, half=0.031)),
            spares=with_facts(gpu_busy_ns=figure(128 * US, half=0.029)),
        ),
        RuleScene(
            "one round, no interval",
            "host_ns",
            trips=with_facts(host_ns=figure(60 * US, ci95=None)),
            spares=with_facts(gpu_span_ns=figure(180 * US, ci95=None)),
        ),
        RuleScene(
            "events that scatter, without rounds",
            "gpu_span_ns",
            trips=with_facts(gpu_span_ns=figure(180 * US, half=0.2, ci95=None)),
            spares=with_facts(gpu_span_ns=figure(180 * US, half=0.09, ci95=None)),
        ),
    ),
    "Q03": (
        RuleScene(
            "another process before",
            "gpu_busy_ns",
            trips=in_conditions(before=foreign((1 << 30) + 1)),
            spares=in_conditions(before=foreign(1 << 30)),
        ),
        RuleScene(
            "a small but busy process during",
            "wall_ns",
            trips=in_conditions(during=foreign(30 << 20, 0.06)),
            spares=in_conditions(during=foreign(30 << 20, 0.05)),
        ),
        RuleScene(
            "another process after",
            "wall_ns",
            trips=in_conditions(after=foreign(15 << 30)),
            spares=in_conditions(after={"foreign": None}),
        ),
        RuleScene(
            "a card that was busy before",
            "wall_ns",
            trips=in_conditions(before={"util_before": 0.06}),
            spares=in_conditions(before={"util_before": 0.05}),
        ),
    ),
    "Q04": (
        RuleScene(
            "clocks that move",
            "gpu_busy_ns",
            trips=resampled(sm_clock_hz=lambda i: 1_980_000_000 if i % 2 else 1_870_000_000),
            spares=resampled(sm_clock_hz=lambda i: 1_980_000_000 if i % 2 else 1_890_000_000),
        ),
        RuleScene(
            "a power cap",
            "wall_ns",
            trips=in_conditions(during={"throttle_reasons": ("sw_power_cap",)}),
            spares=in_conditions(during={"throttle_reasons": ("gpu_idle", "applications_clocks_setting")}),
        ),
    ),
    "Q05": (
        RuleScene(
            "a loaded host",
            "host_ns",
            trips=in_conditions(host={"load1": 8.1}),
            spares=in_conditions(host={"load1": 8.0}),
        ),
        RuleScene(
            "stolen CPU time",
            "wall_ns",
            trips=in_conditions(host={"steal": 0.06}),
            spares=in_conditions(host={"steal": 0.05}),
        ),
    ),
    "Q06": (
        RuleScene(
            "a mislabelled path",
            "gpu_busy_ns",
            trips=view(evidence=evidence("contradicted", "tensor")),
            spares=view(evidence=evidence("partial", "fused")),
        ),
        RuleScene(
            "the gate's word alone, with a device there",
            "wall_ns",
            trips=view(evidence=evidence("gate-only")),
            spares=view(evidence=evidence("confirmed", "fused")),
        ),
    ),
    "Q07": (
        RuleScene(
            "kda = f/0",
            "wall_ns",
            trips=replace(seen("fwdbwd", gate=_GATE_NO_BACKWARD), backward_kernels_seen=None),
            spares=replace(seen("fwdbwd", gate=scenes.gate("fused", backward=1)), backward_kernels_seen=None),
        ),
        RuleScene(
            "no backward kernel on the device",
            "launches",
            trips=replace(seen("bwd"), backward_kernels_seen=False),
            spares=replace(seen("fwd", gate=_GATE_NO_BACKWARD), backward_kernels_seen=False),
        ),
    ),
    "Q08": (
        RuleScene(
            "the interpreter's time",
            "wall_ns",
            trips=seen(device="cpu", interpreted=True),
            spares=seen(device="cuda", interpreted=False),
        ),
        RuleScene(
            "a CPU's time",
            "wall_ns",
            trips=replace(seen(device="cpu"), evidence=evidence("gate-only")),
            spares=seen(device="cuda"),
        ),
        RuleScene(
            "launch time as kernel time",
            "gpu_busy_ns",
            trips=with_facts(gpu_busy_ns=figure(60 * US, provenance="derived", sources=(source("host_ns"),))),
            spares=with_facts(idle_ns=figure(60 * US, provenance="derived", sources=(source("host_ns"),))),
        ),
        RuleScene(
            "a busy time that nothing recorded",
            "gpu_busy_ns",
            trips=replace(view(scenes.scene(profiled=())), kernels=()),
            spares=replace(
                view(scenes.scene(profiled=(Profiled(kind="profiled-cuda", timeline="t.parquet", repeats=5),))),
                kernels=(),
            ),
        ),
        RuleScene(
            "a share of the floor made from a wall",
            "floor_share",
            trips=with_facts(
                floor_share=figure(
                    0.1, "fraction", provenance="derived", sources=(source("floor_ns"), source("wall_ns"))
                )
            ),
            spares=with_facts(
                floor_share=figure(
                    0.1, "fraction", provenance="derived", sources=(source("floor_ns"), source("gpu_busy_ns"))
                )
            ),
        ),
    ),
    "Q09": (
        RuleScene(
            "outside the tolerance",
            "wall_ns",
            trips=seen(check=check(1.1e-5)),
            spares=seen(check=check(1e-5)),
        ),
        RuleScene(
            "not finite",
            "peak_bytes",
            trips=with_facts(base=seen(check=check(None, finite=False)), peak_bytes=figure(88 << 20, "B")),
            spares=with_facts(base=seen(check=check(0.0)), peak_bytes=figure(88 << 20, "B")),
        ),
        RuleScene("never compared", "wall_ns", trips=seen(check=None), spares=seen(check=check(3e-7))),
        RuleScene(
            "a graph whose replays differ",
            "wall_ns",
            trips=seen(mode="graph", capture=Capture(captured=True, check=check(1.0))),
            spares=seen(mode="graph", capture=Capture(captured=True, check=check(0.0), stale_check_failed=True)),
        ),
        RuleScene(
            "a graph whose comparison a stale output passes",
            "wall_ns",
            trips=seen(mode="graph", capture=Capture(captured=True, check=check(0.0), stale_check_failed=False)),
            spares=seen(mode="graph", capture=Capture(captured=True, check=check(0.0), stale_check_failed=None)),
        ),
    ),
    "Q10": (
        RuleScene("faster than the floor", "floor_ns", trips=beside_floor(94 * US), spares=beside_floor(96 * US)),
        RuleScene(
            "faster than the floor, in L2 or not",
            "floor_share",
            trips=beside_floor(50 * US, l2_bytes=200 << 20, input_sets=3),
            spares=beside_floor(50 * US, l2_bytes=200 << 20, input_sets=3, cache="warm"),
        ),
    ),
    "Q11": (
        RuleScene(
            "a data sheet's bandwidth",
            "floor_ns",
            trips=ceilings_of(_RUN, "declared"),
            spares=ceilings_of(_RUN, "measured"),
        ),
        RuleScene(
            "a declared floor",
            "floor_ns",
            trips=with_facts(floor_ns=figure(19 * US, provenance="declared")),
            spares=with_facts(floor_ns=figure(19 * US, provenance="derived")),
        ),
    ),
    "Q12": (
        RuleScene(
            "a line through three points",
            "slope_ns",
            trips=with_facts(slope_ns=figure(30 * US, n=3)),
            spares=with_facts(slope_ns=figure(30 * US, n=4)),
        ),
        RuleScene(
            "a fixed cost that may be nothing",
            "fixed_ns",
            trips=with_facts(fixed_ns=figure(500 * US, n=6, ci95=(-1.0 * US, 900.0 * US))),
            spares=with_facts(fixed_ns=figure(500 * US, n=6, ci95=(1.0 * US, 900.0 * US))),
        ),
        RuleScene(
            "a line without an interval",
            "fixed_ns",
            trips=with_facts(fixed_ns=figure(500 * US, n=4, ci95=None)),
            spares=with_facts(fixed_ns=figure(500 * US, n=4)),
        ),
    ),
    "Q13": (
        RuleScene(
            "a difference without an interval",
            "idle_ns",
            trips=with_facts(idle_ns=figure(72 * US, ci95=None, provenance="derived")),
            spares=with_facts(idle_ns=figure(72 * US, provenance="derived")),
        ),
        RuleScene(
            "a difference across runs",
            "idle_ns",
            trips=with_facts(
                idle_ns=figure(72 * US, provenance="derived", sources=(source("wall_ns", run="another-run"),))
            ),
            spares=with_facts(idle_ns=figure(72 * US, provenance="derived", sources=(source("wall_ns"),))),
        ),
        RuleScene(
            "a class of idle without its range",
            "idle_dispatch_ns",
            trips=with_facts(idle_dispatch_ns=figure(9 * US, ci95=None, min=None, max=None, provenance="derived")),
            spares=with_facts(idle_dispatch_ns=figure(9 * US, ci95=None, provenance="derived")),
        ),
    ),
    "Q14": (
        RuleScene(
            "a pool that grew under the samples",
            "wall_ns",
            trips=resampled(reserved_bytes=lambda i: (512 << 20) + (2 << 20) * (i > 60)),
            spares=resampled(reserved_bytes=lambda i: (512 << 20) + (2 << 20) * (i > 0)),
        ),
    ),
    "Q15": (
        RuleScene(
            "a peer whose forward is another's, beside that other",
            "wall_ns",
            trips=handed_on(0.11),
            spares=handed_on(0.09),
        ),
        RuleScene(
            "the same peer, beside another path",
            "launches",
            trips=with_facts(base=handed_on(0.4), launches=figure(9, "1")),
            spares=with_facts(base=handed_on(0.4, beside="tensor"), launches=figure(9, "1")),
        ),
        RuleScene(
            "a peer's dispatcher that names the path beside it",
            "gpu_busy_ns",
            trips=handed_on(0.0, gate=_GATE_HANDED_ON),
            spares=handed_on(0.0, gate=_GATE_HANDED_ON, beside="fused"),
        ),
    ),
    "Q16": (
        RuleScene(
            "a wall of nineteen ticks",
            "wall_ns",
            trips=with_facts(wall_ns=figure(399)),
            spares=with_facts(wall_ns=figure(400)),
        ),
        RuleScene(
            "an event span of nine microseconds",
            "gpu_span_ns",
            trips=with_facts(gpu_span_ns=figure(9_999)),
            spares=with_facts(gpu_span_ns=figure(10_000)),
        ),
        RuleScene(
            "a burst is one span",
            "pipelined_ns",
            trips=with_facts(pipelined_ns=figure(400 / _BURSTS - 0.1)),
            spares=with_facts(pipelined_ns=figure(400 / _BURSTS)),
        ),
        RuleScene(
            "a constant of zero",
            "gpu_busy_ns",
            trips=with_facts(gpu_busy_ns=figure(0, half=0.0), floor_ns=NO_FLOOR),
            spares=with_facts(gpu_busy_ns=figure(640, half=0.0), floor_ns=NO_FLOOR),
        ),
    ),
}

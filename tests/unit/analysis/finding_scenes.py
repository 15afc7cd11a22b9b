"""For every finding: views that earn it, and near misses that do not. `judged` lets the rules speak first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import guard_scenes as g
import scenes
from scenes import MS, SECOND, US, figure, good_facts, view

from kdaprof.analysis.guards import judge_run
from kdaprof.analysis.view import CellView, WarmUp
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.compiles import CompileEvent, SlowStep
from kdaprof.runs.facts import Fact
from kdaprof.runs.memory import StepMemory
from kdaprof.runs.record import Capture, GateObservation, OwnCost, Refusal
from kdaprof.runs.results import Evidence, Witness
from kdaprof.runs.samples import Sample

Views = tuple[CellView, ...]


@dataclass(frozen=True)
class FindingScene:
    """Views in which the finding must be made (`trips`) and must not (`spares`)."""

    what: str
    trips: Views
    spares: Views


def judged(*views: CellView) -> Views:
    facts = judge_run(views)
    return tuple(replace(one, facts=facts[one.cell.id]) for one in views)


def path_view(path: str, wall: int, *, phase: str = "fwd", mode: str = "eager", **facts: Fact) -> CellView:
    """A good cell of a path, its samples at `wall`, confirmed, with further figures."""
    one = scenes.scene(path, phase, mode, wall_ns=wall, warm=(wall,) * 5)
    return view(
        one,
        facts=good_facts(mode, **{"wall_ns": figure(wall), **facts}),
        evidence=scenes.good_evidence(path),
        warmup=WarmUp(steady_from=0, change_points=(), n=105),
    )


def product_view(path: str, wall: int, *, k: int = 2048) -> CellView:
    """A float32 product on the card, at these walls."""
    key = CellKey("gemm", path, "plain", "eager", "fwd", make_shape("gemm", (5120, k, 8192)), "float32")
    one = scenes.scene(cell_key=key, wall_ns=wall, warm=(wall,) * 5)
    return view(
        one,
        facts=good_facts("eager", wall_ns=figure(wall), gpu_busy_ns=figure(wall - 20 * US)),
        evidence=scenes.good_evidence(path),
        warmup=WarmUp(steady_from=0, change_points=(), n=105),
    )


def split(share: float, *, idle: int = 72 * US, wall: int = 200 * US, **classes: float) -> dict[str, Fact]:
    """A host-bound share and classes of idle in ns."""
    made = {
        f"{name}_ns" if name == "drained_by_sync" else f"idle_{name}_ns": figure(ns, ci95=None, provenance="derived")
        for name, ns in classes.items()
    }
    bound = figure(share, "fraction", provenance="derived")
    return {"host_bound": bound, "idle_ns": figure(idle, provenance="derived"), "wall_ns": figure(wall), **made}


def with_samples(one: CellView, *samples: Sample) -> CellView:
    return replace(one, samples=(*one.samples, *samples))


def without_samples(one: CellView, repeat: str) -> CellView:
    return replace(one, samples=tuple(s for s in one.samples if s.repeat != repeat))


def watched_loop(
    before: int, later: int, *, after: int = 40, wander: int = 0, cost: int = 1 * US, first: int = 40
) -> CellView:
    """The steps of a loop: `first` of them, a window of two and one more, then `after`; walls alternate by `wander`."""
    key = replace(scenes.key(), workload="step", phase="step", shape=(("B", 8),))
    numbers = range(first + 3 + after)
    samples = tuple(
        Sample(
            cell=key.id,
            repeat="profiled-cuda" if first <= n < first + 2 else "unprofiled",
            round=n // 20,
            index=n,
            step=n,
            t_ns=n * SECOND,
            wall_ns=(before if n < first else later) + (wander if n % 2 else 0),
        )
        for n in numbers
    )
    one = view()
    assert one.cell.observed is not None
    costs = (OwnCost(name="step_profiler_step", ns=cost, n=16), OwnCost(name="step_profiler_phase", ns=1.0, n=16))
    return replace(
        one,
        run=replace(one.run, overhead=costs),
        cell=replace(one.cell, key=key, observed=replace(one.cell.observed, borders="loop")),
        samples=samples,
        facts=good_facts("eager", wall_ns=figure(before)),
        warmup=WarmUp(steady_from=0, change_points=(), n=len(numbers)),
    )


def loop(per_call: int, calls: int = 1000) -> Sample:
    cell = scenes.key().id
    return Sample(cell=cell, repeat="util", round=0, index=0, t_ns=SECOND, calls=calls, wall_ns=per_call * calls)


def sampled_util(util: float, per_call: int) -> CellView:
    base = with_samples(without_samples(view(), "util"), loop(per_call))
    return g.with_facts(base=base, util_mean=figure(util, "fraction"))


def gate(forward: dict[str, int], chosen: str | None, *refused: Refusal) -> GateObservation:
    return GateObservation(calls=12, chosen=chosen, forward=forward, backward={}, refused=refused)


def facts(base: CellView | None = None, **changes: Fact) -> Views:
    return judged(g.with_facts(base=base, **changes))


def graph_view(wall: int, copy: int | None = None, **seen: Any) -> CellView:
    more = {"input_copy_ns": figure(copy)} if copy is not None else {}
    one = scenes.scene(mode="graph", wall_ns=wall, warm=(wall,) * 5, **seen)
    return view(one, facts=good_facts("graph", wall_ns=figure(wall), **more))


def evidence(verdict: Any, **says: str | None) -> Evidence:
    witnesses = tuple(Witness(name=name, says=word, detail="d") for name, word in says.items())  # type: ignore[arg-type]
    return Evidence(verdict=verdict, expected="fused", witnesses=witnesses)


def alone(one: CellView) -> Views:
    return judged(one)


def rivals(fast_busy: int, slow_busy: int, wall: int, other_wall: int) -> Views:
    return judged(
        path_view("compiled", wall, gpu_busy_ns=figure(fast_busy)),
        path_view("tensor", other_wall, gpu_busy_ns=figure(slow_busy)),
    )


def warm(**changes: Any) -> CellView:
    return view(warmup=WarmUp(**{"steady_from": 1, "change_points": (1,), "n": 105, **changes}))


_FALLBACK = Refusal(path="fused", reason="dtype float64 is not supported")
_OK = scenes.good_check(0.0, 0.0, against="eager")
_BROKEN = Capture(
    captured=False,
    operation="aten::item",
    where="model.py:12",
    error="operation not permitted",
    hint="Keep it on the GPU.",
)


def pool_view(*reserved_mib: float) -> Views:
    """A cell whose reserved memory stood at these levels behind its recorded steps."""
    levels = tuple(round(level * (1 << 20)) for level in reserved_mib)
    memory = StepMemory(allocs=(10,) * len(levels), held_bytes=levels, reserved_bytes=levels, peak_bytes=levels[-1])
    return judged(g.seen(memory=memory))


def compiled_in(*index: int) -> Views:
    """A cell, warm from sample 5 on, that compiled something in these steps."""
    event = CompileEvent(cause="triton", name="kernel", start_ns=1, ns=MS)
    steps = tuple(SlowStep(fresh=False, index=i, start_ns=0, wall_ns=2 * MS, events=(event,)) for i in index)
    one = g.seen(slow_steps=steps)
    return judged(replace(one, warmup=replace(one.warmup, steady_from=5)))


def drifting(share: float) -> Views:
    """A step whose steady walls rise by this share of their median from first to last."""
    key = CellKey("step", "fused", "plain", "eager", "step", make_shape("step", (8, 512, 4)), "float32")
    one = view(scenes.scene(cell_key=key))
    walls = [round(50 * MS * (1 + share * (i / 99 - 0.5))) for i in range(100)]
    samples = scenes.series(one.cell.id, "unprofiled", [walls])
    return judged(replace(one, samples=tuple(samples), warmup=WarmUp(steady_from=0, change_points=(), n=100)))


SCENES: dict[str, tuple[FindingScene, ...]] = {
    "path-contradicted": (
        FindingScene(
            "a mislabelled path",
            alone(view(evidence=evidence("contradicted", gate="fused", kernels="tensor"))),
            alone(view(evidence=evidence("partial", gate=None, kernels="fused"))),
        ),
    ),
    "wrong-output": (
        FindingScene(
            "out of tolerance",
            alone(g.seen(check=g.check(1.4e-3))),
            alone(g.seen(check=g.check(3e-7))),
        ),
        FindingScene("not finite", alone(g.seen(check=g.check(None, finite=False))), alone(view())),
    ),
    "graph-output-differs": (
        FindingScene(
            "a replay that differs",
            alone(g.seen(mode="graph", capture=Capture(captured=True, check=g.check(1.0)))),
            alone(g.seen(mode="graph", capture=Capture(captured=True, check=_OK, stale_check_failed=True))),
        ),
    ),
    "backward-never-ran": (
        FindingScene(
            "kda = f/0",
            alone(replace(g.seen("fwdbwd", gate=scenes.gate("fused")), backward_kernels_seen=None)),
            alone(g.seen("fwd", gate=scenes.gate("fused"))),
        ),
    ),
    "path-not-proven": (
        FindingScene(
            "the gate alone, beside a GPU",
            alone(view(evidence=evidence("gate-only", gate="fused", kernels=None))),
            alone(replace(g.seen(device="cpu"), evidence=evidence("gate-only", gate="fused", kernels=None))),
        ),
    ),
    "gate-fell-back": (
        FindingScene(
            "two of twelve calls elsewhere",
            alone(g.seen(gate=gate({"fused": 10, "tensor": 2}, None, _FALLBACK))),
            alone(g.seen(gate=gate({"fused": 12}, "fused", Refusal(path="tensor", reason="fused was asked for")))),
        ),
    ),
    "card-shared": (
        FindingScene(
            "another process",
            alone(g.in_conditions(after=g.foreign(15 << 30))),
            alone(g.in_conditions(after=g.foreign(30 << 20))),
        ),
    ),
    "clocks-limited": (
        FindingScene(
            "a power cap",
            alone(g.in_conditions(during={"throttle_reasons": ("sw_power_cap",)})),
            alone(g.in_conditions(during={"throttle_reasons": ("gpu_idle",)})),
        ),
    ),
    "clocks-moved": (
        FindingScene(
            "a clock that wanders",
            alone(g.resampled(sm_clock_hz=lambda i: 1_980_000_000 if i % 2 else 1_800_000_000)),
            alone(g.resampled(sm_clock_hz=lambda i: 1_980_000_000 if i % 2 else 1_900_000_000)),
        ),
    ),
    "host-loaded": (
        FindingScene(
            "a load of 60", alone(g.in_conditions(host={"load1": 60.0})), alone(g.in_conditions(host={"load1": 7.0}))
        ),
    ),
    "no-steady-state": (FindingScene("drift", alone(warm(steady_from=None, detail="still drifting")), alone(warm())),),
    "pool-grew": (
        FindingScene(
            "a leak",
            alone(g.resampled(reserved_bytes=lambda i: i << 21)),
            alone(g.resampled(reserved_bytes=lambda i: 1 << 21)),
        ),
        FindingScene(
            "while the rounds ran",
            alone(g.resampled(reserved_bytes=lambda i: min(i, 6) << 21)),
            alone(g.resampled(reserved_bytes=lambda i: min(i, 5) << 21)),
        ),
    ),
    "spikes-in-steady-part": (
        FindingScene("three of 100", alone(warm(spikes=(10, 20, 30))), alone(warm(spikes=(10, 20)))),
        FindingScene("in the rounds", alone(warm(spikes=(3, 10, 20, 30))), alone(warm(spikes=(3, 4, 10, 20)))),
    ),
    "capture-failed": (
        FindingScene(
            "a synchronise inside",
            alone(g.seen(mode="graph", capture=_BROKEN)),
            alone(g.seen(mode="graph", capture=Capture(captured=True, check=_OK))),
        ),
    ),
    "graph-copies-eat-gain": (
        FindingScene(
            "copies as long as the gain",
            judged(view(), graph_view(140 * US, 60 * US)),
            judged(view(), graph_view(140 * US, 59 * US)),
        ),
    ),
    "host-bound": (
        FindingScene(
            "dispatch holds the idle",
            facts(**split(0.36, dispatch=40 * US, launch_latency=20 * US)),
            facts(**split(0.14, dispatch=40 * US)),
        ),
        FindingScene("no classes", facts(**split(0.16)), facts(**split(0.14))),
        FindingScene(
            "a refused split is no finding",
            facts(**split(0.9, dispatch=60 * US)),
            alone(g.in_conditions(host={"load1": 60.0})),
        ),
    ),
    "sync-bound": (
        FindingScene(
            "the host waited in the gaps",
            facts(**split(0.5, dispatch=40 * US, drained_by_sync=36 * US)),
            facts(**split(0.5, dispatch=40 * US, drained_by_sync=35 * US)),
        ),
    ),
    "queue-full": (
        FindingScene(
            "host time is GPU time",
            facts(**split(0.05), host_ns=figure(195 * US)),
            facts(**split(0.5), host_ns=figure(195 * US)),
        ),
        FindingScene(
            "the host far ahead",
            facts(**split(0.05), host_ns=figure(190 * US)),
            facts(**split(0.05), host_ns=figure(189 * US)),
        ),
    ),
    "profiler-inflation": (
        FindingScene(
            "a fifth more",
            facts(inflation=figure(1.2, "1", provenance="derived")),
            facts(inflation=figure(1.19, "1", provenance="derived")),
        ),
    ),
    "utilisation-disagrees": (
        FindingScene("sixteen points", alone(sampled_util(0.48, 200 * US)), alone(sampled_util(0.50, 200 * US))),
        FindingScene(
            "against the loop's own time, not the samples'",
            alone(sampled_util(0.64, 400 * US)),
            alone(sampled_util(0.32, 400 * US)),
        ),
    ),
    "faster-than-floor": (
        FindingScene("faster than the floor", alone(g.beside_floor(94 * US)), alone(g.beside_floor(96 * US))),
    ),
    "gpu-fast-but-slower-a-call": (
        FindingScene(
            "less GPU work, more wall",
            rivals(950 * US, 1_170 * US, 8 * MS, 7 * MS),
            rivals(950 * US, 1_170 * US, 7 * MS, 8 * MS),
        ),
        FindingScene(
            "intervals that touch",
            rivals(950 * US, 1_170 * US, 8 * MS, 7 * MS),
            rivals(1_160 * US, 1_170 * US, 8 * MS, 7 * MS),
        ),
    ),
    "lower-precision-slower": (
        # 13.96 ms against 10.88 in the field report; a tf32 that takes fp32's time is the near miss.
        FindingScene(
            "the field report's product",
            judged(product_view("fp32", 10_881 * US), product_view("tf32", 13_960 * US)),
            judged(product_view("fp32", 10_881 * US), product_view("tf32", 10_881 * US)),
        ),
        FindingScene(
            "another size is another product",
            judged(product_view("fp32", 10_881 * US), product_view("tf32", 13_960 * US)),
            judged(product_view("fp32", 10_881 * US), product_view("tf32", 13_960 * US, k=2304)),
        ),
    ),
    "paths-compared": (
        FindingScene(
            "two paths of one phase",
            judged(path_view("fused", 200 * US), path_view("tensor", 7 * MS)),
            judged(path_view("fused", 200 * US), path_view("tensor", 7 * MS, phase="fwdbwd")),
        ),
    ),
    "peak-memory": (
        FindingScene(
            "half as much again",
            judged(
                path_view("fused", 200 * US, peak_bytes=figure(100, "B")),
                path_view("tensor", 7 * MS, peak_bytes=figure(150, "B")),
            ),
            judged(
                path_view("fused", 200 * US, peak_bytes=figure(100, "B")),
                path_view("tensor", 7 * MS, peak_bytes=figure(149, "B")),
            ),
        ),
        FindingScene(
            "not of a path that did not run",
            judged(
                path_view("fused", 200 * US, peak_bytes=figure(100, "B")),
                path_view("tensor", 7 * MS, peak_bytes=figure(150, "B")),
            ),
            judged(
                path_view("fused", 200 * US, peak_bytes=figure(100, "B")),
                replace(
                    path_view("tensor", 7 * MS, peak_bytes=figure(150, "B")),
                    evidence=evidence("contradicted", gate="tensor", kernels="fused"),
                ),
            ),
        ),
        FindingScene(
            "not against a step whose op is left out",
            judged(
                path_view("fused", 200 * US, peak_bytes=figure(100, "B")),
                path_view("tensor", 7 * MS, peak_bytes=figure(150, "B")),
            ),
            judged(
                path_view("copy", 200 * US, peak_bytes=figure(100, "B")),
                path_view("tensor", 7 * MS, peak_bytes=figure(150, "B")),
            ),
        ),
    ),
    "reserved-never-reused": (
        FindingScene("grew in two steps", pool_view(8, 8, 8, 9, 10), pool_view(8, 8, 8, 8, 10)),
        FindingScene("grew by a segment", pool_view(8, 9, 9, 9, 10), pool_view(8, 9, 9, 9, 9.99)),
        FindingScene("still grows", pool_view(8, 9, 9, 9, 10), pool_view(8, 9, 10, 10, 10)),
    ),
    "retuned-in-steady-part": (FindingScene("the first steady step", compiled_in(0, 4, 5), compiled_in(0, 4)),),
    "steady-part-drifts": (
        FindingScene("gets slower", drifting(0.102), drifting(0.098)),
        FindingScene("gets faster", drifting(-0.102), drifting(-0.098)),
    ),
    "cold-start": (
        FindingScene(
            "a fresh process",
            facts(cold_ns=figure(2 * MS)),
            facts(cold_ns=figure(2 * MS - 1)),
        ),
        FindingScene(
            "step 0 where nothing else was measured",
            alone(view()),
            alone(path_view("fused", 200 * US)),
        ),
    ),
    "profiler-left-attached": (
        FindingScene(
            "a dispatch-bound loop, 17.8 ms before its window and 30.5 ms ever after",
            (watched_loop(17_800 * US, 30_500 * US),),
            (watched_loop(17_800 * US, 17_900 * US),),
        ),
        FindingScene(
            "a tenth slower, among steps that wander by as much",
            (watched_loop(20 * MS, 22 * MS, wander=100 * US),),
            (watched_loop(20 * MS, 22 * MS, wander=10 * MS),),
        ),
        FindingScene(
            "too few steps after the window to say",
            (watched_loop(20 * MS, 30 * MS, after=5),),
            (watched_loop(20 * MS, 30 * MS, after=4),),
        ),
    ),
    "watching-costs": (
        FindingScene(
            "a hundredth of the step, and a hair more",
            (watched_loop(10 * MS, 10 * MS, cost=100 * US + 1),),
            (watched_loop(10 * MS, 10 * MS, cost=100 * US),),
        ),
    ),
}


def all_of(scene_ids: Sequence[str]) -> Views:
    """The tripping views of several scenes, each a cell of its own."""
    return tuple(view for name in scene_ids for view in SCENES[name][0].trips)

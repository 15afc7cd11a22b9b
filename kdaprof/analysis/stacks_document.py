"""A recording with all that follows from it, and its document `kdaprof.stacks/1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Literal

import msgspec

from kdaprof.analysis.stacks import HotLine, PhaseTime, ThreadTime, thread_time
from kdaprof.analysis.stacks_holds import NO_STOPS, StopClock, stops_of
from kdaprof.analysis.stacks_layers import COUNTED_ONLY, LAYERS, MEANING, NATIVE_ONLY, Layer
from kdaprof.analysis.stacks_trace import ThreadStacks, read_stacks
from kdaprof.analysis.util_join import Interval
from kdaprof.runs.codec import schema_name, to_json
from kdaprof.runs.facts import Fact, absent
from kdaprof.runs.stacks import STACKS_KIND, Holds, StacksRecord, ThreadTicks
from kdaprof.runs.units import format_fraction, format_ns

Json = dict[str, Any]  # a document on its way out: built here, validated against the shipped JSON Schema in tests
Verdict = Literal["good", "poor", "unusable"]

POOR_ERRORS = 0.05
"""From this share of failed samples on the shares may be off by as much: they may not be quoted."""

UNUSABLE_ERRORS = 0.5
"""From here on most stacks are old ones that went on."""

CROWDED = 0.05
"""From this share of time ready without a core on, native stacks whose stops are not known lean towards what the
process does when it sleeps: py-spy competes for the same cores. All others are corrected by the kernel's counters."""

POOR_UNSEEN = 0.05
"""From this share of time in which nobody looked whether py-spy held the process, `waiting` may be too large by it."""

_NATIVE_NEXT = "inside a C call a Python stack ends at the line that made it; --native sees further"


@dataclass(frozen=True, slots=True)
class OtherThread:
    """A thread without Python, known by the kernel's counters only: its time on a core."""

    tid: int
    name: str
    run_ns: int


@dataclass(frozen=True, slots=True)
class StacksView:
    """A recording for every output: `threads` by time, the main one first; `stops` None where they are not known."""

    record: StacksRecord
    stacks: tuple[ThreadStacks, ...]
    stops: StopClock | None
    threads: tuple[ThreadTime, ...]
    others: tuple[OtherThread, ...]
    error_share: Fact
    crowded: Fact
    held: Fact
    unseen: Fact
    verdict: Verdict
    own_cost: Fact


def stacks_view(
    record: StacksRecord,
    trace: bytes | None,
    ticks: Sequence[ThreadTicks],
    holds: Holds | None = None,
    *,
    intervals: Sequence[Interval] = (),
) -> StacksView:
    """Derive everything. `intervals`: start_ns, end_ns (monotonic) and name of what the process did when.

    `holds`: the stops that native stacks made. Errors: BadFileError when the trace is not one of py-spy.
    """
    stacks = () if trace is None or record.anchor_ns is None else read_stacks(trace, record.anchor_ns)
    of_tid = {thread.tid: thread for thread in ticks}
    stops = NO_STOPS if not record.native else None if holds is None else stops_of(holds, record.span_ns)
    counted = stops is not None
    times = [
        thread_time(
            s,
            of_tid.get(s.tid) if counted and s.tid is not None else None,
            stops=stops or NO_STOPS,
            intervals=intervals,
            apart_ns=record.anchor_uncertainty_ns or 0,
        )
        for s in stacks
    ]
    seen = {s.tid for s in stacks}
    others = [
        OtherThread(t.tid, t.name, int(t.run_ns[-1] - t.run_ns[0])) for t in ticks if t.tid not in seen and len(t.t_ns)
    ]
    share, crowded = _error_share(record), _crowded(None if record.pid is None else of_tid.get(record.pid))
    held, unseen = _held(record, stops), _unseen(record, holds)
    return StacksView(
        record=record,
        stacks=stacks,
        stops=stops,
        threads=tuple(sorted(times, key=lambda time: (time.tid != record.pid, -_awake(time)))),
        others=tuple(sorted((o for o in others if o.run_ns), key=lambda other: -other.run_ns)),
        error_share=share,
        crowded=crowded,
        held=held,
        unseen=unseen,
        verdict=_verdict(share, crowded, unseen, counted=counted),
        own_cost=_own_cost(record),
    )


def layer_facts(
    view: StacksView, layers: Mapping[Layer, float], total_ns: float, *, counted: bool
) -> dict[Layer, Fact]:
    """The share of each layer in a thread's time, every layer present; missing with the reason."""
    found: dict[Layer, Fact] = {}
    for layer in LAYERS:
        if layer in NATIVE_ONLY and not view.record.native:
            found[layer] = absent("fraction", "not-supported", _NATIVE_NEXT)
        elif not counted and (layer in COUNTED_ONLY or (layer == "waiting" and not view.record.native)):
            found[layer] = absent("fraction", "not-supported", _uncounted(view.record))
        elif total_ns <= 0:
            found[layer] = absent("fraction", "not-applicable", "the thread was not seen in it")
        else:
            share = Fact(value=layers[layer] / total_ns, unit="fraction", n=view.record.samples or 0)
            bad = view.verdict != "good"
            found[layer] = replace(share, quotable=False, detail=judged(view)) if bad else share
    return found


def phase_facts(view: StacksView, thread: ThreadTime, phase: PhaseTime) -> dict[Layer, Fact]:
    """The share of each layer in a thread's time in a phase; not to be quoted where its calls are too short."""
    facts = layer_facts(view, phase.layers, sum(phase.layers.values()), counted=thread.counted)
    if not phase.blurred:
        return facts
    lasts, told = format_ns(phase.span_ns / phase.calls), format_ns(thread.blur_ns)
    why = f"its calls last {lasts}, and shares are told to within {told}"
    return {k: fact if fact.value is None else replace(fact, quotable=False, detail=why) for k, fact in facts.items()}


def judged(view: StacksView) -> str:
    """What the share of failed samples means, in one sentence."""
    record = view.record
    if record.samples is None or record.errors is None or view.error_share.value is None:
        return "py-spy did not say how many samples failed"
    said = f"{record.errors} of {record.samples + record.errors} samples failed"
    if view.verdict == "good":
        return said
    if view.error_share.value < POOR_ERRORS and (view.unseen.value or 0) >= POOR_UNSEEN:
        return (
            f"{said}, but for {format_fraction(view.unseen.value or 0)} of the time nobody looked whether py-spy had "
            "stopped the process: waiting may be too large by as much; record on a quiet machine, or without --native"
        )
    if view.error_share.value < POOR_ERRORS:
        crowded = format_fraction(view.crowded.value or 0)
        return (
            f"{said}, but for {crowded} of the time the process was ready and had no core: native stacks then lean "
            "towards its sleep; record on a quiet machine, or without --native"
        )
    if view.verdict == "poor":
        less = "a quiet machine" if record.native else "--native, which stops the process for each sample,"
        return f"{said}: shares may be off by as much; with {less} fewer fail"
    instead = "record on a quiet machine" if record.native else "use --native"
    return f"{said}: most stacks are old ones that went on; {instead}, or another version of py-spy"


def stacks_document(view: StacksView) -> Json:
    """The document: builtins only, no NaN, every figure an object."""
    record = view.record
    anchor = None
    if record.anchor_ns is not None and record.anchor_uncertainty_ns is not None:
        anchor = {"monotonic_ns": record.anchor_ns, "uncertainty_ns": record.anchor_uncertainty_ns}
    return {
        "schema": schema_name(STACKS_KIND),
        "tool": record.tool,
        "command": list(record.command),
        "complete": record.complete,
        "pid": record.pid,
        "rate_hz": record.rate_hz,
        "native": record.native,
        "started_unix_ns": record.started_unix_ns,
        "span_ns": record.span_ns,
        "anchor": anchor,
        "samples": record.samples,
        "errors": record.errors,
        "error_share": to_json(view.error_share),
        "no_core": to_json(view.crowded),
        "held": to_json(view.held),
        "unseen": to_json(view.unseen),
        "verdict": view.verdict,
        "own_cost": to_json(view.own_cost),
        "threads": [_thread(view, thread) for thread in view.threads],
        "other_threads": to_json(view.others),
        "layers": {layer: MEANING[layer] for layer in LAYERS},
        "missing": None if record.missing is None else to_json(record.missing),
        "child": None if record.child is None else to_json(record.child),
        "notes": list(record.notes),
        "recording": to_json(record),
    }


def stacks_schema() -> Json:
    """The JSON Schema (2020-12) of the document, as shipped in the package."""
    raw = resources.files("kdaprof.runs").joinpath("schemas/stacks-1.json").read_bytes()
    schema: Json = msgspec.json.decode(raw)
    return schema


def _thread(view: StacksView, thread: ThreadTime) -> Json:
    total = float(thread.observed_ns)
    return {
        "tid": thread.tid,
        "name": thread.name,
        "observed_ns": thread.observed_ns,
        "layers": to_json(layer_facts(view, thread.layers, total, counted=thread.counted)),
        "phases": [_phase(view, thread, phase) for phase in thread.phases],
        "hottest": [_hot(line, total) for line in thread.hottest],
    }


def _phase(view: StacksView, thread: ThreadTime, phase: PhaseTime) -> Json:
    return {
        "name": phase.name,
        "calls": phase.calls,
        "span_ns": phase.span_ns,
        "seen_ns": round(sum(phase.layers.values())),
        "layers": to_json(phase_facts(view, thread, phase)),
    }


def _hot(line: HotLine, total_ns: float) -> Json:
    frame = line.frame
    return {"function": frame.name, "file": frame.file, "line": frame.line, "share": line.ns / total_ns}


def _awake(time: ThreadTime) -> float:
    return sum(ns for layer, ns in time.layers.items() if layer not in ("waiting", "no_core"))


def _uncounted(record: StacksRecord) -> str:
    if record.rate_hz is None:
        return "a trace alone, without the kernel's counters"
    if record.native:
        return "--native stops the process for each sample, and what it adds to the counters is not known"
    return "the kernel's counters of the thread could not be read (/proc/PID/task/TID/schedstat)"


def _error_share(record: StacksRecord) -> Fact:
    if record.missing is not None:
        return absent("fraction", "failed", record.missing.text)
    if record.samples is None or record.errors is None:
        return absent("fraction", "not-supported", "py-spy did not say how many samples failed")
    tried = record.samples + record.errors
    if tried == 0:
        return absent("fraction", "failed", "no sample was taken")
    return Fact(value=record.errors / tried, unit="fraction", n=tried)


def _crowded(main: ThreadTicks | None) -> Fact:
    if main is None:
        return absent("fraction", "not-supported", "the kernel's counters of the main thread could not be read")
    span, delay = int(main.t_ns[-1] - main.t_ns[0]), int(main.delay_ns[-1] - main.delay_ns[0])
    return Fact(value=delay / span, unit="fraction", n=len(main.t_ns))


def _held(record: StacksRecord, stops: StopClock | None) -> Fact:
    if not record.native:
        return absent("fraction", "not-applicable", "Python stacks stop nothing")
    if stops is None or record.span_ns <= 0:
        return absent("fraction", "not-supported", "it was not looked for, or too seldom")
    total = int(stops.stopped_ns[-1]) if len(stops.stopped_ns) else 0
    return Fact(value=total / record.span_ns, unit="fraction", n=len(stops.knots) // 2)


def _unseen(record: StacksRecord, holds: Holds | None) -> Fact:
    if not record.native:
        return absent("fraction", "not-applicable", "Python stacks stop nothing")
    if holds is None or holds.unseen_ns is None or record.span_ns <= 0:
        return absent("fraction", "not-supported", "the recording does not say")
    return Fact(value=holds.unseen_ns / record.span_ns, unit="fraction", n=holds.looks)


def _verdict(share: Fact, crowded: Fact, unseen: Fact, *, counted: bool) -> Verdict:
    if share.value is None:
        return "unusable" if share.missing == "failed" else "poor"
    if share.value >= UNUSABLE_ERRORS:
        return "unusable"
    if not counted and (crowded.value or 0) >= CROWDED:
        return "poor"
    return "poor" if share.value >= POOR_ERRORS or (unseen.value or 0) >= POOR_UNSEEN else "good"


def _own_cost(record: StacksRecord) -> Fact:
    if record.rate_hz is None:
        return absent("fraction", "not-applicable", "recorded elsewhere")
    if record.span_ns <= 0 or record.spy_cpu_ns is None:
        return absent("fraction", "failed", "the recording ended before py-spy's CPU time was read")
    return Fact(value=(record.own_cpu_ns + record.spy_cpu_ns) / record.span_ns, unit="fraction", n=1)

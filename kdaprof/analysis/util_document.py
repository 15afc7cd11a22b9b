"""The document of a watch, `kdaprof.gpu-util/1`: what `gpu-util --json` prints and `gpu-util.json` holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import msgspec
import numpy as np

from kdaprof.analysis.util import CardUse, Fields, card_use, plain_fact
from kdaprof.analysis.util_join import BusyShare, Interval, Joined, join
from kdaprof.runs.codec import schema_name, to_json
from kdaprof.runs.facts import Fact, absent
from kdaprof.runs.util import LATENESS
from kdaprof.runs.util_file import FieldSeries, UtilFile
from kdaprof.runs.watch import WATCH_KIND, WatchedCard, WatchRecord

Json = dict[str, Any]  # a document on its way out: built here, validated against the shipped JSON Schema in tests

OWN_COST_WANTED = 0.002
"""Of one core, at 2 Hz."""

MEANING = (
    "Utilisation is the share of time in which at least one kernel was running, averaged by the driver over 1/6 to "
    "1 s. It does not say how much of the card that kernel used: one block on one SM reads 100 %. SM activity, "
    "occupancy, tensor and DRAM activity (GPM) say that, where the card has them."
)


@dataclass(frozen=True, slots=True)
class CardView:
    """A card of a watch with all that is derived of it."""

    card: WatchedCard
    use: CardUse
    joined: tuple[Joined, ...]
    fields: Fields


@dataclass(frozen=True, slots=True)
class WatchView:
    """A watch with all that is derived of it, for every output."""

    record: WatchRecord
    cards: tuple[CardView, ...]
    lateness: Fact
    own_cost: Fact
    busy: tuple[BusyShare, ...]


def view(
    record: WatchRecord,
    file: UtilFile | None,
    *,
    intervals: Sequence[Interval] = (),
    busy: Sequence[BusyShare] = (),
) -> WatchView:
    """Derive everything from the samples. `file` None: nothing was sampled."""
    series: dict[str | None, dict[str, FieldSeries]] = {}
    if record.unfinished and file is not None:
        record = finished(record, file)
    for field in file.fields() if file is not None else ():
        assert file is not None
        for uuid, values in file.series(field).items():
            series.setdefault(uuid, {})[field] = values
    late = series.get(None, {}).get(LATENESS)
    names = {process.pid: process.name for process in record.names}
    return WatchView(
        record=record,
        cards=tuple(
            _card(card, series.get(card.uuid, {}), names, intervals, record.started_monotonic_ns)
            for card in record.cards
        ),
        lateness=absent("ns", "no-device", "no sample was taken")
        if late is None
        else plain_fact(late.value.tolist(), "ns", "median"),
        own_cost=_own_cost(record),
        busy=tuple(busy),
    )


def finished(record: WatchRecord, file: UtilFile) -> WatchRecord:
    """The record of a watch that was ended from outside: its ends and counts are those of the samples kept."""
    late = file.series(LATENESS)[None]
    due_ns = late.t_ns - late.value.astype(np.int64)
    began, ended = int(due_ns[0]), int(late.t_ns[-1])
    unix_ns = record.started_unix_ns - record.started_monotonic_ns
    return replace(
        record,
        started_unix_ns=began + unix_ns,
        started_monotonic_ns=began,
        ended_unix_ns=ended + unix_ns,
        ended_monotonic_ns=ended,
        samples_due=1 + round(int(due_ns[-1] - began) * record.hz / 1e9),
        samples_taken=len(due_ns),
        notes=(*record.notes, "the watch was ended from outside, or could not be stored: what it had stored is shown"),
    )


def gpu_util_document(seen: WatchView) -> Json:
    """The document: builtins only, no NaN, every figure an object."""
    record = seen.record
    return {
        "schema": schema_name(WATCH_KIND),
        "tool": record.tool,
        "command": list(record.command),
        "complete": record.complete,
        "hz": record.hz,
        "samples_due": record.samples_due,
        "samples_taken": record.samples_taken,
        "lateness_ns": to_json(seen.lateness),
        "own_cost": to_json(seen.own_cost),
        "gpus": [_gpu(card) for card in seen.cards],
        "child": None if record.child is None else to_json(record.child),
        "device_busy": to_json(seen.busy),
        "meaning": MEANING,
        "notes": list(record.notes),
        "watch": to_json(record),
    }


def gpu_util_schema() -> Json:
    """The JSON Schema (2020-12) of the document, as shipped in the package."""
    raw = resources.files("kdaprof.runs").joinpath("schemas/gpu-util-1.json").read_bytes()
    schema: Json = msgspec.json.decode(raw)
    return schema


def _card(
    card: WatchedCard, fields: Fields, names: Mapping[int, str | None], intervals: Sequence[Interval], began_ns: int
) -> CardView:
    absence = card.stopped.reason if card.stopped is not None else None
    use = card_use(fields, names=names, absence=absence, began_ns=began_ns)
    if card.gpm_missing is not None:
        gpm = {name for name in use.facts if name.startswith("gpm_")}
        use.facts.update({name: absent(use.facts[name].unit, "not-supported", card.gpm_missing) for name in gpm})
    return CardView(card, use, join(fields, intervals, began_ns=began_ns) if intervals else (), fields)


def _own_cost(record: WatchRecord) -> Fact:
    if record.span_ns <= 0:
        return absent("fraction", "not-applicable", "the watch took no time")
    if record.own_cpu_ns is None:
        return absent("fraction", "failed", "the watch was ended before it could say")
    detail = f"CPU time of kdaprof / time watched; at 2 Hz at most {OWN_COST_WANTED:.1%} of a core is wanted"
    return Fact(value=record.own_cpu_ns / record.span_ns, unit="fraction", n=1, detail=detail)


def _gpu(seen: CardView) -> Json:
    card, use = seen.card, seen.use
    return {
        "uuid": card.uuid,
        "index": card.index,
        "name": card.name,
        "facts": to_json(use.facts),
        "percentiles": to_json(use.percentiles),
        "histogram": None if use.histogram is None else to_json(use.histogram),
        "limits": to_json(use.limits),
        "processes": to_json(use.processes),
        "joined": to_json(seen.joined),
        "stopped": None if card.stopped is None else to_json(card.stopped),
    }

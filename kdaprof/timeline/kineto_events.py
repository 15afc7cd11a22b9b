"""Typed, partial decoding of the events of a Kineto trace, and their exact times.

Only the fields that a timeline needs are decoded; msgspec skips the rest without making objects of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Union

import msgspec
import numpy as np

from kdaprof.timeline.build import Builder, plain_id
from kdaprof.timeline.clean import NO_END, NO_START
from kdaprof.timeline.columns import CALL_KINDS, DEVICE_KINDS, MISSING, Int64, Kind
from kdaprof.timeline.kineto_times import EXACT_FLOAT_NS, ends, ns_of_floats, ns_of_ints, ns_of_raw, ns_of_text

KINDS: dict[str, Kind] = {
    "kernel": Kind.KERNEL,
    "concurrent_kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "memset": Kind.MEMSET,
    "cuda_runtime": Kind.RUNTIME,
    "hip_runtime": Kind.RUNTIME,
    "runtime": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.DRIVER,
    "driver": Kind.DRIVER,
    "cpu_op": Kind.CPU_OP,
    "operator": Kind.CPU_OP,
    "user_annotation": Kind.ANNOTATION,
    "gpu_user_annotation": Kind.GPU_ANNOTATION,
    "cuda_sync": Kind.SYNC,
    "overhead": Kind.OVERHEAD,
    "python_function": Kind.PYTHON,
    "python": Kind.PYTHON,
    "trace": Kind.TRACE,
}
"""By category in lower case: old profilers wrote `Kernel`, `Runtime`, `Operator`."""

_BY_CATEGORY = {**KINDS, **{name.capitalize(): kind for name, kind in KINDS.items()}}

# Old profilers had no category for annotations and wrote them as operators.
_ANNOTATION_PREFIXES = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)", "nccl:", "## ")


class Args(msgspec.Struct, gc=False):
    """The arguments that matter; any type is taken here, and judged when the column is made."""

    device: Any = MISSING
    stream: Any = MISSING
    correlation: Any = MISSING
    graph_node: Any = msgspec.field(name="graph node id", default=MISSING)
    call_stack: Any = msgspec.field(name="Call stack", default="")


_NO_ARGS = Args()


class FloatEvent(msgspec.Struct, gc=False, tag="X", tag_field="ph"):
    """A complete event whose start is small enough for a double."""

    ts: float = math.nan
    dur: float = math.nan
    cat: str = ""
    name: str = ""
    pid: int | str = MISSING
    tid: int | str = MISSING
    args: Args | None = None


class IntEvent(FloatEvent, gc=False, tag="X", tag_field="ph", kw_only=True):
    """A complete event with a start in whole microseconds, of any size."""

    ts: int


class RawEvent(FloatEvent, gc=False, tag="X", tag_field="ph", kw_only=True):
    """A complete event whose start is kept as text, because a double would round it."""

    ts: msgspec.Raw  # type: ignore[assignment]


_SKIPPED = [msgspec.defstruct(f"Skipped{ord(tag)}", [], tag=tag, tag_field="ph") for tag in "sftiIMBEbenCPNODR"]
_FIELDS = attrgetter("cat", "dur", "name", "pid", "tid")
_DEVICE_ARGS = attrgetter("device", "stream", "graph_node")
_DEVICE_LIMIT, _STREAM_LIMIT = 2**15, 2**31
_kind_of = _BY_CATEGORY.get
_ON_DEVICE, _CALLS = np.zeros(256, dtype=np.bool_), np.zeros(256, dtype=np.bool_)
_ON_DEVICE[list(DEVICE_KINDS)] = True
_CALLS[list(CALL_KINDS)] = True


def _decoder(event: type[FloatEvent]) -> msgspec.json.Decoder[list[FloatEvent]]:
    union: Any = Union[(event, *_SKIPPED)]
    return msgspec.json.Decoder(list[union])


class EventDecoder:
    """Decodes a JSON array of events into a builder, and remembers how exact the times must be read."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._levels: list[tuple[type[FloatEvent], Callable[[Sequence[Any]], Int64]]] = [
            (FloatEvent, ns_of_floats),
            (IntEvent, ns_of_ints),
            (RawEvent, ns_of_raw),
        ]
        self._decoder = _decoder(FloatEvent)

    def add(self, array: bytes) -> None:
        """Add the events of `array`. Raises `msgspec.MsgspecError` when a field is not of its type."""
        while True:
            event, to_ns = self._levels[0]
            try:
                records = self._decoder.decode(array)
            except msgspec.ValidationError:
                if event is not IntEvent:
                    raise
                self._next_level()  # a fraction, or another fault: the next reader tells them apart
                continue
            events = [record for record in records if type(record) is event]
            starts = to_ns([record.ts for record in events])
            if event is FloatEvent and starts.size and int(np.abs(starts).max()) >= EXACT_FLOAT_NS:
                self._next_level()
                continue
            self._builder.read += len(records)
            if events:
                self._add_events(events, starts, with_stacks=b'"Call stack"' in array)
            return

    def _next_level(self) -> None:
        del self._levels[0]
        self._decoder = _decoder(self._levels[0][0])

    def _add_events(self, events: list[FloatEvent], start_ns: Int64, *, with_stacks: bool) -> None:
        builder = self._builder
        kinds = np.array([_kind_of(event.cat, 0) for event in events], dtype=np.uint8)
        if not kinds.all():  # categories that no analysis asks for
            known = np.flatnonzero(kinds)
            events, kinds, start_ns = [events[row] for row in known.tolist()], kinds[known], start_ns[known]
        n = len(events)
        if not n:
            return
        categories, durations, names, pids, tids = zip(*map(_FIELDS, events), strict=True)
        if "Operator" in categories:
            _mark_annotations(kinds, names)
        on_device = _ON_DEVICE[kinds]
        device_rows, host_rows = np.flatnonzero(on_device), np.flatnonzero(~on_device & (kinds != Kind.TRACE))
        call_rows = np.flatnonzero(on_device | _CALLS[kinds])
        device, stream = np.full(n, MISSING, dtype=np.int16), np.full(n, MISSING, dtype=np.int32)
        thread, correlation = np.full(n, MISSING, dtype=np.int32), np.full(n, MISSING, dtype=np.int64)
        nodes: Int64 | None = None
        if call_rows.size:
            arguments = [events[row].args or _NO_ARGS for row in call_rows.tolist()]
            correlation[call_rows] = whole_numbers([argument.correlation for argument in arguments])
        if device_rows.size:
            arguments = [events[row].args or _NO_ARGS for row in device_rows.tolist()]
            devices, streams, graph_nodes = zip(*map(_DEVICE_ARGS, arguments), strict=True)
            labels = [(pids[row], tids[row]) for row in device_rows.tolist()]
            device[device_rows] = _or_label(whole_numbers(devices, _DEVICE_LIMIT), [pid for pid, _ in labels])
            stream[device_rows] = _or_label(whole_numbers(streams, _STREAM_LIMIT), [tid for _, tid in labels])
            if any(node != MISSING for node in graph_nodes):
                nodes = np.full(n, MISSING, dtype=np.int64)
                nodes[device_rows] = whole_numbers(graph_nodes)
        if host_rows.size:
            rows = host_rows.tolist()
            thread[host_rows] = builder.thread_ids([pids[row] for row in rows], [tids[row] for row in rows])
        builder.add(
            n,
            kind=kinds,
            name=builder.names.many(names),
            start_ns=start_ns,
            end_ns=ends(start_ns, ns_of_floats(durations)),
            device=device,
            stream=stream,
            thread=thread,
            correlation=correlation,
            graph_node=nodes,
            stack=[_stack(builder, event.args) for event in events] if with_stacks else None,
        )


def _stack(builder: Builder, args: Args | None) -> int:
    text = args.call_stack if args is not None else ""
    return builder.names.one(text) if text and isinstance(text, str) else MISSING


def _or_label(numbers: Int64, labels: Sequence[int | str]) -> Int64:
    """Device or stream; where the arguments do not name it, the number in the process or thread label."""
    for row in np.flatnonzero(numbers < 0).tolist():
        numbers[row] = _number_in(labels[row])
    return numbers


def add_lenient(builder: Builder, record: object) -> bool:
    """Add one record that only the tolerant reader could read. False when it is not an event at all."""
    builder.read += 1
    if not isinstance(record, dict):
        return False
    kind = KINDS.get(str(record.get("cat", "")).lower())
    if record.get("ph") != "X" or kind is None:
        return True
    found = record.get("args")
    args = found if isinstance(found, dict) else {}
    name = str(record.get("name", ""))
    if str(record.get("cat")) == "Operator" and name.startswith(_ANNOTATION_PREFIXES):
        kind = Kind.ANNOTATION
    pid, tid = _label(record.get("pid")), _label(record.get("tid"))
    start_ns = ns_of_text(record.get("ts"), NO_START)
    length_ns = ns_of_text(record.get("dur"), NO_END)
    end_ns = ends(np.array([start_ns], dtype=np.int64), np.array([length_ns], dtype=np.int64))
    device = int(whole_numbers([args.get("device")], _DEVICE_LIMIT)[0])
    stream = int(whole_numbers([args.get("stream")], _STREAM_LIMIT)[0])
    on_device = kind in DEVICE_KINDS
    stack = args.get("Call stack")
    node = int(whole_numbers([args.get("graph node id")])[0])
    builder.add(
        1,
        kind=[kind],
        name=[builder.names.one(name)],
        start_ns=[start_ns],
        end_ns=end_ns,
        device=[(device if device >= 0 else _number_in(pid)) if on_device else MISSING],
        stream=[(stream if stream >= 0 else _number_in(tid)) if on_device else MISSING],
        thread=[MISSING] if on_device or kind is Kind.TRACE else builder.thread_ids([pid], [tid]),
        correlation=whole_numbers([args.get("correlation")]),
        graph_node=[node] if node != MISSING else None,
        stack=[builder.names.one(stack)] if isinstance(stack, str) and stack else None,
    )
    return True


def whole_numbers(values: Sequence[Any], limit: int = 2**63) -> Int64:
    """An int64 column of what should be numbers; what is none, is negative or not below `limit` is missing."""
    try:
        column = np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        column = np.empty(0, dtype=np.int64)
    if column.shape != (len(values),):  # lists, too large numbers, text: one by one
        column = np.array([_whole(value) for value in values], dtype=np.int64)
    return np.where((column >= 0) & (column <= limit - 1), column, MISSING)


def _whole(value: object) -> int:
    if isinstance(value, bool):
        return MISSING
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return MISSING
    return number if 0 <= number < 2**63 else MISSING


def _number_in(label: int | str) -> int:
    """The number of a device or stream where only the process or thread label has it (`stream 7`)."""
    plain = plain_id(label)
    if isinstance(plain, int):
        return plain if 0 <= plain < 2**15 else 0
    digits = "".join(character for character in plain if character.isdigit())
    return int(digits) if digits and len(digits) < 5 else 0


def _label(value: object) -> int | str:
    return value if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _mark_annotations(kinds: np.ndarray[Any, np.dtype[np.uint8]], names: Sequence[str]) -> None:
    for row in np.flatnonzero(kinds == Kind.CPU_OP).tolist():
        if names[row].startswith(_ANNOTATION_PREFIXES):
            kinds[row] = Kind.ANNOTATION

"""Figures that come straight from samples and recordings, one function each; None where there is nothing to count."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from kdaprof.analysis.celldata import CellData
from kdaprof.analysis.figure import sampled
from kdaprof.analysis.recordings import launches_of, summed
from kdaprof.analysis.util_readings import Readings, idle_share, mean_fact, readings_of
from kdaprof.runs.facts import Fact, Unit, absent
from kdaprof.runs.record import Check
from kdaprof.runs.samples import Sample


def wall_ns(data: CellData) -> Fact | None:
    """Host clock around a synchronised, unprofiled call, steady samples of the rounds."""
    return sampled("ns", ((s.round, s.wall_ns) for s in data.steady() if s.wall_ns is not None))


def host_ns(data: CellData) -> Fact | None:
    """Host clock until the unprofiled call returned, same samples."""
    return sampled("ns", ((s.round, s.host_ns) for s in data.steady() if s.host_ns is not None))


def gpu_span_ns(data: CellData) -> Fact | None:
    """From the CUDA event before the call to the one behind it, idle included; a loop has them in every step."""
    taken = data.steady() if data.in_loop else data.of("events")
    return sampled("ns", ((s.round, s.gpu_span_ns) for s in taken if s.gpu_span_ns is not None))


def pipelined_ns(data: CellData) -> Fact | None:
    """A call's part of a burst of calls with one synchronise at its end."""
    return sampled("ns", ((s.round, s.wall_ns / s.calls) for s in data.of("pipelined") if s.wall_ns is not None))


def gpu_busy_ns(data: CellData) -> Fact | None:
    """Union of device intervals over all streams, CUDA-only recording; each repeat is a round of its own."""
    seen = data.recording("profiled-cuda").seen
    return sampled("ns", summed((split.index, device.busy.busy_ns) for split, device in seen))


def launches(data: CellData) -> Fact | None:
    """Launch calls of one execution: kernels, copies and sets, a graph's launch as one."""
    return sampled("1", launches_of(data.recording("profiled-cuda")))


def allocs(data: CellData) -> Fact | None:
    """Requests to the caching allocator in one call."""
    return _counted("1", ((s, s.allocs) for s in data.of("alloc")))


def alloc_bytes(data: CellData) -> Fact | None:
    """Bytes requested from the caching allocator in one call."""
    return _counted("B", ((s, s.alloc_bytes) for s in data.of("alloc")))


def peak_bytes(data: CellData) -> Fact | None:
    """Largest allocated memory during a call, beyond what was allocated before it."""
    return _counted("B", ((s, s.peak_bytes) for s in data.of("alloc")))


def reserved_growth_bytes(data: CellData) -> Fact | None:
    """Reserved memory, last minus first reading at the borders of the rounds."""
    read = [s.reserved_bytes for s in data.of("unprofiled") if s.round >= 0 and s.reserved_bytes is not None]
    if len(read) < 2:
        return None
    return Fact(value=read[-1] - read[0], unit="B", n=len(read))


def util_mean(data: CellData) -> Fact | None:
    """Mean GPU utilisation while the sustained loop ran: fresh readings of NVML, by the time that each stands for."""
    return _utilisation(data, partial(mean_fact, unit="fraction"))


def util_idle_share(data: CellData) -> Fact | None:
    """Share of the sustained loop's time whose readings are at most 5 %."""
    return _utilisation(data, idle_share)


def error_l2(data: CellData) -> Fact | None:
    """Relative L2 error of the worst output or gradient; for a graph that of its replays against eager."""
    check = _check(data)
    if check is None or not check.tensors:
        return None
    wild = _not_finite(check)
    if wild:
        return absent("fraction", "failed", wild)
    worst = max(check.tensors, key=lambda t: t.l2 or 0.0)
    return Fact(value=worst.l2, unit="fraction", n=len(check.tensors), detail=f"{worst.name} against {check.against}")


def error_max(data: CellData) -> Fact | None:
    """Largest absolute error of the worst output or gradient."""
    check = _check(data)
    if check is None or not check.tensors:
        return None
    wild = _not_finite(check)
    if wild or any(t.max_abs is None for t in check.tensors):
        return absent("1", "failed", wild or "a tensor has no largest error")
    worst = max(check.tensors, key=lambda t: t.max_abs or 0.0)
    return Fact(value=worst.max_abs, unit="1", n=len(check.tensors), detail=f"{worst.name} against {check.against}")


def cold_ns(data: CellData) -> Fact | None:
    """The first call in a fresh process with empty caches; each process is a round of its own."""
    return sampled("ns", ((s.index, s.wall_ns) for s in data.of("cold") if s.wall_ns is not None))


def pool_bytes(data: CellData) -> Fact | None:
    """The private memory pool of the captured graph."""
    capture = data.observed.capture if data.observed else None
    if capture is None or capture.pool_bytes is None:
        return None
    return Fact(value=capture.pool_bytes, unit="B", n=1)


def input_copy_ns(data: CellData) -> Fact | None:
    """Copying new inputs into the graph's static buffers."""
    return sampled("ns", ((s.round, s.wall_ns) for s in data.of("input-copy") if s.wall_ns is not None))


def profiled_wall_ns(data: CellData) -> Fact | None:
    """Wall of the call under the CUDA-only profiler, which slows the host: only for the inflation."""
    return sampled("ns", ((s.round, s.wall_ns) for s in data.of("profiled-cuda") if s.wall_ns is not None))


def _counted(unit: Unit, pairs: Iterable[tuple[Sample, int | None]]) -> Fact | None:
    # Counts of one call do not drift with the host: each repeat is an observation of its own.
    return sampled(unit, ((sample.index, value) for sample, value in pairs if value is not None))


def _utilisation(data: CellData, figure: Callable[[Readings], Fact]) -> Fact | None:
    series = data.utilisation()
    seen = readings_of(series)
    if seen.value.size:
        return figure(seen)
    return absent("fraction", "not-supported", series.reason) if series.reason else None


def _check(data: CellData) -> Check | None:
    seen = data.observed
    if seen is None:
        return None
    if data.cell.key.mode != "eager" and seen.capture is not None and seen.capture.check is not None:
        return seen.capture.check
    return seen.check


def _not_finite(check: Check) -> str | None:
    wild = [t.name for t in check.tensors if not t.finite or t.l2 is None]
    return f"{', '.join(wild)} not finite (against {check.against})" if wild else None

"""What a watch of the GPU says, from its samples: a card's figures, percentiles, histogram, limits and processes.

Pure functions over stored series. A repeat of the driver's same window is no observation, but time of the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.stats import summarise
from kdaprof.analysis.util_covered import covered, covered_fact
from kdaprof.analysis.util_readings import (
    Readings,
    idle_share,
    longest_idle_ns,
    mean_fact,
    median_fact,
    quantiles,
    readings_of,
)
from kdaprof.runs.facts import Fact, Missing, Unit, absent
from kdaprof.runs.util import PROCESS_BYTES, PROCESS_UTIL, REASON_PREFIX, process_of
from kdaprof.runs.util_file import FieldSeries

PERCENTS = (1, 5, 10, 25, 50, 75, 90, 95, 99)
BIN_EDGES = tuple(round(0.05 * edge, 2) for edge in range(21))

# fact → field, unit, what stands for the series
_PLAIN: tuple[tuple[str, str, Unit, str], ...] = (
    ("power_w", "power_w", "W", "mean"),
    ("sm_clock_hz", "sm_clock_hz", "Hz", "median"),
    ("mem_clock_hz", "mem_clock_hz", "Hz", "median"),
    ("temperature_c", "temperature_c", "°C", "median"),
    ("mem_used_bytes", "mem_used_bytes", "B", "median"),
)
# fact → field, unit: differences of counters, each over an interval of its own
_COVERED: tuple[tuple[str, str, Unit], ...] = (
    ("gpm_graphics", "gpm_graphics", "fraction"),
    ("gpm_sm", "gpm_sm", "fraction"),
    ("gpm_occupancy", "gpm_occupancy", "fraction"),
    ("gpm_tensor", "gpm_tensor", "fraction"),
    ("gpm_dram", "gpm_dram", "fraction"),
    ("gpm_pcie_tx", "gpm_pcie_tx_bytes_per_s", "B/s"),
    ("gpm_pcie_rx", "gpm_pcie_rx_bytes_per_s", "B/s"),
    ("gpm_nvlink_tx", "gpm_nvlink_tx_bytes_per_s", "B/s"),
    ("gpm_nvlink_rx", "gpm_nvlink_rx_bytes_per_s", "B/s"),
)

Fields = Mapping[str, FieldSeries]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Readings a bin, shared out by time: bin i holds edges[i] < x ≤ edges[i + 1], the first bin 0 as well."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """A clock event reason, and the share of samples in which it held."""

    reason: str
    share: float


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """A process on the card: largest memory seen, mean SM share of the samples that have one."""

    pid: int
    name: str | None
    used_bytes: int | None
    util: float | None


@dataclass(frozen=True, slots=True)
class CardUse:
    """All that is derived of one card."""

    facts: dict[str, Fact]
    percentiles: dict[str, float]
    histogram: Histogram | None
    limits: tuple[Limit, ...]
    processes: tuple[ProcessUse, ...]


def card_use(
    fields: Fields, *, names: Mapping[int, str | None], absence: str | None = None, began_ns: int | None = None
) -> CardUse:
    """The figures of one card from its series; `absence` is said of fields that were never read.

    `began_ns` is when the watch began: what the first figure of a difference of counters covers.
    """
    why = absence or "never read"
    seen, source = utilisation_readings(fields)
    facts: dict[str, Fact] = {}
    lost = _missing(fields.get("util"), "fraction", why)
    if seen.value.size:
        facts |= _utilisation_facts(seen, source)
    else:
        facts |= dict.fromkeys(("util_mean", "util_p50", "util_idle_share"), lost)
        facts["longest_idle_s"] = absent("s", lost.missing or "failed", lost.detail or why)
    memory = readings_of(fields.get("mem_util"))
    busy_memory = mean_fact(memory, "fraction") if memory.value.size else None
    facts["mem_util"] = busy_memory or _missing(fields.get("mem_util"), "fraction", why)
    for fact, field, unit, kind in _PLAIN:
        facts[fact] = _figure(fields.get(field), unit, kind, why)
    for fact, field, unit in _COVERED:
        facts[fact] = _covered(fields.get(field), unit, why, began_ns)
    facts["energy_j"] = _energy(fields, why)
    facts["limited_share"] = _figure(fields.get("limited"), "fraction", "mean", why)
    percentiles = quantiles(seen, [p / 100 for p in PERCENTS]) if seen.value.size else []
    return CardUse(
        facts=facts,
        percentiles={f"p{p}": value for p, value in zip(PERCENTS, percentiles, strict=False)},
        histogram=histogram(seen) if seen.value.size else None,
        limits=_limits(fields),
        processes=_processes(fields, names),
    )


def utilisation_readings(fields: Fields) -> tuple[Readings, str]:
    """Readings and source of the finer series: what was polled, or the driver's own buffer."""
    polled, buffered = readings_of(fields.get("util")), readings_of(fields.get("util_buffer"))
    if buffered.value.size > polled.value.size:
        return buffered, "the driver's own buffer, finer than the polling"
    return polled, "polled readings"


def histogram(seen: Readings) -> Histogram:
    """Twenty bins of 5 points, which share the readings out by time; the first is the share at ≤ 5 %."""
    places = np.clip(np.ceil(np.round(seen.value * 20, 9)).astype(int) - 1, 0, 19)
    total = seen.value.size
    wanted = np.bincount(places, weights=seen.held_ns, minlength=20) / seen.held_ns.sum() * total
    counts = np.floor(wanted).astype(int)
    # Whole readings: those that are left go where the largest parts were cut off.
    counts[np.argsort(counts - wanted, kind="stable")[: total - counts.sum()]] += 1
    return Histogram(BIN_EDGES, tuple(counts.tolist()))


def plain_fact(values: Sequence[float], unit: Unit, kind: str, detail: str | None = None) -> Fact:
    """A figure of a series (not empty): its mean or median, with the spread of the readings."""
    s = summarise(values)
    value = sum(values) / len(values) if kind == "mean" else s.median
    whole: Callable[[float], float] = round if unit in ("B", "Hz", "ns") else float
    return Fact(
        value=whole(value),
        unit=unit,
        n=s.n,
        min=whole(s.min),
        max=whole(s.max),
        p10=s.p10,
        p90=s.p90,
        detail=detail,
    )


def _utilisation_facts(seen: Readings, source: str) -> dict[str, Fact]:
    return {
        "util_mean": mean_fact(seen, "fraction", source),
        "util_p50": median_fact(seen, "fraction", source),
        "util_idle_share": idle_share(seen),
        "longest_idle_s": Fact(
            value=longest_idle_ns(seen) / 1e9,
            unit="s",
            n=int(seen.value.size),
            provenance="derived",
            detail="longest stretch of readings at ≤ 5 %",
        ),
    }


def _figure(series: FieldSeries | None, unit: Unit, kind: str, why: str) -> Fact:
    values = [] if series is None else series.fresh()[1].tolist()
    return plain_fact(values, unit, kind) if values else _missing(series, unit, why)


def _covered(series: FieldSeries | None, unit: Unit, why: str, began_ns: int | None) -> Fact:
    figures = None if series is None else covered(series, began_ns)
    return _missing(series, unit, why) if figures is None or not figures.value.size else covered_fact(figures, unit)


def _energy(fields: Fields, why: str) -> Fact:
    """From the card's counter; where it has none, mean power times time."""
    counter = fields.get("energy_j")
    t_ns, joules = counter.fresh() if counter is not None else (np.empty(0, np.int64), np.empty(0))
    if joules.size > 1 and joules[-1] >= joules[0]:
        return Fact(value=float(joules[-1] - joules[0]), unit="J", n=int(joules.size), detail="the card's own counter")
    power = fields.get("power_w")
    if power is not None:
        t_ns, watts = power.fresh()
        if watts.size > 1:
            joules_in_all = float(np.trapezoid(watts, t_ns / 1e9))
            detail = "integral of the power readings: the card gave no counter"
            return Fact(value=joules_in_all, unit="J", n=int(watts.size), provenance="derived", detail=detail)
    return _missing(counter, "J", "fewer than two readings" if joules.size else why)


def _missing(series: FieldSeries | None, unit: Unit, why: str) -> Fact:
    reason = series.reason if series is not None else None
    kind: Missing = "not-supported" if reason is not None else "failed"
    return absent(unit, kind, reason or why)


def _limits(fields: Fields) -> tuple[Limit, ...]:
    asked = fields["limited"].fresh()[1].size if "limited" in fields else 0
    if not asked:
        return ()
    held = [(name, series.t_ns.size) for name, series in fields.items() if name.startswith(REASON_PREFIX)]
    return tuple(Limit(name.removeprefix(REASON_PREFIX), min(1.0, count / asked)) for name, count in sorted(held))


def _processes(fields: Fields, names: Mapping[int, str | None]) -> tuple[ProcessUse, ...]:
    seen: dict[int, dict[str, FieldSeries]] = {}
    for field, series in fields.items():
        named = process_of(field)
        if named is not None:
            seen.setdefault(named[0], {})[named[1]] = series
    found = []
    for pid, told in sorted(seen.items()):
        held = told[PROCESS_BYTES].fresh()[1] if PROCESS_BYTES in told else np.empty(0)
        shares = told[PROCESS_UTIL].fresh()[1] if PROCESS_UTIL in told else np.empty(0)
        found.append(
            ProcessUse(
                pid,
                names.get(pid),
                int(held.max()) if held.size else None,
                float(shares.mean()) if shares.size else None,
            )
        )
    return tuple(found)

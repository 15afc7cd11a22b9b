"""Scales of a table: one unit a column, so that its figures compare at a glance; and clock times as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from kdaprof.runs.facts import Unit
from kdaprof.runs.units import format_error, format_fraction, format_number

# name, base units in one of it, and the least that the largest figure must be for it to be chosen
_TIMES = (("ms", 10**6, 10**5), ("µs", 10**3, 100), ("ns", 1, 0))
_BYTES = (("MB", 10**6, 10**5), ("kB", 10**3, 1000), ("B", 1, 0))
_RATES = (("TFLOP/s", 10**12, 10**10), ("GFLOP/s", 10**9, 10**7), ("FLOP/s", 1, 0))
_CLOCKS = (("MHz", 10**6, 10**6), ("Hz", 1, 0))


@dataclass(frozen=True, slots=True)
class Scale:
    """How a column writes its figures: `label` stands in the header (`ms`), empty when the cells carry their own."""

    unit: Unit
    label: str = ""
    per: int = 1

    def text(self, value: float) -> str:
        """`value` in this scale, three significant digits; whole counts in full."""
        if self.unit == "fraction":
            return format_fraction(value)
        if self.unit == "1" and float(value).is_integer():
            return f"{value:,.0f}"
        scaled = value / self.per
        if 1000 <= abs(scaled) < 1e12:
            return f"{float(f'{scaled:.2e}'):,.0f}"
        return format_number(scaled)

    def ends(self, value: float, low: float, high: float) -> tuple[str, str]:
        """`7.18` and `7.32`: the ends of an interval to the decimals of its value, without unit and grouping."""
        per = 0.01 if self.unit == "fraction" else self.per
        places = decimals(value / per) if self.unit != "fraction" else int(abs(value) < 0.1)
        return f"{low / per:.{places}f}", f"{high / per:.{places}f}"


@dataclass(frozen=True, slots=True)
class ErrorScale(Scale):
    """Errors of any size as powers of ten, since that is what is compared."""

    def text(self, value: float) -> str:
        """`1.9e-7`."""
        return format_error(value)


def scale_for(unit: Unit, values: Iterable[float]) -> Scale:
    """The scale of a table that holds `values` (base units): milliseconds as a rule, so that 0.049 stands below 7.25.

    Smaller units only where everything is small, seconds and gigabytes only where everything is large.
    """
    sizes = [abs(value) for value in values if value]
    steps = {"ns": _TIMES, "B": _BYTES, "FLOP/s": _RATES, "Hz": _CLOCKS}.get(unit)
    if steps is None:
        return Scale(unit, unit if unit in ("W", "°C") else "")
    if unit in ("ns", "B") and sizes and min(sizes) >= 10**9:
        return Scale(unit, {"ns": "s", "B": "GB"}[unit], 10**9)
    label, per, _ = next(step for step in steps if max(sizes, default=0) >= step[2])
    return Scale(unit, label, per)


def decimals(value: float) -> int:
    """Decimals that `format_number` gives this value: three significant digits."""
    text = format_number(value)
    return (0 if abs(value) >= 1 else 6) if "e" in text else len(text.partition(".")[2])


def utc(unix_ns: int) -> str:
    """`2026-12-02 01:55:00 UTC`."""
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

"""Figures as text: times, bytes, fractions and rates in base units, three significant digits, one style everywhere."""

from __future__ import annotations

import math

from kdaprof.runs.facts import Unit

_NANO = ((1, "ns"), (1_000, "µs"), (1_000_000, "ms"), (1_000_000_000, "s"))
_DECIMAL = ((1, ""), (1_000, "k"), (1_000_000, "M"), (10**9, "G"), (10**12, "T"), (10**15, "P"))
_TIME_SCALE = {name: scale for scale, name in _NANO}


def format_number(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits and no exponent between 1e-4 and 1e6; whole numbers stay whole."""
    if not math.isfinite(value):
        return "not finite"
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude >= 1e6 or magnitude < 1e-4:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    # Rounded first: 9.996 has four digits before it is rounded to three, and one more decimal than 10.0 after.
    rounded = float(f"{value:.{digits - 1}e}")
    places = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{value:.{places}f}"


def format_ns(value: float, unit: str | None = None) -> str:
    """Nanoseconds as `800 ns`, `223 µs`, `7.25 ms`, `75.0 s`; `unit` forces one of these, so that two times line up."""
    if not math.isfinite(value):
        return "not finite"
    if unit is not None:
        return f"{format_number(value / _TIME_SCALE[unit])} {unit}"
    return _scaled(value, _NANO)


def format_bytes(value: float) -> str:
    """Bytes in powers of 1000, as memory vendors and the field reports count: `512 B`, `173 MB`, `1.15 GB`."""
    return _scaled(value, tuple((scale, f"{prefix}B") for scale, prefix in _DECIMAL))


def format_flop(value: float) -> str:
    """Operations in powers of 1000, for a column that names them: `2.15 G`, `139 k`."""
    return _scaled(value, tuple((scale, prefix) for scale, prefix in _DECIMAL)).rstrip()


def format_fraction(value: float) -> str:
    """A fraction of 1 as per cent, `81 %`; more digits where the whole number would say 0, 100 or too little."""
    if not math.isfinite(value):
        return "not finite"
    percent = 100 * value
    near_end = 99 <= abs(percent) < 100
    if percent == 0:
        return "0 %"
    if abs(percent) < 10 or near_end:
        text = f"{percent:.1f}" if near_end else format_number(percent, 2)
        # 99.97 % rounded to 100.0 would claim the whole; what is not the whole never reads as it.
        return ("99.9" if text == "100.0" else text) + " %"
    return f"{percent:.0f} %"


def format_error(value: float) -> str:
    """A relative error as `3.1e-7`: its power of ten is what is compared."""
    if not math.isfinite(value):
        return "not finite"
    mantissa, exponent = f"{value:.1e}".split("e")
    return "0" if value == 0 else f"{mantissa}e{int(exponent)}"


def format_rate(value: float, unit: Unit) -> str:
    """A rate or power in base units: `4.27 TB/s`, `768 TFLOP/s`, `1.98 GHz`, `120 W`."""
    return _scaled(value, tuple((scale, f"{prefix}{unit}") for scale, prefix in _DECIMAL))


def format_value(value: float, unit: Unit) -> str:
    """Any figure by its unit. A `fraction` below 0.01 % is an error bound and reads in powers of ten."""
    if unit == "ns":
        return format_ns(value)
    if unit == "B":
        return format_bytes(value)
    if unit == "fraction":
        return format_error(value) if 0 < abs(value) < 1e-4 else format_fraction(value)
    if unit == "1":
        return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e6 else format_number(value)
    return format_rate(value, unit)


def _scaled(value: float, steps: tuple[tuple[int, str], ...]) -> str:
    """`value` in the largest step that leaves at least 1, or the next when rounding fills it."""
    if not math.isfinite(value):
        return "not finite"
    magnitude = abs(value)
    # 999.6 µs reads 1.00 ms, not 1000 µs.
    chosen = max((step for step in steps if magnitude >= 0.9995 * step[0]), default=steps[0])
    scale, name = chosen
    number = value / scale
    whole = scale == 1 and float(number).is_integer()
    return f"{number:.0f} {name}" if whole else f"{format_number(number)} {name}"

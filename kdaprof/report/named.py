"""Named numbers of findings as text: the unit is in the name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kdaprof.runs.results import Scalar
from kdaprof.runs.units import format_bytes, format_fraction, format_ns, format_number, format_rate

_UNITS = re.compile(r" (ns|bytes|hz|s|w)$")
_FRACTIONS = ("share", "bound", "removed", "fraction", "util", "utilisation", "steal")


def named_values(values: Mapping[str, Scalar]) -> str:
    """`wall 7.25 ms, launches 287`."""
    return ", ".join(named(name, value) for name, value in values.items())


def named(name: str, value: Scalar) -> str:
    """One number with its name, in the unit that the name ends with; None is `unknown`."""
    words = name.replace("_", " ")
    if value is None:
        return f"{_UNITS.sub('', words)} unknown"
    if isinstance(value, bool | str):
        return f"{words} {str(value).lower() if isinstance(value, bool) else value}"
    for ending, text in ((" ns", format_ns), (" bytes", format_bytes)):
        if words.endswith(ending):
            return f"{words.removesuffix(ending)} {text(value)}"
    if words.endswith(" hz"):
        return f"{words.removesuffix(' hz')} {format_rate(value, 'Hz')}"
    if words.endswith((" s", " w")):
        return f"{words[:-2]} {format_number(value)} {words[-1].replace('w', 'W')}"
    kind = words.removesuffix(" max").removesuffix(" min")
    if kind.split()[-1] in _FRACTIONS or "half width" in kind:
        return f"{words} {format_fraction(value)}"
    return f"{words} {value:,.0f}" if float(value).is_integer() else f"{words} {format_number(value)}"

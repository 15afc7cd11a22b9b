"""The roofline as one SVG: a roof a rate, a mark a path, phase and byte basis, filled where it was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from kdaprof.analysis.floor import COPY
from kdaprof.analysis.roofline_document import Roofline, used_ceilings
from kdaprof.analysis.roofline_measured import Stood
from kdaprof.runs.units import format_fraction, format_ns, format_number, format_rate

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 560, 84, 250, 56, 60
_COLOURS = ("#1c7ed6", "#e03131", "#2f9e44", "#f76707", "#7048e8", "#0c8599")
_MARKS = {"fwd": "circle", "bwd": "square", "fwdbwd": "diamond"}
_STYLE = (
    "<style>text{fill:#212529}.dim{fill:#868e96}.grid{stroke:#dee2e6}.roof{stroke:#495057}"
    "@media(prefers-color-scheme:dark){text{fill:#f1f3f5}.dim{fill:#adb5bd}.grid{stroke:#343a40}"
    ".roof{stroke:#ced4da}}</style>"
)


class _Plane:
    """Both axes logarithmic, whole decades."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        self.x0, self.x1 = _decades(xs)
        self.y0, self.y1 = _decades(ys)

    def x(self, value: float) -> float:
        return _LEFT + (math.log10(value) - self.x0) / (self.x1 - self.x0) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (math.log10(value) - self.y0) / (self.y1 - self.y0) * (_HEIGHT - _TOP - _BOTTOM)


def roofline_picture(roofline: Roofline) -> str | None:
    """SVG text; None where there is no ceiling to draw a roof from.

    A mark stands at the basis' FLOP per byte: on the roof it is what the floor allows (hollow), with a measured
    busy time it is the rate that was reached (filled; hollow and dashed when a rule refuses the figure).
    """
    named = {ceiling.name: ceiling for ceiling in used_ceilings(roofline)}
    rates = [ceiling for name, ceiling in named.items() if name != COPY and ceiling.unit == "FLOP/s"]
    points = [(one, *_place(one)) for one in roofline.stood if one.row.floor.value and one.row.basis.intensity]
    if COPY not in named or not rates or not points:
        return None
    copy = named[COPY]
    balances = [rate.value / copy.value for rate in rates]
    plane = _Plane([x for _, x, _ in points] + balances, [y for _, _, y in points] + [r.value for r in rates])
    title = f"kda {' '.join(f'{axis} {size}' for axis, size in roofline.shape)}, {roofline.dtype}"
    where = f" on {roofline.card}" if roofline.card else ""
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12" role="img">',
        _STYLE,
        f'<text x="12" y="24" font-size="16" font-weight="600">Roofline of {escape(title + where)}</text>',
        *_grid(plane),
    ]
    for rate in sorted(rates, key=lambda one: -one.value):
        out += _roof(plane, rate.name, rate.value, rate.provenance, copy.value)
    paths = list(dict.fromkeys(one.row.basis.path for one, _, _ in points))
    for index, (one, x, y) in enumerate(points):
        colour = _COLOURS[paths.index(one.row.basis.path) % len(_COLOURS)]
        out += _point(plane, one, x, y, colour, 70 + 17 * index)
    origin = f"copy {format_rate(copy.value, copy.unit)} ({copy.provenance})"
    out.append(f'<text x="{_LEFT}" y="44" class="dim">{escape(origin)}; filled: measured, hollow: the floor</text>')
    return "\n".join([*out, "</svg>", ""])


def _place(one: Stood) -> tuple[float, float]:
    """FLOP per byte and FLOP/s: over the measured busy time, or over the floor."""
    busy = one.call.busy.value if one.call else None
    return one.row.basis.intensity or 1.0, one.row.basis.flops / float(busy or one.row.floor.value or 1) * 1e9


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)) + 0.05)
    return low, max(high, low + 1)


def _grid(plane: _Plane) -> list[str]:
    out, bottom, right = [], _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for power in range(plane.x0, plane.x1 + 1):
        x = plane.x(10.0**power)
        out.append(f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}"/>')
        label = format_number(10.0**power)
        out.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle" class="dim">{label}</text>')
    for power in range(plane.y0, plane.y1 + 1):
        y = plane.y(10.0**power)
        out.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        label = format_rate(10.0**power, "FLOP/s")
        out.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" class="dim">{label}</text>')
    middle = (_LEFT + right) / 2
    out.append(f'<text x="{middle}" y="{_HEIGHT - 16}" text-anchor="middle">operations per byte (FLOP/B)</text>')
    return out


def _roof(plane: _Plane, name: str, rate: float, provenance: str, copy: float) -> list[str]:
    low, high, ridge = 10.0**plane.x0, 10.0**plane.x1, rate / copy
    start = max(low, 10.0**plane.y0 / copy)
    corners = [(start, start * copy), (ridge, rate), (high, rate)] if ridge > start else [(start, rate), (high, rate)]
    line = " ".join(f"{plane.x(x):.1f},{plane.y(y):.1f}" for x, y in corners)
    dash = {"measured": "", "derived": ' stroke-dasharray="8 4"', "declared": ' stroke-dasharray="2 4"'}[provenance]
    text = escape(f"{name} {format_rate(rate, 'FLOP/s')} ({provenance})")
    return [
        f'<polyline class="roof" points="{line}" fill="none" stroke-width="2"{dash}/>',
        f'<text x="{plane.x(high) - 4:.1f}" y="{plane.y(rate) - 6:.1f}" text-anchor="end" class="dim">{text}</text>',
    ]


def _point(plane: _Plane, one: Stood, x: float, y: float, colour: str, line: int) -> list[str]:
    basis, call = one.row.basis, one.call
    measured = call is not None and call.busy.value is not None
    fill = colour if measured and call is not None and call.busy.quotable else "none"
    told = f"{basis.path} {basis.phase}, {basis.name}" if basis.path != basis.name else f"{basis.name} {basis.phase}"
    share = f", {format_fraction(one.share.value)} of the floor" if one.share.value is not None else ""
    title = f"{told}: {format_number(x)} FLOP/B, floor {format_ns(one.row.floor.value or 0)} ({one.row.bound}){share}"
    left = _WIDTH - _RIGHT + 16
    return [
        f"<g><title>{escape(title)}</title>{_mark(basis.phase, plane.x(x), plane.y(y), colour, fill)}</g>",
        _mark(basis.phase, left, line - 4, colour, fill),
        f'<text x="{left + 12}" y="{line}">{escape(told)}</text>',
    ]


def _mark(phase: str, x: float, y: float, colour: str, fill: str) -> str:
    paint = f'fill="{fill}" stroke="{colour}" stroke-width="2"'
    if _MARKS[phase] == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {paint}/>'
    turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if _MARKS[phase] == "diamond" else ""
    return f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" {paint}{turn}/>'

"""A watch as one SVG: utilisation and SM activity over time, a card below the other, and the histogram beside it."""

from __future__ import annotations

from html import escape

import numpy as np

from kdaprof.analysis.util import utilisation_readings
from kdaprof.analysis.util_document import CardView, WatchView
from kdaprof.runs.units import format_fraction, format_number, format_value
from kdaprof.runs.util_file import FloatArray, IntArray

_WIDTH, _PLOT, _LEFT, _ROW, _HIGH, _TOP = 960, 660, 60, 190, 120, 64
_BARS = _LEFT + _PLOT + 40
_BARS_WIDE = 180
_UTIL, _SM = "#1c7ed6", "#f76707"


def picture(view: WatchView) -> str:
    """SVG text; a long watch is drawn with the lowest and highest reading of each pixel."""
    seconds = view.record.span_ns / 1e9
    height = _TOP + _ROW * max(1, len(view.cards))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        'font-size="13" role="img">',
        "<style>text{fill:#212529}.dim{fill:#868e96}.axis{stroke:#adb5bd}"
        "@media(prefers-color-scheme:dark){text{fill:#f1f3f5}.dim{fill:#adb5bd}.axis{stroke:#495057}}</style>",
        f'<text x="12" y="24" font-size="16" font-weight="600">GPU utilisation over {format_number(seconds)} s, '
        f"sampled at {view.record.hz:g} Hz</text>",
        f'<rect x="{_LEFT}" y="36" width="12" height="12" fill="{_UTIL}"/>'
        f'<text x="{_LEFT + 18}" y="47">utilisation (some kernel ran)</text>',
    ]
    if any("gpm_sm" in card.fields for card in view.cards):
        out.append(
            f'<rect x="{_LEFT + 230}" y="36" width="12" height="12" fill="{_SM}"/>'
            f'<text x="{_LEFT + 248}" y="47">SM activity (GPM)</text>'
        )
    for row, card in enumerate(view.cards):
        out += _card(view, card, _TOP + 30 + row * _ROW)
    return "\n".join([*out, "</svg>", ""])


def _card(view: WatchView, card: CardView, top: int) -> list[str]:
    place = "MIG" if card.card.index is None else f"GPU {card.card.index}"
    title = escape(f"{place} {card.card.name or ''}")
    bottom = top + _HIGH
    out = [f'<text x="{_LEFT}" y="{top - 8}" font-weight="600">{title}</text>']
    for share in (0, 0.5, 1):
        y = bottom - share * _HIGH
        out.append(f'<line class="axis" x1="{_LEFT}" y1="{y}" x2="{_LEFT + _PLOT}" y2="{y}"/>')
        out.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end" class="dim">{format_fraction(share)}</text>')
    seen, _ = utilisation_readings(card.fields)
    t_ns, values = seen.t_ns, seen.value
    mean = card.use.facts["util_mean"]
    if mean.value is None:
        return [*out, f'<text x="{_LEFT + 12}" y="{top + 66}">{escape(f"missing: {mean.detail}")}</text>']
    out.append(_line(view, t_ns, values, bottom, _UTIL))
    if "gpm_sm" in card.fields:
        out.append(_line(view, *card.fields["gpm_sm"].fresh(), bottom, _SM))
    out.append(
        f'<text x="{_LEFT + _PLOT}" y="{bottom + 18}" text-anchor="end" class="dim">'
        f"{format_value(view.record.span_ns, 'ns')}</text>"
    )
    return [*out, *_histogram(card, top, bottom)]


def _line(view: WatchView, t_ns: IntArray, values: FloatArray, bottom: int, colour: str) -> str:
    span = max(1, view.record.span_ns)
    x = np.clip((t_ns - view.record.started_monotonic_ns) / span, 0, 1) * _PLOT
    points: list[str] = []
    if t_ns.size > 2 * _PLOT:
        pixels = x.astype(int)
        for pixel in np.unique(pixels):
            within = values[pixels == pixel]
            points += [_point(float(pixel), end, bottom) for end in (float(within.min()), float(within.max()))]
    else:
        points = [_point(a, b, bottom) for a, b in zip(x.tolist(), values.tolist(), strict=True)]
    return f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{" ".join(points)}"/>'


def _point(x: float, value: float, bottom: int) -> str:
    return f"{_LEFT + x:.1f},{bottom - value * _HIGH:.1f}"


def _histogram(card: CardView, top: int, bottom: int) -> list[str]:
    histogram = card.use.histogram
    if histogram is None:
        return []
    most = max(histogram.counts)
    high = _HIGH / len(histogram.counts)
    out = [f'<text x="{_BARS}" y="{top - 8}" class="dim">readings by utilisation</text>']
    for i, count in enumerate(histogram.counts):
        if count:
            wide = _BARS_WIDE * count / most
            y = bottom - (i + 1) * high
            out.append(f'<rect x="{_BARS}" y="{y:.1f}" width="{wide:.1f}" height="{high - 1:.1f}" fill="{_UTIL}">')
            low, top_edge = (format_fraction(edge) for edge in histogram.edges[i : i + 2])
            out.append(f"<title>{low} to {top_edge}: {count} readings</title></rect>")
    return out

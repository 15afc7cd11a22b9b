"""Stacks as one SVG: a flame graph, outermost function on top, coloured by layer; the pointer shows name and share.

Opened by itself in a browser, a click zooms into a box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import PurePath

from kdaprof.analysis.stacks_holds import NO_STOPS, StopClock
from kdaprof.analysis.stacks_layers import Layer
from kdaprof.analysis.stacks_trace import ThreadStacks
from kdaprof.report.stacks import layer_name
from kdaprof.report.stacks_tree import Key, Node, is_line, label, shortened, tree
from kdaprof.report.stacks_zoom import zoom_script
from kdaprof.runs.units import format_fraction, format_ns

_WIDTH, _LEFT, _PLOT, _ROW, _TOP = 1200, 10, 1180, 18, 72
_NARROWEST = 1.0  # px: what is narrower is left out, with all inside it
_CHARACTER = 6.6
_NARROWEST_LINE = 20.0
_THREAD = "#dee2e6"
_HOW = (
    "as wide as the time in which a function was in the stack, asleep or at work, longest first; coloured by layer; "
    "click a box to zoom, a thread to see all"
)
_COLOURS: dict[Layer, str] = {
    "python": "#74b816",
    "autograd": "#f59f00",
    "dispatcher": "#f76707",
    "aten": "#e64980",
    "allocator": "#ae3ec9",
    "cuda_launch": "#1c7ed6",
    "sync": "#e03131",
    "triton_launcher": "#1098ad",
    "compile": "#7048e8",
    "import": "#868e96",
    "waiting": "#adb5bd",
    "unknown": "#ced4da",
}


@dataclass(frozen=True, slots=True)
class _Box:
    """A node where it stands: begin and width as parts of the whole, and its row."""

    x: float
    wide: float
    row: int
    key: Key
    node: Node


def flame_graph(stacks: Sequence[ThreadStacks], stops: StopClock = NO_STOPS) -> str:
    """SVG text; a thread a block, as wide as the time in which it was seen and not stopped by py-spy.

    All calls of a function from the same place are one box; below it the lines where its own time went.
    """
    root = tree(stacks, stops)
    boxes = list(_boxes(root, 0.0, 0, root.ns)) if root.ns else []
    height = _TOP + (max((box.row for box in boxes), default=0) + 1) * _ROW + 10
    used = {box.node.layer for box in boxes}
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="monospace" font-size="11" role="img">',
        "<style>text{fill:#212529}.head{font-family:sans-serif;font-size:14px}.box{cursor:pointer}"
        ".box:hover rect{fill-opacity:1}.box text{pointer-events:none}"
        "@media(prefers-color-scheme:dark){.head{fill:#f1f3f5}}</style>",
        f'<text class="head" x="{_LEFT}" y="20" font-weight="600">Host stacks, {format_ns(root.ns)} of threads</text>',
        f'<text class="head" x="{_LEFT}" y="38" style="font-size:12px">{_HOW}</text>',
        *_legend([layer for layer in _COLOURS if layer in used]),
    ]
    out += [_drawn(box, root.ns) for box in boxes]
    return "\n".join([*out, zoom_script(_LEFT, _PLOT, _CHARACTER), "</svg>", ""])


def _boxes(node: Node, left: float, row: int, total: float) -> Iterator[_Box]:
    for key, child in node.calls():
        wide = child.ns / total
        if wide * _PLOT >= (_NARROWEST_LINE if is_line(key) else _NARROWEST):
            yield _Box(left, wide, row, key, child)
            yield from _boxes(child, left, row + 1, total)
        left += wide


def _drawn(box: _Box, total: float) -> str:
    name, file = box.key
    x, wide, y = _LEFT + box.x * _PLOT, box.wide * _PLOT, _TOP + box.row * _ROW
    said = label(box.key)
    text = shortened(said, int((wide - 6) / _CHARACTER))
    place = f" ({PurePath(file).name})" if file else ""
    title = f"{(name or said)[:200]}{place}: {format_ns(box.node.ns)}, {format_fraction(box.node.ns / total)}"
    colour = _THREAD if box.node.layer is None else _COLOURS[box.node.layer]
    return (
        f'<g class="box" data-x="{box.x:.7f}" data-wide="{box.wide:.7f}" data-row="{box.row}" '
        f'data-label="{escape(said[:200])}"><title>{escape(title)}</title>'
        f'<rect x="{x:.2f}" y="{y}" width="{max(0.3, wide - 0.5):.2f}" '
        f'height="{_ROW - 1}" rx="2" fill="{colour}" fill-opacity="{0.4 if is_line(box.key) else 0.75}"/>'
        f'<text x="{x + 3:.2f}" y="{y + 13}">{escape(text)}</text></g>'
    )


def _legend(layers: Sequence[Layer]) -> Iterator[str]:
    x = float(_LEFT)
    for layer in layers:
        name = layer_name(layer)
        yield f'<rect x="{x:.0f}" y="48" width="11" height="11" fill="{_COLOURS[layer]}"/>'
        yield f'<text class="head" x="{x + 16:.0f}" y="58" style="font-size:12px">{name}</text>'
        x += 28 + 7.2 * len(name)

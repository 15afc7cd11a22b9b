"""Stacks as one SVG: a flame graph, outermost function on top, coloured by layer; the pointer shows name and share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import PurePath

from kdaprof.analysis.stacks_layers import Layer, layer_of
from kdaprof.analysis.stacks_trace import Frame, ThreadStacks
from kdaprof.runs.units import format_fraction, format_ns

_WIDTH, _LEFT, _PLOT, _ROW, _TOP = 1200, 10, 1180, 18, 56
_NARROWEST = 0.6  # px: what is narrower is left out, with all inside it
_CHARACTER = 6.6
_DEEPEST = 64
_COLOURS: dict[Layer, str] = {
    "python": "#74b816",
    "autograd": "#f59f00",
    "dispatcher": "#f76707",
    "aten": "#e8590c",
    "allocator": "#ae3ec9",
    "cuda_launch": "#1c7ed6",
    "sync": "#e03131",
    "triton_launcher": "#1098ad",
    "compile": "#7048e8",
    "import": "#868e96",
    "waiting": "#adb5bd",
    "unknown": "#ced4da",
}


@dataclass(slots=True)
class _Node:
    ns: int = 0
    inside: dict[tuple[str, str], _Node] = field(default_factory=dict)
    layer: Layer = "unknown"


def flame_graph(stacks: Sequence[ThreadStacks]) -> str:
    """SVG text; a thread a block, as wide as the time in which it was seen. Lines of one function are one box."""
    root = _Node()
    for thread in stacks:
        top = Frame(f"{thread.name or 'thread'} {thread.tid or ''}".strip(), "", 0)
        for stretch in thread.stretches:
            _add(root, (top, *stretch.frames), stretch.end_ns - stretch.start_ns)
    boxes = list(_boxes(root, _LEFT, 0, root.ns)) if root.ns else []
    depth = max((row for _, _, row, _ in boxes), default=0) + 1
    height = _TOP + depth * _ROW + 10
    used = {node.layer for _, _, _, (_, node) in boxes}
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="monospace" font-size="11" role="img">',
        "<style>text{fill:#212529}.head{font-family:sans-serif;font-size:14px}"
        "@media(prefers-color-scheme:dark){.head{fill:#f1f3f5}}</style>",
        f'<text class="head" x="{_LEFT}" y="20" font-weight="600">Host stacks, {format_ns(root.ns)} of threads</text>',
        *_legend([layer for layer in _COLOURS if layer in used]),
    ]
    out += [_box(x, wide, row, key, node, root.ns) for x, wide, row, (key, node) in boxes]
    return "\n".join([*out, "</svg>", ""])


def _add(root: _Node, frames: tuple[Frame, ...], ns: int) -> None:
    root.ns += ns
    node = root
    for depth, frame in enumerate(frames[:_DEEPEST]):
        key = (frame.name, frame.file)
        if key not in node.inside:
            node.inside[key] = _Node(layer=layer_of(frames[1 : depth + 1]) if depth else "unknown")
        node = node.inside[key]
        node.ns += ns


def _boxes(
    node: _Node, left: float, row: int, total: int
) -> Iterator[tuple[float, float, int, tuple[tuple[str, str], _Node]]]:
    for key, child in sorted(node.inside.items()):
        wide = _PLOT * child.ns / total
        if wide >= _NARROWEST:
            yield left, wide, row, (key, child)
            yield from _boxes(child, left, row + 1, total)
        left += wide


def _box(left: float, wide: float, row: int, key: tuple[str, str], node: _Node, total: int) -> str:
    name, file = key
    y = _TOP + row * _ROW
    room = int((wide - 6) / _CHARACTER)
    text = name if len(name) <= room else name[: room - 1] + "…" if room > 2 else ""
    place = f" ({PurePath(file).name})" if file else ""
    title = f"{name[:200]}{place}: {format_ns(node.ns)}, {format_fraction(node.ns / total)}"
    return (
        f'<g><title>{escape(title)}</title><rect x="{left:.2f}" y="{y}" width="{max(0.3, wide - 0.5):.2f}" '
        f'height="{_ROW - 1}" rx="2" fill="{_COLOURS[node.layer]}" fill-opacity="0.75"/>'
        f'<text x="{left + 3:.2f}" y="{y + 13}">{escape(text)}</text></g>'
    )


def _legend(layers: Sequence[Layer]) -> Iterator[str]:
    x = float(_LEFT)
    for layer in layers:
        name = layer.replace("_", " ")
        yield f'<rect x="{x:.0f}" y="30" width="11" height="11" fill="{_COLOURS[layer]}"/>'
        yield f'<text class="head" x="{x + 16:.0f}" y="40" style="font-size:12px">{name}</text>'
        x += 28 + 7.2 * len(name)

"""Stacks as a tree for a flame graph: frames of one function are one box, and what only fills rows is folded.

The import system's own frames stand four to a module between the modules that they load, and native code without
symbols has an address for a name: such frames are left out, or are one box where nothing else is inside them. A
module's body is named by its file, since all are called `<module>`. A function's own time has a box a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import numpy as np

from kdaprof.analysis.stacks_holds import NO_STOPS, StopClock
from kdaprof.analysis.stacks_layers import Layer, layer_of
from kdaprof.analysis.stacks_trace import Frame, ThreadStacks

_DEEPEST = 64
_IMPORTING = "<frozen importlib."
_LINE = "line "
_TEMPLATE = re.compile(r"<[^<>]*>")

Key = tuple[str, str]
"""A box: function and file."""


@dataclass(slots=True)
class Node:
    """A function below its callers: time (ns), and what it called. `layer` is None for a thread."""

    ns: float = 0.0
    layer: Layer | None = None
    inside: dict[Key, Node] = field(default_factory=dict)

    def calls(self) -> list[tuple[Key, Node]]:
        """What it called, longest first."""
        return sorted(self.inside.items(), key=lambda item: (-item[1].ns, item[0]))


def tree(stacks: Sequence[ThreadStacks], stops: StopClock = NO_STOPS) -> Node:
    """The root; a thread a node below it. Time in which py-spy stopped the process is nobody's."""
    root = Node()
    for thread in stacks:
        top = (f"{thread.name or 'thread'} {thread.tid or ''}".strip(), "")
        ends = np.array([(s.start_ns, s.end_ns) for s in thread.stretches], np.int64).reshape(-1, 2)
        lengths = np.diff(ends - stops.until(ends.reshape(-1)).reshape(-1, 2), axis=1).reshape(-1)
        for stretch, ns in zip(thread.stretches, lengths.tolist(), strict=True):
            node = _below(root, top, None)
            root.ns += ns
            node.ns += ns
            for key, layer in _folded(stretch.frames):
                node = _below(node, key, layer)
                node.ns += ns
    return root


def label(key: Key) -> str:
    """What a box says: a module's body by its file, a function by its name."""
    name, file = key
    if not name:
        return "(importing)" if file.startswith(_IMPORTING) else f"({PurePath(file).name})"
    return "/".join(PurePath(file).parts[-2:]) if name == "<module>" and file else name


def is_line(key: Key) -> bool:
    """Whether a box is a line of the function that it stands in."""
    return key[0].startswith(_LINE)


def shortened(text: str, room: int) -> str:
    """`text` in `room` characters: of a C++ name its last part says most; empty where nothing fits."""
    if len(text) > room and "::" in text:
        bare = text
        while (without := _TEMPLATE.sub("", bare)) != bare:
            bare = without
        text = bare.split("(")[0].rsplit("::", 1)[-1] or text
    if len(text) <= room:
        return text
    return text[: room - 1] + "…" if room > 2 else ""


def _below(node: Node, key: Key, layer: Layer | None) -> Node:
    if key not in node.inside:
        node.inside[key] = Node(layer=layer)
    return node.inside[key]


def _folded(frames: Sequence[Frame]) -> Iterator[tuple[Key, Layer]]:
    """The boxes of a stack, outermost first, each with the layer of the stack down to it."""
    shown = [at for at, frame in enumerate(frames) if not _quiet(frame)][:_DEEPEST]
    for at in shown:
        yield (frames[at].name, frames[at].file), layer_of(frames[: at + 1])
    last = shown[-1] if shown else -1
    if last + 1 < len(frames):
        yield ("", frames[-1].file), layer_of(frames)
    elif shown and frames[last].line:
        yield (f"{_LINE}{frames[last].line}", frames[last].file), layer_of(frames)


def _quiet(frame: Frame) -> bool:
    return frame.file.startswith(_IMPORTING) or frame.name.startswith("0x")

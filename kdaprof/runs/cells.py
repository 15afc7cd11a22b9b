"""What was run: shapes, cell keys and the ids that every table, file and link uses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kdaprof.errors import UsageError

# Axis names in the order of `--shape`; the chunk of an op (`--chunk`) is its last axis.
SHAPE_AXES: dict[str, tuple[str, ...]] = {
    "kda": ("B", "T", "H", "K", "V", "C"),
    "gdn": ("B", "T", "H", "K", "V", "C"),
    "gdn2": ("B", "T", "H", "K", "V", "C"),
    "precond_kda": ("B", "T", "H", "K", "V", "C"),
    "mha": ("B", "H", "T", "D"),
    "gemm": ("M", "K", "N"),
    "step": ("B", "T", "iters"),
    "target": ("steps",),
}
SWEPT_AXES = {"batch": "B", "seq": "T", "max_iter": "iters"}
"""What `sweep --over` takes, and the axis of a step's shape that it is."""
OWN_PATHS = ("fused", "tensor", "tensor-rows", "compiled", "reference")
PEER_PATHS = ("fla", "flashkda")
"""Other implementations, measured beside ours."""
PATHS = (*OWN_PATHS, *PEER_PATHS)
OWN_PATH = "own"
"""Path of a loop that does not call the op: nothing there can be taken for another."""
PHASES = ("fwd", "bwd", "fwdbwd")
MODES = ("eager", "graph")
CAPTURED_PARTS = ("graphed-callables", "reduce-overhead")
"""Modes of a step that capture parts of it: `torch.cuda.make_graphed_callables`, `torch.compile(mode=…)`."""
STEP_MODES = (*MODES, *CAPTURED_PARTS)
CONTEXTS = (
    "plain",
    "no_grad",
    "inference",
    "autocast",
    "checkpoint",
    "checkpoint-reentrant",
    "compile",
    "ddp",
    "vmap",
    "partial-grad",
    "non-contiguous",
)
DTYPES = ("float32", "bfloat16", "float16", "float64")
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8, "float8_e4m3fn": 1}
"""Of the op's dtypes, and of the one in which a matrix product alone is measured."""

_ID_PART = re.compile(r"[^A-Za-z0-9._+-]")


@dataclass(frozen=True, slots=True)
class CellKey:
    """One workload × path × context × mode × phase × shape × dtype."""

    workload: str
    path: str
    context: str
    mode: str
    phase: str
    shape: tuple[tuple[str, int], ...]
    dtype: str

    @property
    def id(self) -> str:
        """`kda/fused/plain/eager/fwd/B10-T512-H12-K64-V64-C16/float32`."""
        return "/".join((self.workload, self.path, self.context, self.mode, self.phase, self.extents, self.dtype))

    @property
    def extents(self) -> str:
        """The shape as it stands in the id: `B10-T512-H12-K64-V64-C16`."""
        return "-".join(f"{axis}{size}" for axis, size in self.shape)

    @property
    def slug(self) -> str:
        """The id as a file name."""
        return _ID_PART.sub("_", self.id)

    def size(self, axis: str) -> int:
        """Length of `axis`; KeyError when this workload has no such axis."""
        return dict(self.shape)[axis]

    def sibling(self, **changes: str) -> CellKey:
        """The same cell in another mode, phase or path."""
        values = {name: getattr(self, name) for name in ("workload", "path", "context", "mode", "phase", "dtype")}
        unknown = changes.keys() - values.keys()
        if unknown:
            raise TypeError(f"no such part of a cell: {sorted(unknown)}")
        return CellKey(shape=self.shape, **(values | changes))


def make_shape(workload: str, sizes: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
    """Named axes for a workload's sizes, in the order of `SHAPE_AXES`; UsageError when the count is wrong."""
    axes = SHAPE_AXES.get(workload)
    if axes is None:
        raise UsageError(f"workload {workload!r} is unknown; known: {', '.join(SHAPE_AXES)}")
    if len(sizes) != len(axes):
        raise UsageError(f"shape of {workload} needs {len(axes)} sizes ({','.join(axes)}), got {len(sizes)}")
    return tuple(zip(axes, sizes, strict=True))


_MOST_SIZE = 2**31 - 1
"""Of one axis. Tensors may be larger (offsets are int64), one axis of a grid or of a chunk loop may not."""

_MOST_DIGITS = 40
"""Python itself refuses to read numbers of some thousand digits."""


def parse_shape(text: str, axes: tuple[str, ...], *, flag: str = "--shape") -> tuple[int, ...]:
    """`10,512,12,64,64` → sizes; UsageError with the flag, what is wrong and an example."""
    parts = [part.strip() for part in text.split(",")]
    example = ",".join(axes)
    if len(parts) != len(axes):
        raise UsageError(f"{flag} {text!r}: needs {len(axes)} sizes, {example}; got {len(parts)}")
    sizes = []
    for axis, part in zip(axes, parts, strict=True):
        if part.isdecimal() and (len(part) > _MOST_DIGITS or int(part) > _MOST_SIZE):
            raise UsageError(f"{flag}: {axis} = {part[:_MOST_DIGITS]} is more than any tensor has ({_MOST_SIZE})")
        if not part.isdecimal() or int(part) < 1:
            raise UsageError(f"{flag} {text!r}: {axis} = {part!r} is not a whole number of 1 or more")
        sizes.append(int(part))
    return tuple(sizes)

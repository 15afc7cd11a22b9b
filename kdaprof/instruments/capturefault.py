"""Why a capture failed: which operation, on which line of whose code, and what to do about it.

The line is the innermost frame of the traceback that is neither torch's nor kdaprof's own machinery; its source
columns give the expression. Where the fault has no Python frame (autograd's thread), one more eager call under a
dispatch mode looks for the first operation that a capture cannot hold.
"""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kdaprof.errors import KdaprofError

STREAM_CAPTURE_UNSUPPORTED = 900
STREAM_CAPTURE_INVALIDATED = 901
_CODES = {
    "operation not permitted when stream is capturing": STREAM_CAPTURE_UNSUPPORTED,
    "cudaErrorStreamCaptureUnsupported": STREAM_CAPTURE_UNSUPPORTED,
    "operation failed due to a previous error during capture": STREAM_CAPTURE_INVALIDATED,
    "cudaErrorStreamCaptureInvalidated": STREAM_CAPTURE_INVALIDATED,
}
# Operations whose result the host needs, or whose shape depends on data: each waits for the device.
_WAITING = {
    "aten::_local_scalar_dense": "it brings a value to the host (.item(), float(), bool(), an index made of a tensor)",
    "aten::item": "it brings a value to the host",
    "aten::is_nonzero": "it brings a truth value to the host (if tensor:)",
    "aten::equal": "it brings a truth value to the host",
    "aten::nonzero": "its shape depends on data (nonzero, where with one argument, a mask as an index)",
    "aten::masked_select": "its shape depends on data",
    "aten::_unique2": "its shape depends on data",
    "aten::unique_dim": "its shape depends on data",
    "aten::unique_consecutive": "its shape depends on data",
    "aten::bincount": "its shape depends on data",
    "aten::repeat_interleave": "its shape depends on data unless output_size is given",
}
_COPIES = {"aten::_to_copy", "aten::copy_"}
_REFUSED_BY_TORCH = "during CUDA graph capture"
_GENERAL = "a capture only records: nothing in it may wait for the device or bring values to the host"


@dataclass(frozen=True, slots=True)
class CaptureFailure:
    """A capture that failed. `file` and `line` are of the user's code; `error_code` is CUDA's, 900 and 901 here."""

    operation: str | None
    file: str | None
    line: int | None
    function: str | None
    error_type: str
    error_text: str
    error_code: int | None
    hint: str

    @property
    def where(self) -> str | None:
        """`file:line in function`; None when no line of the user's is known."""
        return None if self.file is None else f"{self.file}:{self.line} in {self.function}"

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return f"capture failed{place}: {self.operation or 'unknown operation'}: {self.error_text}. {self.hint}"


class CaptureError(KdaprofError):
    """A failed capture, for callers that want an exception."""

    def __init__(self, failure: CaptureFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


@dataclass(frozen=True, slots=True)
class UnsafeOperation:
    """An operation that a capture cannot hold, the reason, and the frame that called it."""

    operation: str
    reason: str
    frame: traceback.FrameSummary | None


def explain(
    error: BaseException, *, rerun: Callable[[], object] | None = None, device_type: str = "cuda"
) -> CaptureFailure:
    """What `error`, raised during a capture, means.

    `rerun` is called once, eagerly, to find the operation; an error in it is ignored. Side effects of that call
    are those of one more warm-up call.
    """
    frame = user_frame(traceback.extract_tb(error.__traceback__))
    unsafe = find_unsafe_operation(rerun, device_type=device_type) if rerun is not None else None
    code = error_code(error)
    if unsafe is not None and unsafe.frame is not None:
        frame = unsafe.frame
    expression = _expression(frame)
    operation = unsafe.operation if unsafe else expression
    if unsafe is not None and expression is not None:
        operation = f"{unsafe.operation} in `{expression}`"
    return CaptureFailure(
        operation=operation,
        file=frame.filename if frame else None,
        line=frame.lineno if frame else None,
        function=frame.name if frame else None,
        error_type=type(error).__name__,
        error_text=_first_line(error),
        error_code=code,
        hint=_hint(code, unsafe, error),
    )


def error_code(error: BaseException) -> int | None:
    """CUDA's error number, from the exception or from its words; None when it is another kind of error."""
    number = getattr(error, "error_code", None)
    if isinstance(number, int):
        return number
    return next((code for words, code in _CODES.items() if words in str(error)), None)


def user_frame(frames: traceback.StackSummary) -> traceback.FrameSummary | None:
    """The innermost frame outside torch and kdaprof; else the innermost one outside torch and the instruments."""
    outside_torch = [
        f
        for f in frames
        if not (_inside(f.filename, _TORCH) or _inside(f.filename, _TRITON) or f.filename.startswith("<"))
    ]
    users = [f for f in outside_torch if not _inside(f.filename, _KDAPROF)]
    ours = [f for f in outside_torch if not _inside(f.filename, _INSTRUMENTS)]
    return users[-1] if users else ours[-1] if ours else None


def find_unsafe_operation(fn: Callable[[], object], *, device_type: str = "cuda") -> UnsafeOperation | None:
    """Run `fn` eagerly and name its first operation that waits for a device of this type; None when there is none."""
    finder = _Finder(device_type)
    try:
        with finder:
            fn()
    except Exception:  # the run is only there to look; its own errors were reported by the capture
        return finder.found
    return finder.found


class _Finder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, device_type: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device_type = device_type
        self.found: UnsafeOperation | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.found is None:
            reason = self._reason(func, args, kwargs or {})
            if reason is not None:
                frames = traceback.extract_stack()
                self.found = UnsafeOperation(func.name().split(".")[0], reason, user_frame(frames))
        return func(*args, **(kwargs or {}))

    def _reason(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        name = func.name().split(".")[0]
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        here = [t for t in tensors if t.device.type == self._device_type]
        if name in _WAITING and here:
            return None if name == "aten::repeat_interleave" and kwargs.get("output_size") else _WAITING[name]
        if name in _COPIES and tensors:
            return self._copy_reason(name, tensors, kwargs)
        if name == "aten::index" and here and any(_is_mask(index) for index in args[1]):
            return "its shape depends on data (a mask as an index)"
        return None

    def _copy_reason(self, name: str, tensors: list[torch.Tensor], kwargs: dict[str, Any]) -> str | None:
        source = tensors[-1]
        target = torch.device(kwargs.get("device") or source.device) if name == "aten::_to_copy" else None
        target_type = target.type if target else tensors[0].device.type
        kinds = (source.device.type, target_type)
        if self._device_type not in kinds or kinds[0] == kinds[1]:
            return None
        if kinds[0] == "cpu" and source.is_pinned() and kwargs.get("non_blocking"):
            return None
        direction = "from pageable host memory" if kinds[0] == "cpu" else "to the host"
        return f"it copies {direction}, which waits"


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


_TORCH = str(Path(torch.__file__).parent)
_TRITON = str(Path(torch.__file__).parent.parent / "triton")
_INSTRUMENTS = str(Path(__file__).parent)
_KDAPROF = str(Path(__file__).parent.parent)


def _inside(filename: str, root: str) -> bool:
    return filename.startswith(f"{root}/")


def _expression(frame: traceback.FrameSummary | None) -> str | None:
    """The source text of the failing expression: the frame's columns, else its whole line."""
    if frame is None or not frame.line:
        return None
    line = linecache.getline(frame.filename, frame.lineno or 0)
    begin, end = frame.colno, frame.end_colno
    if begin is not None and end is not None and frame.lineno == frame.end_lineno:
        # Columns count bytes of UTF-8.
        return line.encode()[begin:end].decode(errors="replace").strip() or frame.line
    return frame.line.removeprefix("return ")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return re.sub(r"\s+", " ", lines[0]) if lines else type(error).__name__


def _hint(code: int | None, unsafe: UnsafeOperation | None, error: BaseException) -> str:
    cause = f"{unsafe.operation} cannot be captured: {unsafe.reason}. " if unsafe else ""
    if code == STREAM_CAPTURE_UNSUPPORTED:
        return (
            f"{cause}Error 900 (cudaErrorStreamCaptureUnsupported): {_GENERAL}. Usual causes: .item(), .cpu(), "
            "synchronize(), a copy from pageable memory, a shape that depends on data. Move it out of the call, or "
            "keep its result on the device"
        )
    if code == STREAM_CAPTURE_INVALIDATED:
        return f"{cause}Error 901: an earlier operation broke the capture, and this one only noticed"
    if _REFUSED_BY_TORCH in str(error):
        return f"{cause}torch itself refuses this inside a capture: {_GENERAL}"
    if isinstance(error, torch.OutOfMemoryError):
        return "A graph keeps a memory pool of its own beside the eager one: free memory, or use a smaller shape"
    return f"{cause}Not a capture error of CUDA's: see whether the same call runs eagerly; {_GENERAL}"

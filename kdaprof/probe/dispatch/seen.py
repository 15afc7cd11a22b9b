"""What really ran: kernels of one call on the device, operators under a dispatch mode, functions by their module."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from kdaprof.analysis.recordings import kernels_of, launches_of, read_recording
from kdaprof.analysis.view import KernelRow
from kdaprof.errors import UnavailableError
from kdaprof.instruments.clock import Clock
from kdaprof.instruments.device import Device
from kdaprof.instruments.kineto import record
from kdaprof.timeline import kineto as reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Kernels of one call, and its launches; empty and None without a device."""

    kernels: tuple[KernelRow, ...] = ()
    launches: int | None = None


def kernels_of_call(call: Callable[[], object], device: Device, clock: Clock) -> Seen:
    """Record one call on the device; nothing on a CPU, or where another profiler holds the device's records."""
    if device.kind != "cuda":
        return Seen()
    with tempfile.TemporaryDirectory(prefix="kdaprof-dispatch-") as folder:
        trace = Path(folder) / "trace.json.gz"
        try:
            made = record(call, 1, mode="cuda", device=device, clock=clock, out_path=trace, warmup=1)
        except UnavailableError:
            return Seen()
        recording = read_recording(reader.read(made.path))
    launches = next((count for _, count in launches_of(recording)), None)
    return Seen(kernels=kernels_of(recording), launches=launches)


class OperatorsSeen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the names of the operators that run inside it, in order, each once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the operator and run it."""
        name = str(func).rpartition(".")[0]
        self.names[name] = self.names.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


@contextmanager
def functions_seen(wanted: Callable[[str], bool]) -> Iterator[dict[str, int]]:
    """Collect `module.function` of the Python functions with a wanted name that run in this thread, with their calls.

    A wrapper counts under the name of its code, so what it hands the call to is seen beside it.
    """
    found: dict[str, int] = {}

    def note(frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_code.co_name
        if event == "call" and wanted(name):
            full = f"{frame.f_globals.get('__name__')}.{name}"
            found[full] = found.get(full, 0) + 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)

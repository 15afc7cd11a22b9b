"""Who else may hold CUPTI in this process: one subscriber at a time, and the second one records nothing.

Looked for before the run, in what an injected profiler leaves behind: its variables and its libraries.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

# Set in the process that Nsight Systems, Nsight Compute or another injected tool starts.
_VARIABLES = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems (nsys profile)",
    "CUDA_INJECTION64_PATH": "a tool injected by CUDA_INJECTION64_PATH",
    "NV_NSIGHT_INJECTION_TRANSPORT_TYPE": "Nsight Compute (ncu)",
    "NV_COMPUTE_PROFILER_PERFWORKS_DIR": "Nsight Compute (ncu)",
}
_LIBRARIES = {
    "libToolsInjection64": "Nsight Systems (nsys profile)",
    "libcuda-injection": "Nsight Compute (ncu)",
    "libsanitizer-public": "compute-sanitizer",
    "librocprofiler": "a ROCm profiler",
}


def conflict(*, uses_cupti: bool, environ: Mapping[str, str] | None = None, maps: str | None = None) -> str | None:
    """One line that names the other profiler, or None. `maps` is the text of /proc/self/maps, for tests."""
    if torch_profiler_is_on():
        return "a torch.profiler is already recording in this process: stop it, only one can record"
    if not uses_cupti:
        return None
    environ = os.environ if environ is None else environ
    holder = next((tool for name, tool in _VARIABLES.items() if environ.get(name)), None)
    if holder is None:
        loaded = _own_maps() if maps is None else maps
        holder = next((tool for library, tool in _LIBRARIES.items() if library in loaded), None)
    if holder is None:
        return None
    return f"{holder} holds CUPTI in this process: run kdaprof without it, or use that tool's own trace"


def torch_profiler_is_on() -> bool:
    """Whether a torch profiler records in this process; False where torch was never imported."""
    torch = sys.modules.get("torch")
    return bool(torch is not None and torch._C._autograd._profiler_enabled())


def _own_maps() -> str:
    try:
        return Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

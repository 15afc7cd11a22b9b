"""Operations and bytes of a cell's call, and the ceiling that its arithmetic is held against."""

from __future__ import annotations

from kdaprof.kda.cost import OpSize, compulsory, flops, moved_bytes
from kdaprof.kda.traffic import path_traffic
from kdaprof.runs.cells import CellKey
from kdaprof.runs.record import Work


def work_of(key: CellKey) -> Work:
    """FLOPs, compulsory bytes and the path's own bytes of one call; `rate` names the measured ceiling to use."""
    size = OpSize.of(key.shape)
    return Work(
        flops=flops(key.phase, size),
        bytes_compulsory=moved_bytes(compulsory(key.phase, size, key.dtype)),
        bytes_path=path_traffic(key.path, key.phase, size, key.dtype).bytes,
        rate=_rate(key),
    )


def _rate(key: CellKey) -> str:
    if key.dtype == "float32" and key.path == "fused":
        return "matmul_tf32x3"  # the instruction that the kernels really issue
    return f"matmul_{key.dtype}"

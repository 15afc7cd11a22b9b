"""What ran, by the names of kernels: ours, FLA, FlashKDA, inductor, cuBLAS, element-wise; and by shape alone.

A region that goes through tensor operations is recognised without any name of ours: many small aten kernels under
one annotation, with the device waiting between them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kdaprof.analysis.trace.context import Context, DeviceView
from kdaprof.analysis.trace.launches import kernel_rows
from kdaprof.analysis.trace.phases import PhaseRow
from kdaprof.timeline.columns import DEVICE_KINDS, Index, Kind

TENSOR_SHAPE_SHARE = 0.8
"""A tensor-path region is made of general kernels (aten, BLAS, copies) by at least this share of its events."""

TENSOR_SHAPE_BLAS = 0.10
"""… at least this share of its events are matrix products: element-wise work alone is an optimizer or a fill."""

TENSOR_SHAPE_IDLE = 0.5
"""… and the device idles for at least this share of it."""

GENERAL = ("aten", "blas", "copy", "set")

_FAMILIES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("kdaprof", re.compile(r"kdaprof_")),
    ("flashkda", re.compile(r"(?i)flash_?kda")),
    (
        "fla",
        re.compile(
            r"(chunk_kda|kda_|fused_recurrent_(kda|gated_delta|gla|delta)|chunk_gated_delta|chunk_delta_rule|chunk_gla"
            r"|chunk_fwd_(kernel_o|o|h)|chunk_bwd_(kernel|d)|chunk_local_cumsum|chunk_global_cumsum|recompute_w_u"
            r"|prepare_wy_repr|chunk_scaled_dot_kkt|solve_tril|merge_\d+x\d+_to_\d+x\d+_inverse|l2norm_(fwd|bwd)"
            r"|layer_norm_gated|chunk_(intra|inter))"
        ),
    ),
    ("inductor", re.compile(r"triton_(poi|red|per|tem|mm|for|spl|unk)_")),
    ("attention", re.compile(r"(?i)(flash_(fwd|bwd)|fmha|flash_attn|pytorch_flash|efficient_attention|cudnn.*sdpa)")),
    ("nccl", re.compile(r"(?i)(ncclDevKernel|ncclKernel|rccl)")),
    ("blas", re.compile(r"(?i)(gemm|gemv|cublas|cutlass|xmma|splitK|trsm|trmm|nvjet|Cijk_|rocblas|batched_transpose)")),
    ("conv", re.compile(r"(?i)(cudnn|miopen|conv|implicit_con|winograd|cask_)")),
    ("aten", re.compile(r"(at::native|at_cuda_detail|at::cuda|at::|cub::|thrust::|SubTensorOp|elementwise_kernel)")),
)
TRITON_OTHER = "triton-or-own"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRow:
    """Device events of one family, in a region or (region None) on the whole device; rows add up to its busy time."""

    region: str | None
    family: str
    kernels: int
    busy_ns: int
    share: float
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorShape:
    """A region that has the shape of a tensor path."""

    region: str
    kernels_per_call: float
    median_kernel_ns: int
    general_share: float
    idle_share: float


@lru_cache(maxsize=65536)
def family(name: str, kind: Kind) -> str:
    """Which family a device event belongs to."""
    if kind == Kind.MEMCPY:
        return "copy"
    if kind == Kind.MEMSET:
        return "set"
    for label, pattern in _FAMILIES:
        if pattern.search(name):
            return label
    return TRITON_OTHER


def path_table(context: Context, view: DeviceView, phases: tuple[PhaseRow, ...], top: int = 5) -> tuple[PathRow, ...]:
    """Families on the whole device, then in the longest regions."""
    rows = view.work.rows
    table = list(_families(context, view, rows, None))
    for phase in _busiest(phases)[:top]:
        table += _families(context, view, region_rows(context, view, phase.name), phase.name)
    return tuple(table)


def tensor_shapes(context: Context, view: DeviceView, phases: tuple[PhaseRow, ...]) -> tuple[TensorShape, ...]:
    """Regions that look like a tensor path: tiny general kernels, launched one by one into a waiting device."""
    found = []
    for phase in phases:
        time_ns = phase.total_busy_ns + phase.total_idle_ns
        if not phase.tiny_kernels or phase.median_kernel_ns is None or not time_ns:
            continue
        idle = phase.total_idle_ns / time_ns
        rows = region_rows(context, view, phase.name)
        general, blas = _share_of(context, rows, GENERAL), _share_of(context, rows, ("blas",))
        if idle >= TENSOR_SHAPE_IDLE and general >= TENSOR_SHAPE_SHARE and blas >= TENSOR_SHAPE_BLAS:
            found.append(
                TensorShape(
                    region=phase.name,
                    kernels_per_call=phase.total_device_events / phase.calls,
                    median_kernel_ns=phase.median_kernel_ns,
                    general_share=general,
                    idle_share=idle,
                )
            )
    return tuple(found)


def region_rows(context: Context, view: DeviceView, name: str) -> Index:
    """Device events in view launched in annotations of this name, nested ones included."""
    ranges = context.ranges
    inside = np.zeros(len(ranges) + 1, dtype=np.bool_)  # the last one answers for "outside all"
    names = context.timeline.names
    wanted = {index for index, text in enumerate(names) if text == name}
    inside[:-1] = np.isin(ranges.name, list(wanted))
    for index in np.argsort(ranges.depth, kind="stable").tolist():
        if ranges.parent[index] >= 0 and inside[ranges.parent[index]]:
            inside[index] = True
    rows = view.work.rows
    chosen: Index = rows[inside[context.range_of[rows]]]
    return chosen


def _busiest(phases: tuple[PhaseRow, ...]) -> list[PhaseRow]:
    seen: dict[str, PhaseRow] = {}
    for phase in phases:
        if phase.total_device_events:
            seen.setdefault(phase.name, phase)
    return list(seen.values())


def _families(context: Context, view: DeviceView, rows: Index, region: str | None) -> list[PathRow]:
    grouped: dict[str, list[tuple[int, int, str]]] = {}
    for row in kernel_rows(context.timeline, view.device, rows):
        grouped.setdefault(family(row.name, row.kind), []).append((row.busy_ns, row.calls, row.name))
    total = sum(busy for members in grouped.values() for busy, _, _ in members)
    table = [
        PathRow(
            region=region,
            family=label,
            kernels=sum(calls for _, calls, _ in members),
            busy_ns=sum(busy for busy, _, _ in members),
            share=sum(busy for busy, _, _ in members) / total if total else 0.0,
            example=max(members)[2],
        )
        for label, members in grouped.items()
    ]
    return sorted(table, key=lambda row: (-row.busy_ns, row.family))


def _share_of(context: Context, rows: Index, families: tuple[str, ...]) -> float:
    """Share of these events that belong to the families, counted once for each name."""
    timeline = context.timeline
    if not rows.size:
        return 0.0
    found = 0
    for kind in DEVICE_KINDS:
        counts = np.bincount(timeline.name[rows[timeline.kind[rows] == kind]])
        for name in np.flatnonzero(counts).tolist():
            found += int(counts[name]) if family(timeline.names[name], kind) in families else 0
    return found / int(rows.size)

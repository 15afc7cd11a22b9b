"""Stages of a call by its kernels: device time, and the share of the call's wall that it could ever give back."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kdaprof.analysis.view import KernelRow
from kdaprof.runs.results import Stage

_OWN = re.compile(r"^kdaprof_[a-z0-9]+?_(?:(fwd|bwd)_)?(\w+)$")

# The first pattern that is found in a kernel's short name (base name and functor; template arguments name types such
# as `IndexType` that say nothing of the work) gives its stage.
_FAMILIES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (stage, re.compile(pattern))
    for stage, pattern in (
        ("inductor, fused", r"^triton_(poi|red|per|for|fused)_"),
        ("inductor, matmul", r"^triton_tem_"),
        ("copy between devices and host", r"^Memcpy (HtoD|DtoH|PtoP)"),
        ("copy", r"(?i)^Memcpy|copy_kernel|copy_device_to_device|transpose"),
        ("fill", r"^Memset|FillFunctor|(?<!masked_)fill_kernel"),
        ("triangular solve", r"(?i)trsm|trsv|triangular"),
        ("attention", r"(?i)flash|fmha|attention"),
        ("convolution", r"(?i)igemm|conv|wgrad|dgrad|winograd"),
        ("matmul", r"(?i)gemm|gemv|nvjet|cutlass|cublas|splitk|dot_kernel|xmma|^Cijk_"),
        ("cumulative sum", r"(?i)scan|cumsum"),
        ("concatenate", r"CatArray"),
        ("triangle mask", r"(?i)triu_tril"),
        ("exp", r"(?i)exp_kernel|exp2_kernel"),
        ("normalise", r"(?i)norm(?!al)|softmax"),
        ("sum", r"(?i)reduce_kernel|sum_functor"),
        ("index", r"(?i)index|gather|scatter"),
        ("random", r"(?i)distribution|philox|random"),
        ("element-wise", r"(?i)elementwise|pointwise|foreach|multi_tensor"),
    )
)
OTHER = "other"

# What an element-wise kernel really does stands in its template arguments, inside wrappers that all of them share.
_FUNCTOR = re.compile(r"\w*[Ff]unctor\w*|\w+_kernel(?:_cuda|_impl)?(?=[<(])")
_WRAPPER = re.compile(r"(Binary|[AB]?Unary|Tensor\w*)Functor$|gpu_kernel")


def stage_of(kernel: str) -> tuple[str | None, str]:
    """(direction, stage) of a kernel: our own say theirs, the others are recognised by their names."""
    own = _OWN.match(kernel)
    if own is not None:
        return own.group(1), own.group(2).replace("_", " ")
    short = short_kernel(kernel, len(kernel))
    return None, next((stage for stage, pattern in _FAMILIES if pattern.search(short)), OTHER)


def stages_of(kernels: Sequence[KernelRow], wall_ns: float | None) -> tuple[Stage, ...]:
    """Stages by device time, longest first. `share` is of the call's wall: Amdahl's limit of speeding it up.

    A stage of one kernel name is that; of several, the family with the name that takes longest, so that it can be
    found in a trace. `kernels` counts launches. `wall_ns` None or 0: no share.
    """
    directions = {direction for direction, _ in (stage_of(row.name) for row in kernels) if direction}
    groups: dict[str, list[KernelRow]] = {}
    for row in kernels:
        direction, stage = stage_of(row.name)
        name = f"{'forward' if direction == 'fwd' else 'backward'} {stage}" if direction else stage
        groups.setdefault(name if direction and len(directions) > 1 else stage, []).append(row)
    stages = (
        Stage(
            name=_named(stage, rows),
            kernels=sum(row.calls for row in rows),
            busy_ns=(busy := sum(row.busy_ns for row in rows)),
            share=busy / wall_ns if wall_ns else None,
        )
        for stage, rows in groups.items()
    )
    return tuple(sorted(stages, key=lambda stage: (-stage.busy_ns, stage.name)))


def _named(stage: str, rows: Sequence[KernelRow]) -> str:
    longest = max(rows, key=lambda row: (row.busy_ns, row.name)).name
    if _OWN.match(longest):
        return stage
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"{stage} ({short_kernel(longest)}{more})"


def short_kernel(name: str, limit: int = 60) -> str:
    """A kernel's name without return type, template arguments and parameters; cut at `limit` characters."""
    if not name.startswith(("Memcpy", "Memset")):
        plain = name.replace("(anonymous namespace)::", "").removeprefix("void ")
        parts = [part.rsplit("::", 1)[-1].strip() for part in re.split(r"[<(,]", plain)]
        base = parts[1] if parts[0].startswith("Kernel") and len(parts) > 1 else parts[0]  # cutlass::Kernel2<…>
        inner = [word for word in _FUNCTOR.findall(plain) if word not in base and not _WRAPPER.match(word)]
        name = f"{base}: {inner[-1]}" if inner else base
    return name if len(name) <= limit else name[: limit - 1] + "…"

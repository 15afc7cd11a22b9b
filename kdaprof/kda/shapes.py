"""What the op takes: the shape words, and the checks that raise one clear line before anything is launched."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from kdaprof.errors import UsageError
from kdaprof.kda.decision import Op

FLOAT_DTYPES: Final = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class ShapeError(UsageError, ValueError):
    """A tensor has a shape the op has no meaning for; the message names the expected one."""


class DtypeError(UsageError, TypeError):
    """A tensor has a dtype the op does not take, or dtypes that may not be mixed."""


class DeviceError(UsageError, ValueError):
    """The tensors of one call are on different devices."""


@dataclass(frozen=True, slots=True)
class OpShape:
    """One call's extents: B batch, T tokens, H heads, K key channels, V value channels."""

    B: int
    T: int
    H: int
    K: int
    V: int

    def chunks(self, chunk: int) -> int:
        """How many chunks of `chunk` tokens cover T; the last one may be short."""
        return -(-self.T // chunk)


def accumulate_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the state and of all sums: float64 for float64, float32 for everything else."""
    return torch.float64 if dtype is torch.float64 else torch.float32


class Operands(NamedTuple):
    """The tensors of one call, GDN-2's way: KDA is the case where b and w are the same gate, beta."""

    q: Tensor
    """Queries [B, T, H, K]."""
    k: Tensor
    """Keys [B, T, H, K]."""
    v: Tensor
    """Values [B, T, H, V]."""
    g: Tensor
    """Natural-log decay [B, T, H, K], at most 0."""
    b: Tensor
    """Erase gate [B, T, H, K], or [B, T, H, 1] for one gate a head."""
    w: Tensor
    """Write gate [B, T, H, V], or [B, T, H, 1] for one gate a head."""


def check_kda(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *, initial_state: Tensor | None = None
) -> OpShape:
    """The extents of a KDA call, or one clear line about its first fault. Reads no value, never synchronises.

    q, k, g [B, T, H, K]; v [B, T, H, V]; beta [B, T, H]; initial_state [B, H, K, V].

    Raises: ShapeError, DtypeError, DeviceError; all are UsageErrors, and ValueErrors or TypeErrors as well.
    """
    shape = _check_common({"q": q, "k": k, "v": v, "g": g, "beta": beta, "initial_state": initial_state})
    _expect("beta", beta, (shape.B, shape.T, shape.H), "[B, T, H], one gate a head")
    return shape


def check_gdn2(x: Operands, *, initial_state: Tensor | None = None) -> OpShape:
    """The extents of a GDN-2 call (b [B, T, H, K], w [B, T, H, V]), or one clear line; as `check_kda`."""
    shape = _check_common({**x._asdict(), "initial_state": initial_state})
    B, T, H, K, V = shape.B, shape.T, shape.H, shape.K, shape.V
    _expect("b", x.b, (B, T, H, K), "[B, T, H, K], one erase gate a key channel")
    _expect("w", x.w, (B, T, H, V), "[B, T, H, V], one write gate a value channel")
    return shape


def check_call(op: Op, x: Operands, initial_state: Tensor | None, chunk: int) -> OpShape:
    """The extents of a call of either op, its chunk checked too; KDA passes beta as `b` and `w`."""
    check_chunk(chunk)
    if op == "kda":
        return check_kda(x.q, x.k, x.v, x.g, x.b, initial_state=initial_state)
    return check_gdn2(x, initial_state=initial_state)


def _check_common(tensors: dict[str, Tensor | None]) -> OpShape:
    given: dict[str, Tensor] = {}
    for name, x in tensors.items():
        if x is None and name == "initial_state":
            continue
        if not isinstance(x, Tensor):
            raise DtypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}")
        if x.is_nested:
            raise DtypeError(f"{name} is a nested tensor; expected a dense one: pad it, or call once a sequence")
        if x.layout is not torch.strided:
            kind = str(x.layout).removeprefix("torch.")
            raise DtypeError(f"{name} has layout {kind}; expected a dense tensor: {name}.to_dense()")
        given[name] = x
    q, v, state = given["q"], given["v"], given.get("initial_state")
    if q.dim() != 4 or min(q.shape[1:]) < 1:
        raise ShapeError(f"q has shape {tuple(q.shape)}; expected [B, T, H, K] with T, H and K at least 1")
    B, T, H, K = q.shape
    _expect("k", given["k"], (B, T, H, K), "[B, T, H, K], the shape of q,")
    if v.dim() != 4 or tuple(v.shape[:3]) != (B, T, H) or v.shape[3] < 1:
        raise ShapeError(f"v has shape {tuple(v.shape)}; expected [B, T, H, V] = ({B}, {T}, {H}, V) to go with q")
    V = v.shape[3]
    _expect("g", given["g"], (B, T, H, K), "[B, T, H, K], one decay for every key channel,")
    if state is not None:
        _expect("initial_state", state, (B, H, K, V), "[B, H, K, V]")
    _check_dtypes(given)
    for name, x in given.items():
        if x.device != q.device:
            raise DeviceError(f"{name} is on {x.device} and q on {q.device}; all must be on one device")
    return OpShape(B, T, H, K, V)


def _expect(name: str, x: Tensor, want: tuple[int, ...], words: str) -> None:
    if tuple(x.shape) == want:
        return
    hint = ""
    if name == "g" and tuple(x.shape) == want[:3]:
        hint = "; a decay a head must be expanded: g[..., None].expand(-1, -1, -1, K)"
    raise ShapeError(f"{name} has shape {tuple(x.shape)}; expected {words} = {want}{hint}")


def _check_dtypes(given: dict[str, Tensor]) -> None:
    q_dtype = given["q"].dtype
    for name, x in given.items():
        if x.dtype not in FLOAT_DTYPES:
            raise DtypeError(f"{name} is {dtype_name(x.dtype)}; expected float32, bfloat16, float16 or float64")
        # Half and float32 mix freely: autocast hands over q in bfloat16 and a normalised k in float32. A float64
        # tensor beside others is a mistake: the call would run at the accuracy of neither.
        if (x.dtype is torch.float64) != (q_dtype is torch.float64):
            raise DtypeError(
                f"{name} is {dtype_name(x.dtype)} and q {dtype_name(q_dtype)}; float64 does not mix with others"
            )


def check_chunk(chunk: int) -> None:
    """Raise UsageError unless `chunk` is a whole number of at least 1."""
    if not isinstance(chunk, int) or isinstance(chunk, bool) or chunk < 1:
        raise UsageError(f"chunk must be a whole number of at least 1, got {chunk!r}")


def check_scale(scale: float) -> None:
    """Raise UsageError unless `scale` is a finite number (a tensor would have to be read from the device)."""
    if not (isinstance(scale, int | float) and math.isfinite(scale)):
        raise UsageError(f"scale must be a finite number, got {scale!r}")


def common_dtype(x: Operands) -> torch.dtype:
    """The widest dtype of q, k and v."""
    return torch.promote_types(torch.promote_types(x.q.dtype, x.k.dtype), x.v.dtype)


def state_before(x: Operands, initial_state: Tensor | None) -> Tensor:
    """The state before the first token, [B, H, K, V] in the dtype of the sums."""
    acc = accumulate_dtype(x.v.dtype)
    if initial_state is not None:
        return initial_state.to(acc)
    B, _, H, K = x.q.shape
    return x.q.new_zeros((B, H, K, x.v.shape[3]), dtype=acc)


def dtype_name(dtype: torch.dtype) -> str:
    """Torch's own name without its module: `float32`."""
    return str(dtype).removeprefix("torch.")

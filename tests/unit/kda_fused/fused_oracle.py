"""The recurrence of KDA in float64, inputs and errors: what the fused kernels' tests compare with."""

from __future__ import annotations

import torch
from torch import Tensor

NAMES = ("q", "k", "v", "g", "beta", "h0")
Shape = tuple[int, int, int, int, int]


def recurrence(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *, scale: float, initial_state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Token by token, as in the op's definition; differentiable by autograd. Returns o and the final state."""
    batch, _, heads, k_dim = q.shape
    state = q.new_zeros(batch, heads, k_dim, v.shape[-1]) if initial_state is None else initial_state
    outputs = []
    for q_t, k_t, v_t, g_t, b_t in zip(*(x.unbind(1) for x in (q, k, v, g, beta)), strict=True):
        state = state * g_t.exp().unsqueeze(-1)
        delta = b_t.unsqueeze(-1) * (v_t - (k_t.unsqueeze(-2) @ state).squeeze(-2))
        state = state + k_t.unsqueeze(-1) * delta.unsqueeze(-2)
        outputs.append(scale * (q_t.unsqueeze(-2) @ state).squeeze(-2))
    return torch.stack(outputs, 1), state


def inputs(shape: Shape, low: float, high: float, dtype: torch.dtype, device: str = "cpu") -> dict[str, Tensor]:
    """Seeded q, k (normalised), v, g in [low, high], beta in [0, 1], and a float32 state."""
    B, T, H, K, V = shape
    make = torch.Generator(device).manual_seed(T * 1000 + K + V)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=make, device=device)

    made = {
        "q": torch.nn.functional.normalize(normal(B, T, H, K), dim=-1),
        "k": torch.nn.functional.normalize(normal(B, T, H, K), dim=-1),
        "v": normal(B, T, H, V),
        "g": low + (high - low) * torch.rand(B, T, H, K, generator=make, device=device),
        "beta": torch.rand(B, T, H, generator=make, device=device),
    }
    made = {name: x.to(dtype) for name, x in made.items()}
    made["h0"] = normal(B, H, K, V)
    return made


def error(got: Tensor, want: Tensor) -> float:
    """Relative L2."""
    return ((got.double() - want.double()).norm() / want.double().norm().clamp_min(1e-30)).item()


def strike(made: dict[str, Tensor]) -> None:
    """Single tokens and channels forget everything, between others that keep nearly everything."""
    made["g"][:, 5] = -100.0
    made["g"][:, 20, :, ::2] = -100.0
    made["g"][:, 30:] = 0.0


def same_keys(made: dict[str, Tensor]) -> None:
    """All keys equal, beta 1, no decay: I + L is the matrix whose inverse a product of powers loses digits on."""
    made["k"][:] = made["k"][:, :1]
    made["beta"][:] = 1.0
    made["g"][:] = 0.0


def against_recurrence(
    fused: object, shape: Shape, *, low: float = -0.108, high: float = 0.0, dtype: torch.dtype = torch.float32,
    states: bool = True, edit: object = None, device: str = "cpu", precision: str = "tf32x3",
) -> dict[str, object]:  # fmt: skip
    """Relative L2 of outputs and every gradient against float64, and whether all of it is finite."""
    made = inputs(shape, low, high, dtype, device)
    if edit is not None:
        edit(made)
    leaves = [made[name].requires_grad_() for name in NAMES]
    scale = shape[3] ** -0.5
    h0 = leaves[5] if states else None
    o, ht = fused(*leaves[:5], scale=scale, initial_state=h0, output_final_state=states, precision=precision)
    make = torch.Generator(device).manual_seed(1)
    do = torch.randn(o.shape, generator=make, device=device).to(o.dtype)
    dht = torch.randn(leaves[5].shape, generator=make, device=device)
    wide = [x.detach().double().requires_grad_() for x in leaves]
    ro, rht = recurrence(*wide[:5], scale=scale, initial_state=wide[5] if states else None)
    used = 6 if states else 5
    outs, wide_outs, seeds = ([o, ht], [ro, rht], [do, dht]) if states else ([o], [ro], [do])
    grads = torch.autograd.grad(outs, leaves[:used], seeds)
    wants = torch.autograd.grad(wide_outs, wide[:used], [x.double() for x in seeds])
    errors = {"o": error(o, ro)} | ({"ht": error(ht, rht)} if states else {})
    errors |= {f"d{name}": error(a, b) for name, a, b in zip(NAMES, grads, wants, strict=False)}
    return {
        "errors": errors,
        "finite": all(bool(torch.isfinite(x).all()) for x in (*outs, *grads)),
        "dtypes": [str(x.dtype) for x in (o, *grads)],
        "want_dtypes": [str(x.dtype) for x in (leaves[2], *leaves[:used])],
    }

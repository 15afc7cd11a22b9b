"""A small looped model: one block of shared weights, run `iters` times over the sequence, KDA in each iteration."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kdaprof.workloads.step.spec import ModelSize

Op = Callable[..., Tensor]
"""q, k, v, g, beta → o."""

A_LOG = -3.0
"""Of the decay at initialisation, as the field's model has it."""
NORM_EPS = 1e-6
"""Named, since torch takes another one for each dtype, and a float64 step must be the same step."""
DT_BIAS = 0.66
"""softplus(0.66) = 1.08: with `A_LOG` a decay of −0.054 a token and channel."""


class Norm(nn.Module):
    """RMS norm over the last axis, in the dtype of its input: under autocast that is not the weight's."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """`x` [..., size] at length √size, times the weight."""
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), NORM_EPS)


class LoopedModel(nn.Module):
    """tokens [B, T] int64 → representation [B, T, width].

    Embedding, then `iters` times x + out(gate ⊙ norm(KDA(q, k, v, g, beta))) with the same weights, then a norm.
    Keys and queries are of length 1, decays near −0.054 and write strengths near 0.5 at initialisation. `op` runs
    the KDA call; it is set by whoever times the model, and may watch or replace it.
    """

    def __init__(self, size: ModelSize, iters: int, op: Op) -> None:
        super().__init__()
        width = size.width
        self.iters, self.heads, self.head_dim, self.op = iters, size.heads, size.head_dim, op
        self.embed = nn.Embedding(size.vocabulary, width)
        self.norm = Norm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.decay = nn.Linear(width, width, bias=False)
        self.write = nn.Linear(width, size.heads, bias=False)
        self.gate = nn.Linear(width, width, bias=False)
        self.head_norm = Norm(size.head_dim)
        self.out = nn.Linear(width, width, bias=False)
        self.last_norm = Norm(width)
        self.a_log = nn.Parameter(torch.full((size.heads, 1), A_LOG))
        self.dt_bias = nn.Parameter(torch.full((size.heads, size.head_dim), DT_BIAS))

    def forward(self, tokens: Tensor) -> Tensor:
        """The representation of every token."""
        x: Tensor = self.embed(tokens)
        for _ in range(self.iters):
            x = x + self._mix(self.norm(x))
        made: Tensor = self.last_norm(x)
        return made

    def _mix(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = (batch, length, self.heads, self.head_dim)
        q, k, v = (part.view(heads) for part in self.qkv(x).chunk(3, dim=-1))
        g = -torch.exp(self.a_log) * F.softplus(self.decay(x).view(heads) + self.dt_bias)
        beta = torch.sigmoid(self.write(x))
        o = self.op(F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, g, beta)
        mixed = self.head_norm(o).reshape(batch, length, width) * torch.sigmoid(self.gate(x))
        made: Tensor = self.out(mixed)
        return made


def retrieval_loss(student: Tensor, teacher: Tensor, temperature: float = 0.1) -> Tensor:
    """A scalar: each sequence's pooled student vector must find its own teacher vector among the batch's.

    InfoNCE over the batch [B, B], and the squared distance of the representations [B, T, width], as JEPA has it.
    """
    mine, theirs = F.normalize(student.mean(1), dim=-1), F.normalize(teacher.mean(1), dim=-1)
    scores = mine @ theirs.T / temperature
    own = torch.arange(scores.shape[0], device=scores.device)
    return F.cross_entropy(scores, own) + F.mse_loss(student, teacher)

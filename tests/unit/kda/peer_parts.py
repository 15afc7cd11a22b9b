"""Peers on paper: functions with the signatures of the real ones, which compute with our reference."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kdaprof.kda.peers.facts import PEERS, PeerFacts
from kdaprof.kda.peers.loading import Installed
from kdaprof.kda.reference import recurrent_gdn2
from kdaprof.kda.shapes import Operands

LOGGER = logging.getLogger("fla.backends")


def recurrence(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float) -> Tensor:
    gate = beta.unsqueeze(-1)
    return recurrent_gdn2(Operands(q, k, v, g, gate, gate), scale=scale)[0]


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """FLA's, as 0.6.0 spells it where it matters here; what it would swallow is a failure."""
    assert not kwargs, f"swallowed: {sorted(kwargs)}"
    assert {use_qk_l2norm_in_kernel, use_gate_in_kernel, output_final_state} == {False}
    assert scale is not None
    return recurrence(q, k, v, g, beta, scale), None


def installed(path: str = "fla", function: Callable[..., Any] = chunk_kda, version: str = "0.6.0") -> Installed:
    return Installed(PEERS[path], version, function)


def loads(peer: Installed) -> Callable[[PeerFacts, str], Installed]:
    return lambda facts, device_type: peer


class Registry:
    """What FLA's dispatcher keeps for one function: each outcome is logged once a process."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def say(self, key: str, text: str) -> None:
        if key not in self._logged:
            self._logged.add(key)
            LOGGER.info(text)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A dispatcher of FLA's kind that was imported."""
    module = types.ModuleType("fla.backends")
    one = Registry()
    module._function_registries = {chunk_kda: one}  # type: ignore[attr-defined]
    module._operation_registries = {}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fla.backends", module)
    return one


def handing(registry: Registry, backend: str) -> Callable[..., tuple[Tensor, None]]:
    """A `chunk_kda` whose dispatcher gives calls without gradients to `backend`, and says so once."""

    def dispatched(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None) -> Any:
        if torch.is_grad_enabled():
            why = "FlashKDA only supports inference mode"
            registry.say("fail", f"[FLA Backend] fla.ops.kda.chunk.chunk_kda -> {backend} rejected: {why}")
        else:
            registry.say("hit", f"[FLA Backend] fla.ops.kda.chunk.chunk_kda -> {backend}")
        return chunk_kda(q, k, v, g, beta, scale)

    return dispatched


def flash_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float,
    out: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float,
    initial_state: Tensor | None = None,
    final_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
) -> None:
    """FlashKDA's forward by its documentation: raw gates, q and k normalised, the output written in place."""
    assert -5.0 <= lower_bound < 0
    assert all(x.is_contiguous() for x in (q, k, v, g, beta, out))
    assert g.dtype == beta.dtype == torch.bfloat16
    decay = lower_bound * torch.sigmoid(A_log.exp()[:, None] * (g.float() + dt_bias))
    unit = (torch.nn.functional.normalize(x.float(), dim=-1) for x in (q, k))
    o = recurrence(*unit, v.float(), decay, beta.float().sigmoid(), scale)  # type: ignore[misc]
    out.copy_(o)

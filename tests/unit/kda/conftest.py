from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
import torch
from kda_calls import stand_in_fused

from kdaprof.kda import api, compiled, fused, gate, ledger
from kdaprof.kda.fused import hooks


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """The tensors are tiny; a pool of threads only waits for itself."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def fresh_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test sees another's plans, counts or announcements."""
    monkeypatch.setattr(api, "_plans", {})
    monkeypatch.setattr(ledger, "_tallies", {})
    monkeypatch.setattr(gate, "_announced", set())
    monkeypatch.setattr(compiled, "_failed", {})
    ledger.reset_counters()
    yield
    assert ledger._recordings == []


@pytest.fixture
def fused_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate finds fused kernels that run on the CPU: right, counted, and not Triton."""
    monkeypatch.setattr(gate, "_fused_support", lambda: lambda **_query: None)
    monkeypatch.setattr(hooks, "on_backward", functools.partial(gate.note_backward, "fused"))
    monkeypatch.setattr(fused, "fused_kda", stand_in_fused)
    monkeypatch.setattr(fused, "fused_kda_op", stand_in_fused)

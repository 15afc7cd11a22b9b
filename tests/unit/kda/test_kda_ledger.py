"""The books: forward and backward apart, on whichever thread they run."""

from __future__ import annotations

import threading

import pytest
import torch
from kda_calls import make_call

from kdaprof.kda import counters, gate_records, kda, record, reset_counters
from kdaprof.kda.gate import note_backward


@pytest.mark.usefixtures("fused_on_cpu")
def test_the_training_log_line() -> None:
    call = make_call()
    assert str(counters()) == "kda fused=0 tensor=0"
    for _ in range(12):
        o, _ = kda(*call.tensors)
        o.sum().backward()
    assert str(counters()) == "kda fused=12/12 tensor=0"
    kda(*call.tensors, path="tensor")
    assert str(counters()) == "kda fused=12/12 tensor=1/0"
    kda(*call.tensors, path="reference")
    assert str(counters()) == "kda fused=12/12 tensor=1/0 reference=1/0"
    reset_counters()
    assert str(counters()) == "kda fused=0 tensor=0"
    assert gate_records() == ()


PATHS = ["tensor", "tensor-rows", "reference"]


@pytest.mark.parametrize("path", PATHS)
def test_a_backward_counts_when_it_runs(path: str) -> None:
    call = make_call()
    o, state = kda(*call.tensors, output_final_state=True, path=path)
    assert state is not None
    assert counters()[path].bwd == 0
    (o.sum() + state.sum()).backward(retain_graph=True)
    assert counters()[path].bwd == 1  # two outputs, one pass
    state.sum().backward(retain_graph=True)
    assert counters()[path].bwd == 2  # the final state alone
    o.sum().backward()
    assert counters()[path].bwd == 3


@pytest.mark.parametrize("path", PATHS)
def test_no_backward_without_gradients(path: str) -> None:
    call = make_call(requires_grad=False)
    o, _ = kda(*call.tensors, path=path)
    assert o.grad_fn is None
    with torch.no_grad():
        kda(*make_call().tensors, path=path)
    assert counters()[path].fwd == 2
    assert counters()[path].bwd == 0


def test_a_recording_holds_what_happened_inside_it() -> None:
    call = make_call()
    kda(*call.tensors, path="tensor")
    with record() as outer:
        o, _ = kda(*call.tensors, path="tensor-rows")
        with record() as inner:
            o.sum().backward()
    assert outer.paths("fwd") == outer.paths("bwd") == ("tensor-rows",)
    assert [(r.phase, r.path) for r in inner.records] == [("bwd", "tensor-rows")]
    event = inner.records[0]
    assert event.decision is not None
    assert event.decision.why_not("fused")
    assert not event.traced
    assert not event.captured


def test_recordings_close_when_their_block_fails() -> None:
    with pytest.raises(ZeroDivisionError), record():
        raise ZeroDivisionError
    with record() as after:
        pass
    assert after.records == ()


def test_gate_records_merge_equal_decisions() -> None:
    for T in (16, 32, 40):
        kda(*make_call(T=T).tensors, path="tensor")
    kda(*make_call(K=8).tensors, path="tensor")
    tallies = gate_records()
    assert [(t.decision.k_dim, t.fwd, t.bwd) for t in tallies] == [(16, 3, 0), (8, 1, 0)]


def test_counts_from_many_threads_add_up() -> None:
    call = make_call(B=1, T=16, H=1)
    kda(*call.tensors, path="tensor")
    before = counters()["tensor"]

    def work() -> None:
        for _ in range(20):
            o, _ = kda(*call.tensors, path="tensor")
            torch.autograd.grad(o.sum(), call.tensors)
            note_backward("fused")

    threads = [threading.Thread(target=work) for _ in range(4)]
    with record() as seen:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counters()["tensor"].fwd - before.fwd == 80
    assert counters()["tensor"].bwd - before.bwd == 80
    assert counters()["fused"].bwd == 80
    assert len(seen.records) == 240

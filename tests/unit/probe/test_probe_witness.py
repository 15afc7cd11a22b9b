"""The first witness: the gate's own record of a call, forward and backward apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from probe_parts import spec

from kdaprof.kda.decision import Decision, GateRecord, Refusal
from kdaprof.probe import witness
from kdaprof.probe.witness import observe_gate
from kdaprof.workloads.op import OpCase


def called(path: str, phase: str, context: str = "plain") -> Any:
    case = OpCase(spec(path, phase, context=context))
    case.prepare(0)
    return observe_gate(case.run)


@pytest.mark.parametrize(("phase", "forward", "backward"), [("fwd", 1, 0), ("bwd", 0, 1), ("fwdbwd", 1, 1)])
@pytest.mark.parametrize("path", ["tensor", "reference"])
def test_forward_and_backward_are_counted_apart(path: str, phase: str, forward: int, backward: int) -> None:
    seen = called(path, phase)
    assert seen.chosen == path
    assert seen.forward == ({path: forward} if forward else {})
    assert seen.backward == ({path: backward} if backward else {})
    assert (seen.calls, seen.traced) == (1, False)


def test_a_recomputed_forward_is_a_call_like_any_other() -> None:
    seen = called("tensor", "fwdbwd", "checkpoint")
    assert (seen.forward, seen.backward) == ({"tensor": 2}, {"tensor": 1})


def test_every_path_not_taken_has_its_reason() -> None:
    seen = called("tensor", "fwd")
    reasons = {refusal.path: refusal.reason for refusal in seen.refused}
    assert set(reasons) == {"fused", "tensor-rows", "compiled", "reference"}
    assert all(reasons.values())


def test_nothing_asked_nothing_said() -> None:
    seen = observe_gate(lambda: None)
    assert (seen.chosen, seen.forward, seen.backward, seen.refused) == (None, {}, {}, ())


def test_calls_that_went_different_ways_name_none() -> None:
    first, second = OpCase(spec("tensor")), OpCase(spec("reference"))

    def both() -> None:
        first.run()
        second.run()
        second.run()

    seen = observe_gate(both, calls=3)
    assert seen.chosen is None
    assert seen.forward == {"tensor": 1, "reference": 2}
    assert seen.calls == 3


def test_a_backward_that_went_another_way_names_none() -> None:
    case, other = OpCase(spec("tensor", "fwd")), OpCase(spec("reference", "bwd"))
    other.prepare(0)

    def mixed() -> None:
        case.run()
        other.run()

    seen = observe_gate(mixed)
    assert (seen.chosen, seen.forward, seen.backward) == (None, {"tensor": 1}, {"reference": 1})


def test_what_fails_leaves_no_recording_open() -> None:
    from kdaprof.kda import ledger

    def broken() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        observe_gate(broken)
    assert ledger._recordings == []


def record_of(path: str, *, captured: bool, phase: Any = "fwd") -> GateRecord:
    decision = Decision(
        op="kda",
        asked=path,
        chosen=path,
        refused=(Refusal(path="fused", reason="not asked for"),),
        device="cuda",
        dtype="float32",
        k_dim=16,
        v_dim=16,
        chunk=16,
        traced=False,
    )
    return GateRecord(phase, path, decision, traced=False, captured=captured)


def test_of_a_capture_only_what_was_asked_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm-up and comparison are eager calls of the same cell; a replay asks no gate."""
    events = (
        record_of("tensor", captured=False),
        record_of("fused", captured=True),
        record_of("fused", captured=True, phase="bwd"),
        record_of("tensor", captured=False),
    )

    class Recorded:
        records = events

        def __enter__(self) -> Recorded:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    monkeypatch.setattr(witness, "record", Recorded)
    inside = observe_gate(lambda: None, captured_only=True)
    assert (inside.chosen, inside.forward, inside.backward) == ("fused", {"fused": 1}, {"fused": 1})
    assert observe_gate(lambda: None).chosen is None


def test_under_compile_the_decision_is_the_one_that_was_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda op: real(op, backend="eager"))
    case = OpCase(spec("tensor", "fwd", context="compile"))
    first, second = observe_gate(case.run), observe_gate(case.run)
    assert (first.chosen, first.traced) == ("tensor", True)
    assert (second.chosen, second.forward) == (None, {})

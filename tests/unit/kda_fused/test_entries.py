"""Which table entry is taken: the first that compiles and agrees with the recurrence; the others are told of."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kdaprof.errors import UnavailableError  # noqa: E402
from kdaprof.kda.fused import check, entries, plan, run  # noqa: E402
from kdaprof.kda.fused.config import SAFE, TABLE, KernelConfig, candidates  # noqa: E402

FAST, SAFER = TABLE[9, 0][64], SAFE[64]


@pytest.mark.parametrize("fault", ["raises", "wrong"])
def test_an_entry_that_fails_is_told_of_and_the_next_taken(fault: str) -> None:
    notes: list[str] = []

    def attempt(entry: KernelConfig) -> str | None:
        if entry is SAFER:
            return None
        if fault == "raises":
            raise RuntimeError("out of resource: shared memory\nand a page of text")
        return "wrong result: o is off"

    assert entries.first_that_works((FAST, SAFER), attempt, notes.append) is SAFER
    assert notes == ["RuntimeError: out of resource: shared memory" if fault == "raises" else "wrong result: o is off"]


def test_a_good_entry_is_taken_without_a_note() -> None:
    notes: list[str] = []
    assert entries.first_that_works((FAST, SAFER), lambda _: None, notes.append) is FAST
    assert notes == []


def test_when_none_works_the_last_reason_and_the_way_out_are_said() -> None:
    notes: list[str] = []
    with pytest.raises(UnavailableError, match=r"the last: dq is off; use path='tensor'"):
        entries.first_that_works((FAST, SAFER), lambda _: "dq is off", notes.append)
    assert len(notes) == 2


def test_notes_are_kept_for_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "_SKIPPED", [])
    note = entries._note(torch.device("cpu"), "bwd", 64, 32, (torch.float32, torch.float32, torch.bfloat16))
    note("does not compile")
    assert entries.skipped() == (entries.SkippedEntry("sm_00", "bwd", 64, 32, "float32, bfloat16", "does not compile"),)


def test_the_safe_entry_comes_last_and_once() -> None:
    assert candidates((9, 0), 64, 64) == (FAST, SAFER)
    assert candidates((12, 0), 64, 64) == (SAFER,)


class _Slow:
    """A stage whose compiler waits until as many compile as are expected: they must do so side by side."""

    def __init__(self, gate: threading.Barrier) -> None:
        self.gate, self.calls = gate, 0

    def compile(self, *_: object) -> None:
        self.calls += 1
        self.gate.wait(timeout=10)


def test_kernels_compile_side_by_side_and_each_once() -> None:
    gate = threading.Barrier(3)
    stages = [_Slow(gate) for _ in range(3)]
    jobs = [run.Job(stage, ()) for stage in stages]  # type: ignore[arg-type]
    device = torch.device("cpu")
    for _ in range(2):
        for future in entries._compile(device, jobs):
            future.result()
    assert [stage.calls for stage in stages] == [1, 1, 1]


def test_a_result_that_is_off_or_not_a_number_is_refused_in_words() -> None:
    want = torch.ones(4, dtype=torch.float64)
    assert check._judge({"o": (torch.ones(4), want), "the final state": (None, want)}, 1e-4) is None
    for bad in (torch.full((4,), 1.1), torch.full((4,), float("nan"))):
        reason = check._judge({"o": (torch.ones(4), want), "dq": (bad, want)}, 1e-4)
        assert reason is not None
        assert reason.startswith("wrong result: dq is ")


def test_a_result_of_half_precision_is_held_to_its_own_rounding() -> None:
    """Autocast hands q, k and g over in float32, v and beta in bfloat16: dbeta comes back rounded to bfloat16."""
    want = torch.rand(1000, dtype=torch.float64) + 0.5
    for dtype in (torch.bfloat16, torch.float16):
        rounded = want.to(dtype)
        assert float((rounded.double() - want).norm() / want.norm()) > 1e-4
        assert check._judge({"dbeta": (rounded, want)}, 1e-4) is None
        assert check._judge({"dbeta": (1.02 * rounded, want)}, 1e-4) is not None


def test_every_precision_has_a_limit() -> None:
    halves = (torch.bfloat16,) * 3
    for precision in ("tf32x3", "ieee", "tf32"):
        assert plan.dots(halves, precision) in check.LIMITS
        assert plan.dots((torch.float32,) * 3, precision) in check.LIMITS

from __future__ import annotations

import math
from pathlib import Path

import pytest
from ab_parts import GATE, SHAPES, TARGETS, contract, faster, known, rounds, row

from kdaprof.analysis.ab.evidence import Evidence, SideEvidence
from kdaprof.analysis.ab.judge import Outcome, judge
from kdaprof.analysis.ab.outcome import GateResult, decide
from kdaprof.analysis.ab.stages import amdahl, judge_stage_share
from kdaprof.errors import BadFileError
from kdaprof.runs.facts import Reason
from kdaprof.runs.results import CellResult, RunResults, Stage
from kdaprof.runs.results import Evidence as PathEvidence

REFUSED = (Reason("Q02", "wide"), Reason("Q08", "on the CPU"))


def stage(name: str, share: float | None) -> Stage:
    return Stage(name=name, kernels=1, busy_ns=1, share=share)


def judged(
    gate: str, big: SideEvidence, small: SideEvidence | None = None, base: SideEvidence | None = None
) -> Outcome:
    seen = Evidence(shapes=(row("big", big, base), row("small", small or faster(1.0), base)))
    return judge(contract(f"{TARGETS}{SHAPES}[[gates]]\n{gate}\n"), seen)


@pytest.mark.parametrize(
    ("gate", "big", "small", "verdict"),
    [
        ('kind = "speedup"\nshapes = ["big"]\nmin = 1.1', 1.2, 1.0, "pass"),
        ('kind = "speedup"\nshapes = ["big"]\nmin = 1.1', 1.1, 1.0, "not-established"),
        ('kind = "speedup"\nshapes = ["big"]\nmin = 1.1', 1.05, 1.0, "fail"),
        ('kind = "speedup"\nmin = 1.1', 1.2, 1.0, "fail"),
        ('kind = "speedup"\nmin = 1.1', 1.2, 1.2, "pass"),
        ('kind = "geomean"\nmin = 1.1', 1.3, 1.0, "pass"),
        ('kind = "geomean"\nmin = 1.1', 1.21, 1.0, "not-established"),
        ('kind = "geomean"\nmin = 1.1', 1.1, 1.0, "fail"),
        ('kind = "any-speedup"\nmin = 1.1', 1.0, 1.2, "pass"),
        ('kind = "any-speedup"\nmin = 1.1', 1.0, 1.1, "not-established"),
        ('kind = "any-speedup"\nmin = 1.1', 1.0, 1.02, "fail"),
        ('kind = "non-regression"', 1.0, 1.0, "pass"),
        ('kind = "non-regression"', 1.2, 0.98, "not-established"),
        ('kind = "non-regression"', 1.2, 0.95, "fail"),
        ('kind = "non-regression"\nband = 0.1', 1.2, 0.95, "pass"),
    ],
)
def test_a_gate_is_passed_or_failed_by_a_whole_interval(gate: str, big: float, small: float, verdict: str) -> None:
    outcome = judged(gate, faster(big), faster(small))
    assert outcome.gates[0].verdict == verdict
    assert outcome.decision == {"pass": "go", "fail": "no-go"}.get(verdict, verdict)


def test_the_deciding_shape_and_its_figure_are_named() -> None:
    found = judged('kind = "speedup"\nmin = 1.1', faster(1.3), faster(1.2)).gates[0]
    assert (found.shape, found.limit, found.want) == ("small", 1.1, "≥ 1.1 ×")
    assert found.value == pytest.approx(1.2, rel=1e-3)
    assert found.interval is not None
    assert found.interval[0] < 1.2 < found.interval[1]
    assert found.got.startswith("small: 1.2")
    regression = judged('kind = "non-regression"', faster(1.2), faster(0.9)).gates[0]
    assert regression.got.startswith("small: 1.111 × the time of base (")


def test_the_chances_of_any_speedup_widen_its_intervals() -> None:
    # At 1.106 ± 0.005 the interval of a single comparison lies above 1.1, that of two chances does not.
    side = faster(1.108, spread=0.0066)
    alone = judged('kind = "any-speedup"\nshapes = ["big"]\nmin = 1.1', side)
    of_two = judged('kind = "any-speedup"\nmin = 1.1', side)
    assert alone.gates[0].verdict == "pass"
    assert of_two.gates[0].verdict == "not-established"
    assert alone.gates[0].interval is not None
    assert of_two.gates[0].interval is not None
    assert of_two.gates[0].interval[0] < alone.gates[0].interval[0]


def test_medians_can_fail_a_gate_and_never_pass_one() -> None:
    base = known(1e6)
    for times, verdict in ((1.05, "fail"), (1.5, "not-established")):
        outcome = judged('kind = "speedup"\nmin = 1.1', known(1e6 / times), known(1e6 / 1.5), base)
        assert outcome.gates[0].verdict == verdict
        assert outcome.rows[0].speedup.interval is None
        assert not outcome.rows[0].base.quotable
    mixed = judged('kind = "geomean"\nmin = 1.1', known(8e5), faster(1.2))
    assert mixed.gates[0].verdict == "not-established"
    assert "one side has samples" in mixed.gates[0].got


@pytest.mark.parametrize(
    ("side", "says"),
    [
        (SideEvidence(error="exit code 3: it is broken"), "cand: exit code 3"),
        (SideEvidence(rounds=rounds(0.5), refused=REFUSED), "Q08: on the CPU (also Q02)"),
        (SideEvidence(), "cand: no samples"),
        (SideEvidence(rounds=rounds(0.5, count=4)), "4 rounds"),
        (SideEvidence(rounds={0: (0, 0), 1: (0, 0)}), "below the clock's resolution"),
    ],
)  # fmt: skip
def test_what_may_not_enter_a_ratio_establishes_nothing(side: SideEvidence, says: str) -> None:
    for gate in ('kind = "speedup"\nmin = 1.1', 'kind = "geomean"\nmin = 1.1', 'kind = "non-regression"'):
        outcome = judged(f'{gate}\nshapes = ["big"]', side)
        assert outcome.decision == "not-established"
        assert says in (outcome.rows[0].ratio.why or "")


def test_a_shape_that_is_unknown_keeps_any_speedup_open_unless_another_has_it() -> None:
    unknown = SideEvidence(error="it broke")
    assert judged('kind = "any-speedup"\nmin = 1.1', unknown, faster(1.0)).decision == "not-established"
    assert judged('kind = "any-speedup"\nmin = 1.1', unknown, faster(1.3)).decision == "go"


def test_a_wrong_output_is_a_no_go_however_fast() -> None:
    outcome = judged('kind = "speedup"\nmin = 1.1', SideEvidence(rounds=rounds(0.1), wrong="dq 0.3 (limit 1e-05)"))
    assert outcome.decision == "no-go"
    assert "outputs of cand on big: wanted within tolerance of the reference, got dq 0.3" in outcome.why


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize(
    ("bounds", "peak", "verdict"),
    [
        ("at_most_bytes = -100", 900, "pass"),
        ("at_most_bytes = -100", 901, "fail"),
        ("at_most = -0.1", 900, "pass"),
        ("at_most = -0.1", 901, "fail"),
        ("at_most = 0\nat_least = 0", 1000, "pass"),
        ("at_most = 0\nat_least = 0", 999, "fail"),
        ("at_least_bytes = 0", 999, "fail"),
        ("at_most_bytes = -100", None, "not-established"),
    ],
)
def test_a_change_of_peak_memory_must_be_seen(bounds: str, peak: int | None, verdict: str) -> None:
    base = SideEvidence(rounds=rounds(), peak_bytes=(1000, 1000))
    gate = f'kind = "peak-change"\nshapes = ["big"]\n{bounds}'
    assert judged(gate, faster(1.0, peak=peak), base=base).gates[0].verdict == verdict


def test_a_peak_that_moves_counts_with_its_worst_pair() -> None:
    base = SideEvidence(rounds=rounds(), peak_bytes=(1000, 950))
    found = judged('kind = "peak-change"\nshapes = ["big"]\nat_most_bytes = -100', faster(1.0, peak=875), base=base)
    assert found.gates[0].verdict == "fail"
    assert "(−100 B, −10.26 %)" in found.gates[0].got


# ---------------------------------------------------------------- before any work


def test_amdahl() -> None:
    assert amdahl(0.302) == pytest.approx(1.4327, abs=1e-4)
    assert amdahl(0.5, removable=0.5) == pytest.approx(4 / 3)
    assert amdahl(1.0) == math.inf


def stored(*stages: Stage) -> RunResults:
    cell = CellResult(id="kda/x", facts={}, evidence=PathEvidence(verdict="none", expected="x"), stages=stages)
    return RunResults(run="r1", cells=(cell,), findings=())


def share_gate(text: str, results: RunResults | None = None) -> GateResult:
    gate = contract(f'{TARGETS}{SHAPES}[[gates]]\nkind = "stage-share"\n{text}\n').gates[0]

    def load(path: Path) -> RunResults:
        assert path == Path("/c/runs/r1")
        if results is None:
            raise BadFileError("no such run")
        return results

    return judge_stage_share(gate, Path("/c"), load)  # type: ignore[arg-type]


def test_a_stage_share_is_declared_or_read_from_a_run() -> None:
    declared = 'share = 0.302\nsource = "job 5337"\n'
    assert share_gate(declared + "min = 0.2\nbound = 1.1").verdict == "pass"
    assert share_gate(declared + "min = 0.31").verdict == "fail"
    assert share_gate(declared + "min = 0.2\nbound = 1.1\nremovable = 0.2").verdict == "fail"
    run = 'run = "runs/r1"\ncell = "kda/x"\nstages = ["bwd_.*"]\nmin = 0.4\n'
    stages = (stage("fwd", 0.1), stage("bwd_a", 0.2), stage("bwd_b", 0.3))
    found = share_gate(run, stored(*stages))
    assert (found.verdict, found.value) == ("pass", pytest.approx(0.5))
    assert "bwd_a, bwd_b of the call's wall in run r1" in found.got


@pytest.mark.parametrize(
    ("text", "stages", "says"),
    [
        ('cell = "kda/y"\nstages = ["a"]', (), "has no cell kda/y"),
        ('cell = "kda/x"\nstages = ["a"]', (), "it was not profiled"),
        ('cell = "kda/x"\nstages = ["a"]', (stage("b", 0.5),), "there are: b"),
        ('cell = "kda/x"\nstages = ["b"]', (stage("b", None),), "wall is missing"),
    ],
)
def test_a_share_that_is_not_there_is_not_established(text: str, stages: tuple[Stage, ...], says: str) -> None:
    found = share_gate(f'run = "runs/r1"\nmin = 0.2\n{text}', stored(*stages))
    assert found.verdict == "not-established"
    assert says in found.got


def test_a_run_that_cannot_be_read_is_an_error_not_a_verdict() -> None:
    with pytest.raises(BadFileError):
        share_gate('run = "runs/r1"\nmin = 0.2\ncell = "kda/x"\nstages = ["a"]')


# ---------------------------------------------------------------- decision


def test_nothing_timed_is_never_a_go() -> None:
    passed = GateResult(name="a", kind="correctness", want="w", got="g", verdict="pass")
    failed = GateResult(name="b", kind="correctness", want="w", got="g", verdict="fail")
    assert judge(contract(), None, [passed]).decision == "not-established"
    assert judge(contract(), None, [passed, failed]).decision == "no-go"
    assert decide([]) == "not-established"
    assert decide([passed]) == "go"


def test_a_shape_without_evidence_has_its_row() -> None:
    outcome = judge(contract(TARGETS + SHAPES + GATE), Evidence(shapes=(row("big", faster(1.3)),)))
    assert outcome.decision == "go"
    assert outcome.rows[1].base.missing == "failed"
    assert outcome.rows[1].speedup.why == "base: it was not measured"

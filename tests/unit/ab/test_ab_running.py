"""Experiments from order to result: real worktrees and processes, workers that answer from a table, real workers."""

from __future__ import annotations

import hashlib
import json
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ab_parts import (
    GATE,
    REPOSITORY,
    REVISIONS,
    SHAPES,
    TARGETS,
    PaperMachine,
    PaperWorkers,
    Told,
    contract,
    git,
    hands,
    order,
    paper_runs,
    repository,
)

from kdaprof.analysis.ab.evidence import Evidence, ShapeEvidence, SideEvidence
from kdaprof.analysis.ab.result import Result
from kdaprof.analysis.ab.rows import rows_of
from kdaprof.analysis.ab.stored import read_evidence, write_evidence
from kdaprof.errors import BadFileError, UsageError
from kdaprof.probe.ab.attempts import read_attempts
from kdaprof.probe.ab.blocks import SideError, schedule
from kdaprof.probe.ab.experiment import run_experiment
from kdaprof.probe.ab.messages import Ask, Start
from kdaprof.probe.ab.process import run_command
from kdaprof.probe.ab.target import worker
from kdaprof.probe.ab.target_call import load_call
from kdaprof.probe.ab.warm import steady_only
from kdaprof.runs.conditions import ConditionsSnapshot, ForeignProcess

BODY = REVISIONS + SHAPES + GATE + REPOSITORY
ONLY_ONE = 'command = ["sh", "-c", "test $(cat wall.txt) = 1000000 || { echo 3 of 49 failed; exit 1; }"]'
WALL_OF_ONE = hashlib.sha256(b"1000000").hexdigest()
ATTEMPTS = "[attempts]\nmost = 2\n"


def test_a_round_is_a_b_b_a_or_its_mirror_by_the_seed() -> None:
    plan = schedule(40, seed=1)
    assert set(plan) == {("base", "cand", "cand", "base"), ("cand", "base", "base", "cand")}
    assert plan == schedule(40, seed=1)
    assert plan != schedule(40, seed=2)


# ---------------------------------------------------------------- revisions


def test_two_revisions_are_measured_each_in_its_tree_and_nothing_stays(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    told = Told()
    result, evidence = run_experiment(order(tmp_path, contract(BODY), "one", "two"), hands(progress=told))
    assert (result.outcome.decision, result.complete, result.errors) == ("go", True, ())
    assert (result.base.commit, result.cand.commit) == (git(repo, "rev-parse", "one"), git(repo, "rev-parse", "two"))
    row = result.outcome.rows[0]
    assert row.speedup.value == pytest.approx(1.25, rel=1e-3)
    assert row.speedup.rounds == 5
    assert (row.base.n, row.peak_change) == (20, -200_000)
    assert evidence is not None
    assert {len(walls) for walls in evidence.shapes[1].cand.rounds.values()} == {4}
    assert sum("round" in line for line in told.lines) == 5
    assert git(repo, "worktree", "list").count("\n") == 0
    assert git(repo, "status", "--porcelain") == ""
    (attempt,) = read_attempts(tmp_path / "store", "trial")
    assert (attempt.decision, attempt.cand, attempt.commit) == ("go", "two", result.cand.commit)


def test_a_folder_in_a_repository_is_the_same_folder_in_its_worktree(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    git(root, "init", "--quiet")
    (root / "part").mkdir()
    (root / "part" / "measure.sh").write_text(
        'echo "{\\"shape\\":\\"big\\",\\"wall_ns\\":[5,6]}" > $KDAPROF_AB_OUT; pwd'
    )
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "a")
    body = REVISIONS + '[[shapes]]\nname = "big"\n' + GATE + REPOSITORY.replace('"repo"', '"root/part"')
    result, _ = run_experiment(order(tmp_path, contract(body), "HEAD", "HEAD"), hands())
    assert result.errors == ()
    assert (tmp_path / "out/logs/base.log").read_text().splitlines()[0].endswith("/part")


def line(shape: str, *walls: float) -> str:
    return json.dumps({"shape": shape, "wall_ns": walls})


def writing(*lines: str) -> str:
    return "".join(f"echo '{text}' >> $KDAPROF_AB_OUT\n" for text in lines)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 3", "the command ended with exit code 3: no output"),
        ("echo no card here; exit 1", "exit code 1: no card here"),
        ("kill -9 $$", "signal 9"),
        ("true", "wrote nothing to the file named by KDAPROF_AB_OUT"),
        (writing("{"), "line 1 of KDAPROF_AB_OUT"),
        (writing(line("big", 1.5)), "Expected `int`"),
        (writing(line("big", 9, 9)), "no line for shape 'small'"),
        (writing(line("big", 9), line("small", 9)), "1 samples written, 2"),
        (writing(line("big", 0, 9), line("small", 9, 9)), "a wall of 0 ns"),
        (writing(line("big", 9, 9), line("big", 9, 9)), "two lines for one"),
    ],
)  # fmt: skip
def test_a_command_that_does_not_measure_is_an_error_and_no_attempt(tmp_path: Path, script: str, says: str) -> None:
    repo = repository(tmp_path / "repo")
    (repo / "measure.sh").write_text(script)
    git(repo, "commit", "--quiet", "-am", "broken")
    result, _ = run_experiment(order(tmp_path, contract(BODY), "HEAD", "HEAD"), hands())
    assert result.outcome.decision == "not-established"
    assert any(says in error for error in result.errors)
    assert read_attempts(tmp_path / "store", "trial") == ()


def test_samples_before_a_failure_are_kept(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    script = (repo / "measure.sh").read_text()
    (repo / "measure.sh").write_text("[ $KDAPROF_AB_ROUND = 2 ] && { echo lost the card; exit 9; }\n" + script)
    git(repo, "commit", "--quiet", "-am", "later")
    _, evidence = run_experiment(order(tmp_path, contract(BODY), "HEAD", "HEAD"), hands())
    assert evidence is not None
    assert sorted(evidence.shapes[0].base.rounds) == [0, 1]
    assert any("lost the card" in error for error in evidence.errors)


def test_a_name_that_is_no_revision_and_a_folder_that_is_no_repository(tmp_path: Path) -> None:
    repository(tmp_path / "repo")
    for base, cand in (("nothing", "two"), ("one", "--force")):
        with pytest.raises(UsageError, match="names no commit"):
            run_experiment(order(tmp_path, contract(BODY), base, cand), hands())
    (tmp_path / "plain").mkdir()
    for place, says in (("plain", "is in no git repository"), ("absent", "no such folder")):
        with pytest.raises(UsageError, match=says):
            run_experiment(order(tmp_path, contract(BODY.replace('"repo"', f'"{place}"')), "one", "two"), hands())


def test_worktrees_are_removed_when_ctrl_c_comes_in_the_middle(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    (repo / "measure.sh").write_text(
        (repo / "measure.sh").read_text() + "[ $KDAPROF_AB_ROUND = 1 ] && sleep 60\ntrue\n"
    )
    git(repo, "commit", "--quiet", "-am", "slow")
    stopper = threading.Thread(target=_interrupt_when, args=(tmp_path / "out/logs/second-round",))
    stopper.start()
    result, evidence = run_experiment(order(tmp_path, contract(BODY), "HEAD", "HEAD"), hands(run=_noting_starts))
    stopper.join()
    assert not result.complete
    assert (result.outcome.decision, result.outcome.why) == (
        "not-established", "interrupted before it was measured to the end",
    )  # fmt: skip
    assert evidence is not None
    assert sorted(evidence.shapes[0].base.rounds) == [0]
    assert git(repo, "worktree", "list").count("\n") == 0
    assert read_attempts(tmp_path / "store", "trial") == ()


def _noting_starts(argv, *, cwd, env, log, timeout_s):  # type: ignore[no-untyped-def]
    if env["KDAPROF_AB_ROUND"] == "1":
        (log.parent / "second-round").touch()
    return run_command(argv, cwd=cwd, env=env, log=log, timeout_s=timeout_s)


def _interrupt_when(file: Path) -> None:
    end = time.monotonic() + 20
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


# ---------------------------------------------------------------- what is frozen


def test_a_frozen_file_and_command_are_checked_in_both_trees(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    sha = hashlib.sha256((repo / "measure.sh").read_bytes()).hexdigest()
    frozen = f'[frozen]\ncommand = ["sh", "-c", "echo checked $KDAPROF_AB_SIDE"]\nfiles."measure.sh" = "sha256:{sha}"\n'
    result, _ = run_experiment(order(tmp_path, contract(BODY + frozen), "one", "two"), hands())
    assert [(gate.name, gate.verdict) for gate in result.outcome.gates[:4]] == [
        ("frozen files (base)", "pass"), ("correctness (base)", "pass"), ("frozen files (cand)", "pass"),
        ("correctness (cand)", "pass"),
    ]  # fmt: skip
    assert result.outcome.gates[3].got == "exit code 0: checked cand"
    assert result.outcome.decision == "go"


@pytest.mark.parametrize(
    ("frozen", "failed", "says"),
    [
        (ONLY_ONE, "correctness (cand)", "exit code 1: 3 of 49 failed"),
        ('command = ["no-such-program"]', "correctness (base)", "no-such-program: No such file"),
        ('command = ["sh", "-c", "sleep 30"]\ntimeout_s = 0.2', "correctness (base)", "longer than 0.2 s"),
        (f'files."wall.txt" = "{WALL_OF_ONE}"', "frozen files (cand)", "wall.txt is "),
        (f'files."absent.py" = "{"0" * 64}"', "frozen files (base)", "absent.py is not there"),
    ],
)  # fmt: skip
def test_a_frozen_thing_that_fails_ends_it_before_any_timing(
    tmp_path: Path, frozen: str, failed: str, says: str
) -> None:
    repository(tmp_path / "repo")
    result, evidence = run_experiment(order(tmp_path, contract(f"{BODY}[frozen]\n{frozen}\n"), "one", "two"), hands())
    assert evidence is None
    assert result.outcome.decision == "no-go"
    assert result.outcome.rows == ()
    last = result.outcome.gates[-1]
    assert (last.name, last.verdict) == (failed, "fail")
    assert says in last.got
    assert read_attempts(tmp_path / "store", "trial") == ()


def test_a_share_too_small_ends_it_before_any_work(tmp_path: Path) -> None:
    share = '[[gates]]\nkind = "stage-share"\nmin = 0.2\nshare = 0.1\nsource = "a profile"\n'
    workers = PaperWorkers({"m:a": 100, "m:b": 80})
    result, evidence = run_experiment(order(tmp_path, contract(TARGETS + SHAPES + GATE + share)), hands(workers))
    assert (result.outcome.decision, evidence, workers.blocks) == ("no-go", None, [])


# ---------------------------------------------------------------- the stop rule


def test_the_stop_rule_counts_what_was_measured_and_then_measures_no_more(tmp_path: Path) -> None:
    workers = PaperWorkers({"m:a": 1_000_000, "m:b": 990_000, "m:c": 500_000})
    what = contract(TARGETS + SHAPES + GATE + ATTEMPTS)
    for number in (1, 2):
        result, _ = run_experiment(order(tmp_path, what), hands(workers, now=10**18 + number))
        assert (result.attempt, result.outcome.decision) == (number, "no-go")
    before = len(workers.blocks)
    result, evidence = run_experiment(order(tmp_path, what, cand="m:c"), hands(workers))
    assert (result.outcome.decision, evidence, len(workers.blocks)) == ("no-go", None, before)
    assert result.outcome.why == "stop rule: wanted at most 2 attempts, got 2 on record, none may follow"
    assert [attempt.cand for attempt in read_attempts(tmp_path / "store", "trial")] == ["m:b", "m:b"]


def test_a_contract_that_changed_after_its_first_attempt_is_refused(tmp_path: Path) -> None:
    workers = PaperWorkers({"m:a": 1_000_000, "m:b": 990_000, "m:c": 900_000})
    run_experiment(order(tmp_path, contract()), hands(workers))
    run_experiment(order(tmp_path, contract(), cand="m:c"), hands(workers))  # another candidate is another attempt
    softer = contract(TARGETS + SHAPES + GATE.replace("1.1", "1.0"))
    with pytest.raises(UsageError, match="changed since its first attempt"):
        run_experiment(order(tmp_path, softer), hands(workers))
    (entry, *_) = sorted((tmp_path / "store/ab/trial").glob("*.json"))
    entry.write_text("{")
    with pytest.raises(BadFileError, match="not valid JSON"):
        run_experiment(order(tmp_path, contract()), hands(workers))


# ---------------------------------------------------------------- targets


def test_targets_take_turns_each_in_a_worker_of_its_own(tmp_path: Path) -> None:
    workers = PaperWorkers({"m:a": 1_000_000, "m:b": 800_000})
    body = TARGETS + SHAPES.replace('name = "big"', 'name = "big"\nenv.BATCH = "8"') + GATE
    result, _ = run_experiment(order(tmp_path, contract(body)), hands(workers))
    assert result.outcome.decision == "go"
    assert result.outcome.rows[0].speedup.value == pytest.approx(1.25, rel=1e-3)
    assert result.outcome.rows[0].peak_change == -200_000
    names = {"base": "m:a", "cand": "m:b"}
    turns = [names[side] for sides in schedule(8, 0) for side in sides]
    assert workers.blocks == turns * 2  # shape after shape
    assert [dict(env) for env in workers.env] == [{"BATCH": "8"}, {"BATCH": "8"}, {}, {}]
    assert workers.open == 0


def test_a_target_that_cannot_be_built_is_an_error_of_its_side(tmp_path: Path) -> None:
    workers = PaperWorkers({"m:a": 1_000_000, "m:b": "UsageError: m:b: no module 'm'"})
    result, evidence = run_experiment(order(tmp_path, contract()), hands(workers))
    assert result.errors[0] == "cand on big: UsageError: m:b: no module 'm'"
    assert evidence is not None
    assert evidence.shapes[0].base.error is None
    assert (workers.blocks, workers.open) == ([], 0)


def test_ctrl_c_between_targets_keeps_the_rounds_and_ends_the_workers(tmp_path: Path) -> None:
    workers = PaperWorkers({"m:a": 1_000_000, "m:b": 800_000}, stop_after=22)
    result, evidence = run_experiment(order(tmp_path, contract()), hands(workers))
    assert (result.complete, result.outcome.decision, workers.open) == (False, "not-established", 0)
    assert evidence is not None
    assert len(evidence.shapes[0].base.rounds) >= 5


def test_a_name_that_is_no_target_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--cand 'm.b': kind \"targets\" takes package.module:make_step"):
        run_experiment(order(tmp_path, contract(), cand="m.b"), hands())


TARGET_MODULE = """
import os
def make(device):
    print("to people", device, os.environ.get("BATCH"))
    return lambda: sum(range(1000))
class Phased:
    def __init__(self):
        self.log = []
        self.phases = {"fwd": lambda: self.log.append("f"), "bwd": lambda: self.log.append("b")}
def phased(device): return Phased()
def nothing(device): return 3
def breaks(device):
    def step(): raise ValueError("no steps\\nleft")
    return step
def dies(device): os._exit(7)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ab_target_module.py").write_text(TARGET_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_a_real_worker_times_a_target_and_keeps_its_prints_apart(module: Path) -> None:
    log = module / "log"
    with worker({"BATCH": "8"}, log, 60.0) as ask:
        warm = ask(Start(target="ab_target_module:make", device="cpu", warmup=3))
        block = ask(Ask(samples=4))
    assert (len(warm.wall_ns), len(block.wall_ns), block.error) == (3, 4, None)
    assert min(block.wall_ns) > 0
    assert (block.peak_bytes, block.peak_missing) == (None, "torch counts no allocations on the CPU")
    assert log.read_text() == "to people cpu 8\n"


def test_a_real_worker_whose_target_breaks_or_dies(module: Path) -> None:
    with worker({}, module / "log", 60.0) as ask:
        assert ask(Start(target="ab_target_module:breaks", device="cpu", warmup=1)).error == "ValueError: no steps left"
    with worker({}, module / "log2", 60.0) as ask, pytest.raises(SideError, match="its process ended"):
        ask(Start(target="ab_target_module:dies", device="cpu", warmup=1))
    with worker({}, module / "log3", 0.05) as ask, pytest.raises(SideError, match=r"longer than 0\.05 s"):
        ask(Start(target="ab_target_module:make", device="cpu", warmup=1))


def test_what_a_target_returns_is_a_callable_or_has_phases(module: Path) -> None:
    step = load_call("ab_target_module:phased", "cpu")
    step()
    phased = step.__closure__[0].cell_contents[0].__closure__[0].cell_contents  # type: ignore[attr-defined]
    assert phased.log == ["f", "b"]
    for target, says in (("nothing", "returned int"), ("absent", "has no function 'absent'")):
        with pytest.raises(UsageError, match=says):
            load_call(f"ab_target_module:{target}", "cpu")
    with pytest.raises(UsageError, match="no module 'no_such_module'"):
        load_call("no_such_module:make", "cpu")


def test_cold_samples_of_a_target_are_left_out_and_a_restless_one_is_refused() -> None:
    steady = SideEvidence(rounds=dict.fromkeys(range(6), (1000, 1010, 990, 1005)))
    assert steady_only(steady, [90_000, 50_000]) == steady
    late = SideEvidence(rounds={0: (90_000, 80_000, 1000, 1010), **dict.fromkeys(range(1, 6), (1000, 1010, 990, 1005))})
    assert steady_only(late, [90_000, 90_000, 90_000]).rounds[0] == (1000, 1010)
    restless = SideEvidence(rounds={r: (1000 * 2**r,) * 4 for r in range(6)})
    (reason,) = steady_only(restless, [1000]).refused
    assert reason.rule == "Q01"


# ---------------------------------------------------------------- the machine


def on(conditions: ConditionsSnapshot, tmp_path: Path) -> Result:
    machine = PaperMachine()
    machine.conditions = lambda: conditions  # type: ignore[method-assign]
    workers = PaperWorkers({"m:a": 1_000_000, "m:b": 800_000})
    return run_experiment(order(tmp_path, contract()), hands(workers, machine=machine))[0]


def test_another_job_on_the_card_keeps_times_out_of_a_ratio(tmp_path: Path) -> None:
    quiet = paper_runs.snapshot(0)
    assert quiet.gpu is not None
    other = ForeignProcess(pid=77, name="train", used_bytes=2 << 30, util=0.4)
    result = on(replace(quiet, gpu=replace(quiet.gpu, foreign=(other,))), tmp_path)
    assert result.outcome.decision == "not-established"
    assert "Q03: process 77 (train) held 2.15 GB of the card" in (result.outcome.rows[0].ratio.why or "")
    limited = on(replace(quiet, gpu=replace(quiet.gpu, throttle_reasons=("sw_power_cap",))), tmp_path)
    assert "Q04: the card reported sw_power_cap" in (limited.outcome.rows[0].ratio.why or "")


def test_a_loaded_host_is_noted_and_the_interleaved_ratio_stands(tmp_path: Path) -> None:
    result = on(paper_runs.snapshot(0, load1=40.0), tmp_path)
    assert result.outcome.decision == "go"
    base = result.outcome.rows[0].base
    assert (base.quotable, [reason.rule for reason in base.reasons]) == (False, ["Q05"])


def test_a_median_with_a_wide_interval_may_not_be_quoted() -> None:
    wide = SideEvidence(rounds={number: (1000 * (1 + number),) * 3 for number in range(6)})
    fact = rows_of(contract(), Evidence(shapes=(ShapeEvidence(shape="big", base=wide, cand=wide),)))[0].base
    assert [reason.rule for reason in fact.reasons] == ["Q02"]


# ---------------------------------------------------------------- evidence on disk


def test_evidence_comes_back_as_it_was_written(tmp_path: Path) -> None:
    _, evidence = run_experiment(order(tmp_path, contract()), hands(PaperWorkers({"m:a": 1_000_000, "m:b": 800_000})))
    assert evidence is not None
    write_evidence(tmp_path / "kept", evidence)
    assert read_evidence(tmp_path / "kept") == evidence


@pytest.mark.parametrize(
    ("side", "says"),
    [
        ('{"summary": {"median_ns": 0, "n": 1}}', "median of 0"),
        ('{"summary": {"median_ns": 5, "n": 0}}', "over 0 samples"),
        ('{"summary": {"median_ns": 5, "n": 2}, "rounds": {"0": [1]}}', "give one of them"),
        ('{"rounds": {"0": [-1]}}', "a wall below 0"),
        ('{"peak_bytes": [-1]}', "a peak below 0"),
        ('{"rounds": {"0": "x"}}', "does not hold kdaprof.ab-evidence/1"),
    ],
)
def test_evidence_that_cannot_be_is_one_line(tmp_path: Path, side: str, says: str) -> None:
    file = tmp_path / "evidence.json"
    file.write_text(
        '{"schema": "kdaprof.ab-evidence/1", "shapes": [{"shape": "big", "base": {}, "cand": %s}]}' % side  # noqa: UP031
    )
    with pytest.raises(BadFileError, match=says):
        read_evidence(file)

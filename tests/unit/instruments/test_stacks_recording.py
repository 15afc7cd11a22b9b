"""Recording stacks with a py-spy that refuses, hangs or leaves the target stopped; and the kernel's counters."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kdaprof.analysis.stacks_trace import last_ns
from kdaprof.errors import UnavailableError, UsageError
from kdaprof.instruments import stacks
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.stacks import Recording, StacksPlan, record
from kdaprof.instruments.stacks_holds import HoldMeter
from kdaprof.instruments.stacks_spy import Spy, arguments, counts, refusal
from kdaprof.instruments.stacks_stopped import StopMeter
from kdaprof.instruments.stacks_threads import SLEEPER_EVERY, ThreadMeter, cpu_ns, state

DENIED = "Permission Denied: Try running again with elevated permissions by going 'sudo env py-spy record'\n"
TRACE = (
    b'[{"args":{"filename":"","line":0},"cat":"py-spy","name":"thread (7): MainThread","ph":"B","pid":7,"tid":9,'
    b'"ts":2000},{"args":{"filename":"/x.py","line":1},"cat":"py-spy","name":"f","ph":"B","pid":7,"tid":9,"ts":2000},'
    b'{"args":{"filename":"/x.py","line":1},"cat":"py-spy","name":"f","ph":"E","pid":7,"tid":9,"ts":5000}]'
)


class FakeSpy:
    """py-spy as it can behave; `on_finish` is what it does to its target when asked to end."""

    def __init__(
        self, *, output: str = "Samples: 10 Errors: 1", trace: bytes | None = TRACE, over: bool = False,
        hangs: bool = False, on_finish: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._output, self._trace, self._over, self._hangs, self._on_finish = output, trace, over, hangs, on_finish
        self.pid = os.getpid()
        self.closed = False
        self.patience: list[float] = []

    def ended(self) -> bool:
        return self._over

    def finish(self, patience_s: float) -> bool:
        self.patience.append(patience_s)
        self._on_finish()
        return not self._hangs

    def output(self) -> str:
        return self._output

    def trace(self) -> tuple[bytes, int] | None:
        return None if self._trace is None or self._hangs else (self._trace, time.time_ns())

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    yield process.pid
    process.kill()
    process.wait()


def recorded(spy: Spy, **changes: object) -> Recording:
    fields = {"rate_hz": 100, "native": True, "command": ("kdaprof", "stacks"), "duration_s": 0.15, **changes}
    plan = StacksPlan(**fields)  # type: ignore[arg-type]
    return record(
        plan, MonotonicClock(), spawn=lambda pid, *, rate_hz, native: spy, leave=lambda: None, last_ns=last_ns
    )


def wait_for(pid: int, letters: str) -> str | None:
    for _ in range(200):
        if state(pid) in tuple(letters):
            break
        time.sleep(0.01)
    return state(pid)


def test_the_trace_is_anchored_between_the_start_of_py_spy_and_its_last_write(sleeper: int) -> None:
    before = time.monotonic_ns()
    found = recorded(FakeSpy(), pid=sleeper).record
    assert found.anchor_ns is not None
    assert found.anchor_uncertainty_ns is not None
    assert before <= found.anchor_ns - found.anchor_uncertainty_ns
    assert found.anchor_ns + found.anchor_uncertainty_ns <= time.monotonic_ns() - 5_000_000 + 20_000_000
    assert (found.samples, found.errors, found.missing, found.complete) == (10, 1, None, True)


def test_a_target_that_py_spy_leaves_stopped_is_continued(sleeper: int) -> None:
    def leave_stopped() -> None:
        os.kill(sleeper, signal.SIGSTOP)
        wait_for(sleeper, "T")

    found = recorded(FakeSpy(on_finish=leave_stopped), pid=sleeper)
    assert wait_for(sleeper, "S") == "S"
    assert "SIGCONT" in found.record.notes[0]


@pytest.mark.parametrize("native", [True, False])
def test_a_target_that_somebody_stops_meanwhile_stays_stopped_and_that_is_said(sleeper: int, native: bool) -> None:
    def stop_and_spawn(pid: int, *, rate_hz: int, native: bool) -> Spy:
        os.kill(pid, signal.SIGSTOP)
        wait_for(pid, "T")
        return FakeSpy()

    said: list[str] = []
    plan = StacksPlan(rate_hz=100, native=native, command=("kdaprof",), pid=sleeper, duration_s=0.7)
    found = record(plan, MonotonicClock(), spawn=stop_and_spawn, leave=lambda: None, last_ns=last_ns, told=said.append)
    assert state(sleeper) == "T"
    assert said == [f"process {sleeper} is stopped: `kill -CONT {sleeper}`"]
    (note,) = found.record.notes
    assert re.fullmatch(
        rf"process {sleeper} was stopped for [0-9.]+ ms, which counts as waiting; it still is: `kill -CONT {sleeper}`",
        note,
    )


def test_a_target_that_is_stopped_is_refused_before_py_spy_is_asked(sleeper: int) -> None:
    os.kill(sleeper, signal.SIGSTOP)
    wait_for(sleeper, "T")
    spy = FakeSpy()
    with pytest.raises(UsageError, match=f"process {sleeper} is stopped: `kill -CONT {sleeper}`"):
        recorded(spy, pid=sleeper)
    assert spy.patience == []
    assert state(sleeper) == "T"


def test_stops_add_up_and_one_that_ended_needs_no_advice() -> None:
    said: list[str] = []
    meter = StopMeter(7, said.append)
    for ms, letter in [(0, "R"), (10, "T"), (60, "T"), (80, "S"), (100, "t"), (900, "T"), (1000, "T"), (1030, "S")]:
        meter.see(letter, ms * 1_000_000)
    assert said == ["process 7 is stopped: `kill -CONT 7`"]  # the first one was too short
    assert meter.note(2_000_000_000) == "process 7 was stopped for 200 ms, which counts as waiting"
    short = StopMeter(7, said.append)
    short.see("T", 0)
    short.see("S", 99_000_000)
    assert short.note(10**9) is None


def test_without_native_nothing_is_continued_for_nothing_was_stopped(sleeper: int) -> None:
    def another_stops_it() -> None:
        os.kill(sleeper, signal.SIGSTOP)
        wait_for(sleeper, "T")

    found = recorded(FakeSpy(on_finish=another_stops_it), pid=sleeper, native=False)
    assert state(sleeper) == "T"
    assert found.record.notes == ()


def test_a_target_that_a_hanging_tracer_holds_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "STUCK_NS", 300_000_000)
    task = tmp_path / "77" / "task" / "77"
    task.mkdir(parents=True)
    (tmp_path / "77" / "stat").write_text("77 (a (b) c) t 1 1")
    (task / "schedstat").write_text("5 6 7\n")
    (task / "comm").write_text("python\n")
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    spy = FakeSpy(hangs=True)
    found = record(
        StacksPlan(rate_hz=100, native=True, command=("kdaprof",), pid=77, duration_s=20),
        MonotonicClock(),
        spawn=lambda pid, *, rate_hz, native: spy,
        leave=lambda: None,
        last_ns=last_ns,
        proc=tmp_path,
    )
    assert sent == [(77, signal.SIGCONT)]
    assert spy.patience == [0.0]  # no use in asking nicely
    assert found.record.span_ns < 5e9
    assert found.trace is None
    assert any("killed" in note for note in found.record.notes)


def test_no_rights_is_a_hint_and_the_command_goes_on() -> None:
    spy = FakeSpy(output=DENIED, trace=None, over=True)
    found = recorded(spy, argv=(sys.executable, "-c", "import time; time.sleep(0.3); raise SystemExit(7)"))
    assert found.record.child is not None
    assert found.record.child.exit == 7
    assert found.record.missing is not None
    assert (found.record.missing.kind, found.record.complete) == ("refused", False)
    assert "SYS_PTRACE" in found.record.missing.next
    assert spy.closed


def test_without_py_spy_a_command_runs_and_a_process_is_refused(sleeper: int) -> None:
    def absent(pid: int, *, rate_hz: int, native: bool) -> Spy:
        raise UnavailableError("py-spy is not installed here: pip install 'py-spy>=0.4'")

    plan = StacksPlan(rate_hz=100, native=False, command=("k",), argv=(sys.executable, "-c", "raise SystemExit(3)"))
    found = record(plan, MonotonicClock(), spawn=absent, leave=lambda: None, last_ns=last_ns)
    assert found.record.child is not None
    assert found.record.child.exit == 3
    assert found.record.missing is not None
    assert "pip install" in found.record.missing.text
    assert found.record.missing.next == "record again once it is there; the command itself ran, unwatched"
    beside = StacksPlan(rate_hz=100, native=False, command=("k",), pid=sleeper)
    with pytest.raises(UnavailableError, match="pip install"):
        record(beside, MonotonicClock(), spawn=absent, leave=lambda: None, last_ns=last_ns)


def test_a_process_that_is_not_there_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no such process"):
        recorded(FakeSpy(), pid=2**22 + 1)


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        (DENIED, "refused"),
        ("Error: Failed to lock process\nReason: EPERM: Operation not permitted", "refused"),
        ("Error: Failed to find python version from target process", "not-supported"),
        ("Error: No such file or directory (os error 2)", "failed"),
        ("", "failed"),
    ],
)
def test_what_py_spy_says_comes_with_a_way_out(output: str, kind: str) -> None:
    found = refusal(output, command=True)
    assert found.kind == kind
    assert found.next
    assert "\n" not in found.text


def test_py_spy_gets_native_or_nonblocking_never_both() -> None:
    python, native = (arguments(1, Path("/t"), rate_hz=50, native=on) for on in (False, True))
    assert ("--nonblocking" in python, "--native" in python) == (True, False)
    assert ("--nonblocking" in native, "--native" in native) == (False, True)
    assert counts("py-spy> Wrote chrome trace to 'x'. Samples: 196 Errors: 3\n") == (196, 3)
    assert counts("") is None


def test_the_meter_counts_what_ran_and_leaves_sleepers_alone(tmp_path: Path) -> None:
    tasks = tmp_path / "5" / "task"
    for tid in (5, 6):
        (tasks / str(tid)).mkdir(parents=True)
        (tasks / str(tid) / "comm").write_text(f"t{tid}\n")
        (tasks / str(tid) / "schedstat").write_text("100 10 1\n")
    meter = ThreadMeter(5, MonotonicClock(), tmp_path)
    for tick in range(3 * SLEEPER_EVERY):
        (tasks / "5" / "schedstat").write_text(f"{100 + tick} 10 1\n")
        meter.tick()
    main, pool = meter.ticks()
    assert (main.tid, main.name, len(main.t_ns)) == (5, "t5", 3 * SLEEPER_EVERY)
    assert int(main.run_ns[-1] - main.run_ns[0]) == 3 * SLEEPER_EVERY - 1
    assert len(pool.t_ns) == 2 + 3
    assert cpu_ns(5, tmp_path) == 100 + 3 * SLEEPER_EVERY - 1 + 100
    assert cpu_ns(1, tmp_path) is None


class Hands:
    """A clock set by hand."""

    ns = 0

    def now_ns(self) -> int:
        return self.ns


def test_stops_are_seen_from_outside(tmp_path: Path) -> None:
    (tmp_path / "5").mkdir()
    hands = Hands()
    meter = HoldMeter(5, hands, tmp_path)
    for ms, letter in enumerate("SSttSRRtRtt"):
        hands.ns = ms * 1_000_000
        (tmp_path / "5" / "stat").write_text(f"5 (a t) {letter} 1 1")
        assert meter.look() == letter
    found = meter.holds()
    rows = zip(found.start_ns.tolist(), found.end_ns.tolist(), strict=True)
    assert list(rows) == [(1_500_000, 3_500_000), (6_500_000, 7_500_000)]  # the last one has not ended
    assert found.looks == 11
    assert found.unseen_ns == 0


def test_looks_too_far_apart_are_counted_where_none_found_a_stop(tmp_path: Path) -> None:
    (tmp_path / "5").mkdir()
    hands = Hands()
    meter = HoldMeter(5, hands, tmp_path)
    for ms, letter in [(0, "R"), (1, "R"), (8, "S"), (20, "t"), (40, "R"), (42, "R")]:
        hands.ns = ms * 1_000_000
        (tmp_path / "5" / "stat").write_text(f"5 (a t) {letter} 1 1")
        meter.look()
    assert meter.holds().unseen_ns == 7_000_000


def test_the_real_counters_of_this_process_grow_with_its_work() -> None:
    meter = ThreadMeter(os.getpid(), MonotonicClock())
    meter.tick()
    before = time.thread_time_ns()
    while time.thread_time_ns() - before < 50_000_000:
        pass
    meter.tick()
    main = next(thread for thread in meter.ticks() if thread.tid == os.getpid())
    assert 45_000_000 <= int(main.run_ns[-1] - main.run_ns[0]) <= 120_000_000

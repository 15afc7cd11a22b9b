"""The real command in processes of its own, over a driver that fails in each way (cases 31–35, 38, 39)."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import resource
import shlex
import signal
import subprocess
import sys
import termios
import time
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import paper_runs
import pytest
from fake_driver import machine

from kdaprof.analysis.util_document import gpu_util_schema

TWO = "FakeCard('GPU-aaaa', '00000000:01:00.0'), FakeCard('GPU-bbbb', '00000000:02:00.0', util_percent=2)"
COMMAND = [sys.executable, "-m", "kdaprof", "gpu-util"]


def gpu_util(
    folder: Path, *flags: str, cards: str = TWO, script: str = "", **more: Any
) -> subprocess.CompletedProcess[str]:
    env = machine(folder, cards, script=script)
    return subprocess.run(
        [*COMMAND, *flags], env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=False, **more
    )


FIRST_SAMPLE = """\
    real = Driver.nvmlDeviceGetUtilizationRates
    def marked(self, handle):
        open("begun", "a").close()
        return real(self, handle)
    Driver.nvmlDeviceGetUtilizationRates = marked
"""


def begun(folder: Path, *flags: str) -> subprocess.Popen[str]:
    """A watch that is under way: some samples were taken, or its command says that it is there."""
    process = subprocess.Popen(
        [*COMMAND, "--hz", "50", "--out", "out", *flags],
        env=machine(folder, TWO, script="" if "--" in flags else FIRST_SAMPLE),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 20
    while not (folder / "begun").exists() and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.2)
    return process


def document(text: str) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"not JSON: {word}")

    parsed: dict[str, Any] = json.loads(text, parse_constant=refuse)
    jsonschema.Draft202012Validator(gpu_util_schema()).validate(parsed)
    return parsed


def test_alone_for_a_while(tmp_path: Path) -> None:
    done = gpu_util(tmp_path, "--hz", "20", "--duration", "0.5", "--out", "out", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    seen = document(done.stdout)
    assert seen["complete"] is True
    assert (seen["samples_due"], seen["child"]) == (11, None)
    assert 1 <= seen["samples_taken"] <= 11
    first, second = seen["gpus"]
    assert (first["uuid"], first["index"], first["facts"]["util_mean"]["value"]) == ("GPU-aaaa", 0, 0.3)
    assert second["facts"]["util_idle_share"]["value"] == 1.0
    assert second["facts"]["gpm_sm"]["missing"] == "not-supported"
    assert first["limits"] == [{"reason": "sw_power_cap", "share": 1.0}]
    assert 0 < seen["own_cost"]["value"] < 1
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"gpu-util.json", "gpu_util.parquet", "gpu_util.csv", "gpu_util.svg", "report.md"}
    assert document((tmp_path / "out/gpu-util.json").read_text()) == seen
    assert "one block on one SM reads 100 %" in (tmp_path / "out/report.md").read_text()
    again = gpu_util(tmp_path, "--read", "out", "--json")
    assert document(again.stdout) == seen
    shown = gpu_util(tmp_path, "--read", "out")
    assert "11 readings" in shown.stdout or "readings at ≤ 5 %" in shown.stdout
    assert "of one core" in shown.stdout


def test_around_a_command(tmp_path: Path) -> None:
    script = "import sys, time; print('to stdout'); time.sleep(0.3); sys.exit(7)"
    done = gpu_util(tmp_path, "--hz", "50", "--out", "out", "--", sys.executable, "-c", script)
    assert done.returncode == 7
    assert done.stdout == "to stdout\n"
    assert "ended with exit code 7" in done.stderr
    done = gpu_util(tmp_path, "--json", "--out", "out", "--force", "--", sys.executable, "-c", script)
    seen = document(done.stdout)
    assert (done.returncode, seen["child"]["exit"]) == (7, 7)
    assert "to stdout" in done.stderr


def test_a_command_that_a_signal_ended(tmp_path: Path) -> None:
    done = gpu_util(tmp_path, "--out", "out", "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert done.returncode == 137


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_command_s_code_passes_through_though_nothing_can_be_printed(tmp_path: Path, flags: tuple[str, ...]) -> None:
    for full in ("/dev/full", "&-"):
        line = [*COMMAND, "--force", "--hz", "20", "--out", "out", *flags, "--", "sh", "-c", "sleep 0.3; exit 7"]
        done = subprocess.run(
            f"exec {shlex.join(line)} >{full} 2>{full}",
            shell=True,
            env=machine(tmp_path, TWO),
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 7, full
        assert (tmp_path / "out/gpu-util.json").exists()


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    done = gpu_util(tmp_path, "--out", "out", "--", "no-such-program")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no-such-program: cannot be started" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_mistyped_command_costs_no_older_watch(tmp_path: Path) -> None:
    assert gpu_util(tmp_path, "--duration", "0.3", "--out", "out").returncode == 0
    older = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    assert gpu_util(tmp_path, "--out", "out", "--force", "--", "no-such-program").returncode == 2
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == older


def test_without_nvml_a_command_runs_anyway_and_nothing_else_does(tmp_path: Path) -> None:
    absent = "driver.codes = {'nvmlInit': 12}"
    alone = gpu_util(tmp_path, "--out", "out", script=absent)
    assert alone.returncode == 5
    assert alone.stderr.count("\n") == 1
    assert "no NVML" in alone.stderr
    assert "`kdaprof doctor` says what to do" in alone.stderr
    inside = gpu_util(tmp_path, "--", sys.executable, "-c", "print('ran'); exit(3)", script=absent)
    assert (inside.returncode, inside.stdout) == (3, "ran\n")
    assert "runs unwatched" in inside.stderr
    as_json = gpu_util(tmp_path, "--json", "--", sys.executable, "-c", "print('ran')", script=absent)
    seen = document(as_json.stdout)
    assert (as_json.returncode, seen["gpus"], seen["complete"], seen["child"]["exit"]) == (0, [], False, 0)
    assert seen["lateness_ns"]["missing"] == "no-device"


def test_a_foreign_module_is_named(tmp_path: Path) -> None:
    env = machine(tmp_path, TWO)
    (tmp_path / "driver/pynvml.py").write_text("nvmlInit = nvmlShutdown = None\n")
    done = subprocess.run([*COMMAND], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 5
    assert "pip uninstall pynvml" in done.stderr


def test_a_card_that_is_lost_ends_its_series_and_the_run_is_partial(tmp_path: Path) -> None:
    later = "threading.Timer(2.0, driver.lose, ['GPU-aaaa']).start()"  # a loaded machine starts in a second or more
    done = gpu_util(tmp_path, "--hz", "50", "--duration", "3", "--out", "out", "--json", script=later)
    seen = document(done.stdout)
    assert (done.returncode, seen["complete"]) == (1, False)
    lost, other = seen["gpus"]
    assert "lost" in lost["stopped"]["reason"]
    assert lost["facts"]["util_mean"]["value"] == pytest.approx(0.3)
    assert other["stopped"] is None
    assert other["facts"]["util_mean"]["n"] > lost["facts"]["util_mean"]["n"]


def test_a_card_lost_from_the_start_beside_a_good_one(tmp_path: Path) -> None:
    cards = "FakeCard('GPU-aaaa', '00000000:01:00.0', lost=True), FakeCard('GPU-bbbb', '00000000:02:00.0')"
    done = gpu_util(tmp_path, "--hz", "20", "--duration", "0.3", "--json", "--out", "out", cards=cards)
    seen = document(done.stdout)
    assert [card["stopped"] is None for card in seen["gpus"]] == [False, True]
    assert seen["gpus"][0]["facts"]["util_mean"]["value"] is None
    assert (done.returncode, seen["complete"]) == (1, False)


def test_mig_and_fields_that_are_not_supported_are_missing_and_never_zero(tmp_path: Path) -> None:
    cards = "FakeCard('GPU-aaaa', '00000000:01:00.0', util_percent=0, mig_mode=1)"
    broken = "driver.codes = {'nvmlDeviceGetPowerUsage': 3, 'nvmlDeviceGetTotalEnergyConsumption': 13}"
    done = gpu_util(tmp_path, "--hz", "20", "--duration", "0.3", "--json", "--out", "out", cards=cards, script=broken)
    facts = document(done.stdout)["gpus"][0]["facts"]
    for name in ("util_mean", "util_idle_share", "power_w", "energy_j"):
        assert facts[name]["value"] is None, name
        assert facts[name]["detail"], name
    assert "MIG" in facts["util_mean"]["detail"]
    assert done.returncode == 0


def test_processes_of_another_namespace_have_no_name(tmp_path: Path) -> None:
    cards = f"FakeCard('GPU-aaaa', '00000000:01:00.0', processes=(({os.getpid()}, 1 << 30), (4000001, 2 << 30)))"
    done = gpu_util(tmp_path, "--hz", "20", "--duration", "0.2", "--json", "--out", "out", cards=cards)
    ours, foreign = document(done.stdout)["gpus"][0]["processes"]
    assert (ours["pid"], ours["used_bytes"], ours["util"]) == (os.getpid(), 1 << 30, 0.25)
    assert ours["name"]
    assert (foreign["pid"], foreign["name"]) == (4000001, None)


def test_beside_a_process_until_it_ends(tmp_path: Path) -> None:
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1.5)"])
    cards = f"FakeCard('GPU-aaaa', '00000000:01:00.0', processes=(({job.pid}, 1 << 30), ({os.getpid()}, 2 << 30)))"
    # The job is a zombie until it is waited for, as under a shell that does not look: the watch ends all the same.
    done = gpu_util(tmp_path, "--hz", "50", "--pid", str(job.pid), "--json", "--out", "out", cards=cards)
    job.wait()
    seen = document(done.stdout)
    assert (done.returncode, seen["complete"]) == (0, True)
    assert [process["pid"] for process in seen["gpus"][0]["processes"]] == [job.pid]
    late = gpu_util(tmp_path, "--pid", str(job.pid))
    assert late.returncode == 2
    assert "no such process" in late.stderr


@pytest.mark.parametrize(
    ("flags", "number", "code", "complete"),
    [
        ((), signal.SIGINT, 0, True),
        ((), signal.SIGTERM, 0, True),
        (("--duration", "60"), signal.SIGTERM, 130, False),
    ],
)
def test_ctrl_c_keeps_what_was_sampled(
    tmp_path: Path, flags: tuple[str, ...], number: signal.Signals, code: int, complete: bool
) -> None:
    process = begun(tmp_path, "--json", *flags)
    process.send_signal(number)
    out, _ = process.communicate(timeout=20)
    seen = document(out)
    assert (process.returncode, seen["complete"]) == (code, complete)
    assert seen["samples_taken"] > 1


STUBBORN = """
import pathlib, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
pathlib.Path("begun").touch()
time.sleep(60)
"""
POLITE = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))
pathlib.Path("begun").touch()
time.sleep(60)
"""


SHORT_PARTS = """\
    from kdaprof.instruments.watch.spool import Spool
    Spool.__init__.__kwdefaults__["part_ns"] = 100_000_000
"""


def test_a_watch_that_was_killed_can_be_read_again(tmp_path: Path) -> None:
    env = machine(tmp_path, TWO, script=SHORT_PARTS)
    flags = ["--hz", "100", "--out", "out", "--anonymous"]
    process = subprocess.Popen([*COMMAND, *flags], env=env, cwd=tmp_path, stderr=subprocess.DEVNULL)
    parts = tmp_path / "out/.gpu_util.parquet.parts"
    until = time.monotonic() + 20
    while len(list(parts.glob("part-*"))) < 3 and time.monotonic() < until:
        time.sleep(0.02)
    process.kill()
    process.wait()
    again = gpu_util(tmp_path, "--read", "out", "--json")
    assert again.returncode == 0, again.stderr
    seen = document(again.stdout)
    assert (seen["complete"], seen["hz"], seen["child"]) == (False, 100, None)
    assert seen["samples_due"] >= seen["samples_taken"] > 20
    assert [gpu["facts"]["util_mean"]["value"] is not None for gpu in seen["gpus"]] == [True, True]
    assert (seen["own_cost"]["value"], seen["own_cost"]["missing"]) == (None, "failed")
    assert any("ended from outside" in note for note in seen["notes"])
    assert seen["watch"]["ended_monotonic_ns"] > seen["watch"]["started_monotonic_ns"]
    shown = gpu_util(tmp_path, "--read", "out")
    assert "partial" in shown.stdout


def test_signals_reach_the_command_and_its_code_comes_back(tmp_path: Path) -> None:
    process = begun(tmp_path, "--", sys.executable, "-c", POLITE)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 42


def test_a_second_ctrl_c_ends_a_command_that_does_not_listen(tmp_path: Path) -> None:
    process = begun(tmp_path, "--", sys.executable, "-c", STUBBORN)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 137
    assert time.monotonic() - began < 10


def test_a_disk_that_fills_up_while_a_command_runs_leaves_the_command_alone(tmp_path: Path) -> None:
    # The fake answers differ from sample to sample, so that the file grows.
    script = """\
    import random
    Driver.nvmlDeviceGetUtilizationRates = lambda self, handle: __import__('types').SimpleNamespace(
        gpu=random.randrange(101), memory=random.randrange(101))
    Driver.nvmlDeviceGetPowerUsage = lambda self, handle: random.randrange(700_000)
    import kdaprof.instruments.watch.spool as spool
    spool.Spool.__init__.__kwdefaults__['batch_rows'] = 64
    """
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (6000, 6000))
    job = "import time; time.sleep(1.2); print('done'); exit(9)"
    done = gpu_util(
        tmp_path, "--hz", "100", "--out", "out", "--", sys.executable, "-c", job, script=script, preexec_fn=limit
    )
    assert (done.returncode, done.stdout) == (9, "done\n")
    assert "cannot write (File too large)" in done.stderr
    assert "goes on unwatched" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--hz", "0"), "--hz 0"),
        (("--hz", "101"), "--hz 101"),
        (("--duration", "-1"), "--duration -1"),
        (("--gpus", "9"), "no GPU 9"),
        (("--pid", "1", "--", "true"), "give one of them"),
        (("--pid", "-1"), "no such process"),
        (("--pid", "99999999999999999999"), "no such process"),
        (("--read", "x", "--", "true"), "--read"),
        (("--",), "no command"),
        (("python", "x.py"), "behind `--`"),
        (("--out", "driver"), "not empty"),
    ],
)
def test_what_has_no_meaning_is_one_line_and_exit_2(tmp_path: Path, flags: tuple[str, ...], text: str) -> None:
    done = gpu_util(tmp_path, *flags)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert text in done.stderr


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    done = gpu_util(tmp_path, "--read", "nowhere")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_anonymous_leaves_out_who_and_where(tmp_path: Path) -> None:
    done = gpu_util(
        tmp_path, "--hz", "20", "--duration", "0.2", "--anonymous", "--json", "--out", str(tmp_path / "out"),
        cards=f"FakeCard('GPU-aaaa', '00000000:01:00.0', processes=(({os.getpid()}, 1 << 30),))",
    )  # fmt: skip
    document(done.stdout)
    for path in (tmp_path / "out").iterdir():
        assert str(tmp_path).encode() not in path.read_bytes(), path.name
    assert str(tmp_path) not in done.stdout


COUNTING = """
import pathlib, signal, sys, time
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
pathlib.Path("begun").touch()
until = time.monotonic() + 20
while not seen and time.monotonic() < until:
    time.sleep(0.02)
time.sleep(0.3)
print("interrupts", len(seen), flush=True)
sys.exit(len(seen))
"""


def on_a_terminal(folder: Path, *flags: str) -> tuple[subprocess.Popen[bytes], int]:
    """The command as a shell starts it: on a terminal of its own, in its foreground. Gives the terminal's other end."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "--out", "out", *flags],
        env=machine(folder, TWO) | {"TERM": "xterm", "COLUMNS": "100"},
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - a test has no other threads here
    )
    os.close(theirs)
    return process, ours


def said(terminal: int) -> str:
    """All that was written until the other side hung up."""
    told = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux: EIO once nobody has the other end
            break
        if not part:
            break
        told += part
    os.close(terminal)
    return told.decode()


def test_ctrl_c_on_a_terminal_reaches_the_command_once(tmp_path: Path) -> None:
    process, terminal = on_a_terminal(tmp_path, "--", sys.executable, "-c", COUNTING)
    until = time.monotonic() + 20
    while not (tmp_path / "begun").exists() and time.monotonic() < until:
        time.sleep(0.02)
    os.write(terminal, b"\x03")
    told = said(terminal)
    assert process.wait(timeout=20) == 1, told
    assert "interrupts 1" in told


def test_a_terminal_has_a_live_line_and_then_the_summary(tmp_path: Path) -> None:
    process, terminal = on_a_terminal(tmp_path, "--hz", "20", "--duration", "1")
    told = said(terminal)
    assert process.wait(timeout=20) == 0, told
    live = [line for line in told.split("\r\x1b[2K") if "util 30 %" in line]
    assert len(live) >= 2, told
    assert "2.15 GB · 346 W · 1.98 GHz  │  util 2.0 %" in live[0]
    assert "readings at ≤ 5 %" in told


RUN = """
import sys, time
from dataclasses import replace
from pathlib import Path
sys.path.append({paper!r})
import paper_runs
from kdaprof.runs.samples import Sample
from kdaprof.runs.store import RunWriter
record, _ = paper_runs.laptop_run()
cell = replace(record.cells[0], observed=None)
began = (time.time_ns(), time.monotonic_ns())
time.sleep(0.6)
writer = RunWriter(Path("run"))
writer.put_record(replace(record, started_unix_ns=began[0], started_monotonic_ns=began[1], cells=(cell,)))
wall_ns = time.monotonic_ns() - began[1]
writer.put_samples(cell.key, [Sample(cell=cell.id, repeat="util", round=0, index=0, t_ns=began[1], wall_ns=wall_ns)])
"""


def test_a_watch_is_joined_with_the_run_that_it_stood_around(tmp_path: Path) -> None:
    script = RUN.format(paper=str(Path(paper_runs.__file__).parent))
    flags = ["--hz", "50", "--steps", "run", "--out", "out"]
    done = gpu_util(tmp_path, *flags, "--", sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    (joined,) = document((tmp_path / "out/gpu-util.json").read_text())["gpus"][0]["joined"]
    assert (joined["calls"], joined["facts"]["util_mean"]["value"]) == (1, 0.3)
    later = gpu_util(tmp_path, "--hz", "20", "--duration", "0.2", "--out", "later", "--steps", "run", "--json")
    assert "not joined" in later.stderr
    assert "nothing of it ran while the watch did" in later.stderr
    assert later.returncode == 0
    assert document(later.stdout)["gpus"][0]["joined"] == []

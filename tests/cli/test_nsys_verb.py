"""`kdaprof nsys` as a user calls it: with a tool that only looks like nsys, and with the real one where it is.

The real one is found by KDAPROF_NSIGHT_PREFIX: a folder made by a script that unpacks Nsight Systems 2022.4 below
`root/`, without a driver or a GPU. That version understands the package nvtx up to 0.2.11.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import jsonschema
import pytest
from refused_places import assert_one_line_about

from kdaprof.analysis.trace.document import analysis_schema
from kdaprof.cli.main import main
from kdaprof.errors import Exit

TRACE = Path(__file__).parents[2].parent / "shared" / "traces" / "h100-2gpu-nsys.sqlite"
PREFIX = os.environ.get("KDAPROF_NSIGHT_PREFIX")

FAKE = """\
#!{python}
import os, shutil, subprocess, sys
kind, words = sys.argv[1], sys.argv[2:]
output = next(w.split("=", 1)[1] for w in words if w.startswith("--output="))
if kind == "export":
    shutil.copyfile({trace!r}, output)
    sys.exit(0)
command = words[max(i for i, w in enumerate(words) if w.startswith("--")) + 1 :]
code = subprocess.call(command)
if not os.environ.get("FAKE_NO_REPORT"):
    open(output + ".nsys-rep", "w").write("report")
sys.exit(code)
"""


@pytest.fixture
def fake_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not TRACE.exists():
        pytest.skip(f"{TRACE} is not here")
    tool = tmp_path / "nsys"
    tool.write_text(FAKE.format(python=sys.executable, trace=str(TRACE)))
    tool.chmod(0o755)
    monkeypatch.setenv("KDAPROF_NSYS", str(tool))
    return tmp_path / "out"


def test_a_report_is_analysed_and_kept(fake_nsys: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["nsys", "--out", str(fake_nsys), "--json", "--", "echo", "the command's own words"]) == Exit.OK
    out, err = capfd.readouterr()
    document = json.loads(out)  # the command's words are on stderr: stdout is JSON alone
    assert "the command's own words" in err
    jsonschema.validate(document, analysis_schema())
    assert document["files"][0]["format"] == "nsys"
    kept = {path.name for path in fake_nsys.iterdir()}
    assert kept == {"report.nsys-rep", "report.sqlite", "analysis.json", "report.md"}


def test_a_failing_command_s_code_passes_through(fake_nsys: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["nsys", "--out", str(fake_nsys), "--", "sh", "-c", "exit 41"]) == 41
    out, err = capfd.readouterr()
    assert "report.sqlite" in out
    assert "exit code 41" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(("ends", "code"), [(41, 41), (0, Exit.ERROR)])
def test_a_full_disk_behind_stdout_does_not_hide_the_command_s_code(fake_nsys: Path, ends: int, code: int) -> None:
    line = [sys.executable, "-m", "kdaprof", "nsys", "--out", str(fake_nsys), "--", "sh", "-c", f"exit {ends}"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == code
    assert "cannot write the output (No space left on device)" in done.stderr


@pytest.mark.parametrize(("end", "code"), [("true", Exit.ERROR), ("exit 9", 9)])
def test_no_report_is_never_a_success(
    fake_nsys: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], end: str, code: int
) -> None:
    monkeypatch.setenv("FAKE_NO_REPORT", "1")
    assert main(["nsys", "--out", str(fake_nsys), "--", "sh", "-c", end]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("kdaprof: nsys made no report in")
    assert err.count("\n") == 1


def test_a_tool_that_a_signal_ended_is_not_blamed_on_the_disk(
    fake_nsys: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_NO_REPORT", "1")
    assert main(["nsys", "--out", str(fake_nsys), "--", "sh", "-c", "exit 143"]) == 143
    err = capfd.readouterr().err
    assert "nsys ended with exit code 143 (SIGTERM), before it wrote one: record again" in err
    assert "the folder is full" not in err
    assert main(["nsys", "--out", str(fake_nsys), "--force", "--", "sh", "-c", "exit 255"]) == 255
    assert "exit code 255: its own messages" in capfd.readouterr().err  # no signal has this number


def test_a_dry_run_prints_lines_that_need_no_nsys_here(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KDAPROF_NSYS", raising=False)
    words = ["nsys", "--dry-run", "--capture", "fwd", "--out", str(tmp_path / "o"), "--", "python", "my train.py", "-x"]
    assert main(words) == Exit.OK
    profile, export, analyse = capfd.readouterr().out.splitlines()
    assert profile.endswith("--kill=none python 'my train.py' -x")
    assert "nsys profile" in profile
    assert "--nvtx-capture=fwd@kdaprof" in profile
    assert export.endswith("report.nsys-rep")
    assert analyse == f"kdaprof analyze {tmp_path / 'o' / 'report.sqlite'}"
    assert not (tmp_path / "o").exists()


def test_usage(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["nsys"]) == Exit.USAGE
    monkeypatch.setenv("KDAPROF_NSYS", str(tmp_path / "absent"))
    assert main(["nsys", "--out", str(tmp_path / "o"), "--", "true"]) == Exit.UNFIT
    assert len(capfd.readouterr().err.splitlines()) == 2


def test_a_place_that_cannot_be_written_is_one_line_before_anything_runs(
    place_of_no_use: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = tmp_path / "ran"
    tool = tmp_path / "nsys"
    tool.write_text(f"#!/bin/sh\ntouch {ran}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("KDAPROF_NSYS", str(tool))
    place, code = place_of_no_use
    assert main(["nsys", "--out", place, "--", "true"]) == code
    assert_one_line_about(place, capfd)
    assert not ran.exists()


WORK = """
import sys, time
from kdaprof.instruments.nvtx import in_range, open_ranges
ranges = open_ranges()
assert ranges.missing is None, ranges.missing
with in_range(ranges, "before", "run", 1):
    time.sleep(0.002)
try:
    with in_range(ranges, "fwd", "phase", 3):
        with in_range(ranges, "prepare", "stage", 0.5):
            time.sleep(0.002)
        raise KeyError
except KeyError:
    pass
time.sleep(0.002)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables for the real nsys, with an importer that it finds, and nvtx 0.2.11 before the installed one."""
    if PREFIX is None:
        pytest.skip("the real nsys: set KDAPROF_NSIGHT_PREFIX to a folder with Nsight Systems 2022.4 below root/")
    root = Path(PREFIX) / "root" / "usr" / "lib"
    # nsys looks for its importer beside itself, where Debian does not put it: hard links give it the whole tree.
    place = Path(PREFIX) / "whole"
    if not place.exists():
        target = root / "x86_64-linux-gnu/nsight-systems/target-linux-x64"
        shutil.copytree(target, place / "target-linux-x64", copy_function=os.link, symlinks=True)
        (place / "host-linux-x64").symlink_to(root / "nsight-systems/host-linux-x64")
    packages = tmp_path_factory.mktemp("nvtx-0.2.11")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages), "nvtx==0.2.11"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"nvtx 0.2.11 cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return {
        "KDAPROF_NSYS": str(place / "target-linux-x64" / "nsys"),
        "LD_LIBRARY_PATH": str(place / "host-linux-x64"),
        "PYTHONPATH": os.pathsep.join([str(packages), str(Path(__file__).parents[2])]),
    }


def nvtx_events(file: Path) -> list[tuple[str, str, object]]:
    """(name, category, payload) of each range of our domain, in order."""
    database = sqlite3.connect(file)
    [(domain,)] = database.execute("SELECT domainId FROM NVTX_EVENTS WHERE eventType = 75 AND text = 'kdaprof'")
    named = dict(
        database.execute("SELECT category, text FROM NVTX_EVENTS WHERE eventType = 33 AND domainId = ?", (domain,))
    )
    rows = database.execute(
        "SELECT s.value, n.category, coalesce(n.int64Value, n.doubleValue), n.end FROM NVTX_EVENTS n "
        "JOIN StringIds s ON s.id = n.textId WHERE n.eventType = 60 AND n.domainId = ? ORDER BY n.start",
        (domain,),
    ).fetchall()
    assert all(end is not None for *_, end in rows)
    database.close()
    return [(text, named[category], payload) for text, category, payload, _ in rows]


def kdaprof_nsys(real: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    script = textwrap.dedent(WORK)
    command = [sys.executable, "-m", "kdaprof", "nsys", *words[:-1], "--", sys.executable, "-c", script, words[-1]]
    return subprocess.run(command, env={**os.environ, **real}, capture_output=True, text=True, check=False)


def test_the_real_nsys_receives_domain_category_and_payload(real: dict[str, str], tmp_path: Path) -> None:
    done = kdaprof_nsys(real, "--out", str(tmp_path / "all"), "0")
    assert done.returncode == 0, done.stderr
    assert "no device event" in done.stdout
    assert nvtx_events(tmp_path / "all" / "report.sqlite") == [
        ("before", "run", 1),
        ("fwd", "phase", 3),
        ("prepare", "stage", 0.5),
    ]


def test_the_real_nsys_captures_from_our_range_on_and_passes_the_code(real: dict[str, str], tmp_path: Path) -> None:
    done = kdaprof_nsys(real, "--capture", "fwd", "--out", str(tmp_path / "fwd"), "5")
    assert done.returncode == 5, done.stderr
    names = [name for name, *_ in nvtx_events(tmp_path / "fwd" / "report.sqlite")]
    assert "before" not in names
    assert "prepare" in names


def test_the_real_nsys_without_the_range_leaves_no_report(real: dict[str, str], tmp_path: Path) -> None:
    done = kdaprof_nsys(real, "--capture", "never", "--out", str(tmp_path / "never"), "0")
    assert done.returncode == 1, done.stdout
    assert "did range 'never' of domain 'kdaprof' ever begin?" in done.stderr

"""The lines for Nsight Systems, and what is said when no report came out: with a spawn that is no nsys."""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kdaprof.errors import Exit, UnavailableError
from kdaprof.instruments.nsight.nsys import EXPORT, REPORT, NsysPlan, profile_line, record
from kdaprof.instruments.nsight.tool import ToolFailedError, find_tool, need_tool, shown, spawn_attached

COMMAND = ("python", "train.py", "--lr", "0.1")


class FakeNsys:
    """Leaves the files that a test wants of each of the two calls, and keeps what it was asked for."""

    def __init__(
        self, folder: Path, *, profile: tuple[str, ...] = (REPORT,), export: bool = True, code: int = 0
    ) -> None:
        self.folder, self.profile, self.export, self.code = folder, profile, export, code
        self.lines: list[tuple[str, ...]] = []
        self.environ: Mapping[str, str] = {}

    def __call__(self, command: Sequence[str], environ: Mapping[str, str], *, quiet_stdout: bool) -> int:
        self.lines.append(tuple(command))
        self.environ = environ
        if command[1] == "export":
            if self.export:
                (self.folder / EXPORT).write_bytes(b"sqlite")
            return 0 if self.export else 1
        for name in self.profile:
            (self.folder / name).write_bytes(b"x")
        return self.code


def test_the_line_records_cuda_nvtx_and_graph_nodes(tmp_path: Path) -> None:
    line = profile_line("nsys", NsysPlan(command=COMMAND, folder=tmp_path))
    assert line[:2] == ("nsys", "profile")
    assert line[-len(COMMAND) :] == COMMAND
    assert {"--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node"} <= set(line)
    assert not any("capture" in word for word in line)


def test_a_capture_range_has_its_domain_and_leaves_the_command_alive(tmp_path: Path) -> None:
    line = profile_line("nsys", NsysPlan(command=COMMAND, folder=tmp_path, capture="step", graph_nodes=False))
    assert "--nvtx-capture=step@kdaprof" in line
    assert {"--capture-range=nvtx", "--capture-range-end=stop", "--kill=none", "--cuda-graph-trace=graph"} <= set(line)


def test_unregistered_names_begin_a_capture_too(tmp_path: Path) -> None:
    nsys = FakeNsys(tmp_path)
    record("nsys", NsysPlan(command=COMMAND, folder=tmp_path), nsys, {"PATH": "/bin"}, quiet_stdout=False)
    assert nsys.environ == {"PATH": "/bin", "NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"}


def test_a_report_is_exported_and_the_command_s_code_comes_back(tmp_path: Path) -> None:
    nsys = FakeNsys(tmp_path / "new", code=3)
    plan = NsysPlan(command=COMMAND, folder=tmp_path / "new")
    assert record("nsys", plan, nsys, {}, quiet_stdout=False) == 3
    assert [line[1] for line in nsys.lines] == ["profile", "export"]
    assert nsys.lines[1][-1] == str(tmp_path / "new" / REPORT)


@pytest.mark.parametrize(
    ("profile", "capture", "code", "said"),
    [
        ((), None, 0, "the command ended with exit code 0"),
        ((), None, 9, "nsys ended with exit code 9"),
        ((), "step", 0, "did range 'step' of domain 'kdaprof' ever begin?"),
        (("report.qdstrm",), None, 0, "could not import it"),
    ],
)
def test_without_a_report_the_reason_is_said(
    tmp_path: Path, profile: tuple[str, ...], capture: str | None, code: int, said: str
) -> None:
    plan = NsysPlan(command=COMMAND, folder=tmp_path, capture=capture)
    with pytest.raises(ToolFailedError) as caught:
        record("nsys", plan, FakeNsys(tmp_path, profile=profile, code=code), {}, quiet_stdout=False)
    assert said in str(caught.value)
    assert caught.value.exit_code == (code or Exit.ERROR)


def test_an_old_report_does_not_pass_for_a_new_one(tmp_path: Path) -> None:
    (tmp_path / REPORT).write_bytes(b"old")
    (tmp_path / EXPORT).write_bytes(b"old")
    with pytest.raises(ToolFailedError):
        record(
            "nsys", NsysPlan(command=COMMAND, folder=tmp_path), FakeNsys(tmp_path, profile=()), {}, quiet_stdout=True
        )


def test_an_export_that_fails_names_the_report_that_is_there(tmp_path: Path) -> None:
    plan = NsysPlan(command=COMMAND, folder=tmp_path)
    with pytest.raises(ToolFailedError, match="the report is whole"):
        record("nsys", plan, FakeNsys(tmp_path, export=False), {}, quiet_stdout=False)


def test_a_line_can_be_typed_as_it_is_shown() -> None:
    assert shown(("nsys", "a b", "$x"), {"LANG": "C x"}) == "LANG='C x' nsys 'a b' '$x'"


def test_where_a_tool_is_looked_for(tmp_path: Path) -> None:
    def nowhere(name: str) -> str | None:
        return None

    assert find_tool("ncu", environ={}, which=nowhere, root=tmp_path) is None
    for version in ("2024.1", "2025.3"):
        tool = tmp_path / "opt/nvidia/nsight-compute" / version / "ncu"
        tool.parent.mkdir(parents=True)
        tool.touch()
    assert find_tool("ncu", environ={}, which=nowhere, root=tmp_path) == str(tool)
    assert find_tool("ncu", environ={}, which=lambda name: f"/bin/{name}", root=tmp_path) == "/bin/ncu"
    assert find_tool("ncu", environ={"KDAPROF_NCU": "/x/ncu"}, which=nowhere, root=tmp_path) == "/x/ncu"


def test_an_absent_tool_says_what_to_do() -> None:
    with pytest.raises(UnavailableError, match="or do that elsewhere") as caught:
        need_tool("nsys", None, "do that elsewhere")
    assert "https://developer.nvidia.com/nsight-systems" in str(caught.value)
    assert caught.value.exit_code == Exit.UNFIT


def test_a_spawned_command_s_end_is_its_code(tmp_path: Path) -> None:
    script = tmp_path / "end"
    script.write_text("#!/bin/sh\nkill -TERM $$\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    assert spawn_attached((str(script),), {"PATH": "/bin:/usr/bin"}, quiet_stdout=False) == 128 + 15
    assert spawn_attached(("sh", "-c", "exit 7"), {"PATH": "/bin:/usr/bin"}, quiet_stdout=True) == 7
    with pytest.raises(UnavailableError, match="cannot be started"):
        spawn_attached((str(tmp_path / "absent"),), {}, quiet_stdout=False)


@pytest.mark.parametrize(("number", "ends"), [(signal.SIGTERM, 5), (signal.SIGUSR1, 6), (signal.SIGINT, None)])
def test_a_signal_is_the_child_s_to_answer(tmp_path: Path, number: signal.Signals, ends: int | None) -> None:
    begun = tmp_path / "begun"
    loop = f"trap 'exit 5' TERM; trap 'exit 6' USR1; trap 'exit 7' INT; touch {begun}; while :; do sleep 0.05; done"

    def send() -> None:
        until = time.monotonic() + 20
        while not begun.exists() and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    before = signal.getsignal(number)
    try:
        if ends is None:
            with pytest.raises(KeyboardInterrupt):
                spawn_attached(("sh", "-c", loop), os.environ, quiet_stdout=False)
        else:
            assert spawn_attached(("sh", "-c", loop), os.environ, quiet_stdout=False) == ends
    finally:
        sender.join()
    assert signal.getsignal(number) == before

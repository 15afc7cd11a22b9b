"""`kdaprof analyze` as a user calls it: tables, JSON under its schema, files written, bad flags."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

sys.path.append(str(Path(__file__).parents[1] / "unit" / "trace_analysis"))
from paper_trace import PaperTrace

from kdaprof.analysis.trace.document import analysis_schema
from kdaprof.cli.main import main
from kdaprof.errors import Exit

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
VERDICTS = {
    "a-sync-each-add.json.gz": {"sync"},
    "b-many-small-launches.json.gz": {"host"},
    "h200-kda-tensor-step.json.gz": {"host"},
    "a100-graphs-orphans.json.gz": {"device_wait", "unknown"},
    "cpu-only.json.gz": {"unknown"},
    "h200-kda-graph-replay.json.gz": {"gpu"},
    "h100-2gpu-nsys.sqlite": {"unknown", "gpu"},
    "triton-culaunch.json.gz": {"gpu", "unknown"},
}

TAKE_INTERRUPTS = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs deaf to Ctrl-C
try:
    from kdaprof.cli.main import main
except KeyboardInterrupt:
    sys.exit(0)
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    made = PaperTrace()
    made.meta = {"baseTimeNanoseconds": 1_000, "deviceProperties": [{"id": 0, "name": "NVIDIA Paper"}]}
    for step in range(3):
        at = step * 1_000_000
        made.annotation(f"ProfilerStep#{step + 5}", at, at + 990_000)
        made.annotation("fwd", at + 1_000, at + 900_000)
        for call in range(10):
            begin = at + 5_000 + call * 50_000
            made.op("aten::mul", begin, begin + 20_000)
            made.launch((begin + 5_000, begin + 15_000), (begin + 16_000, begin + 18_000))
    return made.write(tmp_path / "trace.json")


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, object]:
    assert main(["analyze", *argv, "--json"]) == Exit.OK
    out, err = capsys.readouterr()
    assert not err
    found = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    jsonschema.validate(found, analysis_schema())
    return found


def test_the_document_validates_and_adds_up(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, str(trace))
    (device,) = found["devices"]
    assert device["name"] == "NVIDIA Paper"
    assert device["busy_ns"] == 60_000
    assert device["busy_ns"] + device["idle_ns"] == device["span_ns"]
    assert sum(device["idle_classes"].values()) == device["idle_ns"]
    assert [step["index"] for step in found["steps"]] == [5, 6, 7]
    assert sum(step["span_ns"] + step["lead_ns"] for step in found["steps"]) == device["span_ns"]
    assert found["launches"]["by_api"][0]["calls"] == 30
    assert found["verdict"]["bound"] == "host"
    assert "Host-bound" in found["verdict"]["text"]
    assert found["verdict"]["thresholds"]["idle_share_gpu"] == 0.15


@pytest.mark.parametrize(("flag", "indices"), [("6:7", [6]), ("6:", [6, 7]), (":7", [5, 6])])
def test_steps_are_chosen_like_a_slice(
    trace: Path, capsys: pytest.CaptureFixture[str], flag: str, indices: list[int]
) -> None:
    found = document(capsys, str(trace), "--steps", flag)
    assert [step["index"] for step in found["steps"]] == indices
    assert found["devices"][0]["events"] == 10 * len(indices)


def test_a_phase(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, str(trace), "--phase", "fwd")
    assert len(found["steps"]) == 3
    assert found["devices"][0]["idle_ns"] == 3 * 9 * 48_000


def test_a_phase_in_some_steps(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, str(trace), "--phase", "fwd", "--steps", "6:8")
    assert len(found["steps"]) == 2
    assert found["devices"][0]["events"] == 20
    assert found["devices"][0]["idle_ns"] == 2 * 9 * 48_000
    assert main(["analyze", str(trace), "--phase", "fwd", "--steps", "50:60"]) == Exit.USAGE
    assert "the trace has steps 5 to 7" in capsys.readouterr().err


def test_tables_hold_verdict_classes_steps_and_next_step(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(trace)]) == Exit.OK
    out, err = capsys.readouterr()
    assert not err
    for text in ("Host-bound: the device idles", "next:", "Where the idle goes", "dispatch", "ProfilerStep#7",
                 "cudaLaunchKernel", "aten::mul", "Launch queue"):  # fmt: skip
        assert text in out
    assert max(map(len, out.splitlines())) <= 120


def test_out_writes_document_and_report_and_nothing_is_overwritten(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["analyze", str(trace), "--out", str(out)]) == Exit.OK
    jsonschema.validate(json.loads((out / "analysis.json").read_text()), analysis_schema())
    assert "**Host-bound" in (out / "report.md").read_text()
    capsys.readouterr()
    assert main(["analyze", str(trace), "--out", str(out)]) == Exit.USAGE
    assert "not empty" in capsys.readouterr().err
    assert main(["analyze", str(trace), "--out", str(out), "--force"]) == Exit.OK


def test_perfetto_adds_the_gaps_to_the_original(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "idle.json"
    assert main(["analyze", str(trace), "--perfetto", str(target)]) == Exit.OK
    before, after = json.loads(trace.read_text()), json.loads(target.read_text())
    assert after["baseTimeNanoseconds"] == before["baseTimeNanoseconds"]
    added = after["traceEvents"][: -len(before["traceEvents"])]
    assert after["traceEvents"][len(added) :] == before["traceEvents"]
    gaps = [event for event in added if event["ph"] == "X"]
    assert len(gaps) == 29
    assert gaps[0]["ts"] == pytest.approx(23.0)
    assert gaps[0]["dur"] == pytest.approx(48.0)
    assert gaps[0]["name"] == "host_other"
    assert sum(value for name, value in gaps[0]["args"].items() if name.endswith("_ns")) == 48_000
    assert {event["name"] for event in added if event["ph"] == "M"} == {
        "process_name", "process_labels", "thread_name",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--steps", "a:b"], "write A:B"),
        (["--steps", "5:5"], "empty"),
        (["--steps", "50:60"], "the trace has steps 5 to 7"),
        (["--steps", "5:6", "--phase", "nothing"], "the trace has: fwd"),
        (["--phase", "nothing"], "the trace has: fwd"),
        (["--jobs", "0"], "at least 1"),
        (["--top", "0"], "at least 1"),
        (["--unknown"], "unrecognized"),
    ],
)
def test_bad_flags_are_one_line_and_exit_2(
    trace: Path, capsys: pytest.CaptureFixture[str], flags: list[str], says: str
) -> None:
    assert main(["analyze", str(trace), *flags]) == Exit.USAGE
    out, err = capsys.readouterr()
    assert not out
    assert says in err
    assert err.count("\n") == 1


def test_many_files_in_parallel_processes_are_as_alone(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = trace.with_name("other.json")
    other.write_text(trace.read_text())
    both = document(capsys, str(trace), str(other), "--jobs", "2")
    alone = document(capsys, str(trace))
    assert [file["path"] for file in both["files"]] == [str(trace), str(other)]
    assert [{**row, "file": 0} for row in both["devices"]] == alone["devices"] * 2


def test_an_interrupt_ends_all_processes_with_one_line(trace: Path) -> None:
    files = [str(trace), str(trace)]
    for wait_s in (0.2, 0.35, 0.5):  # also while the children are still importing
        running = subprocess.Popen(
            [sys.executable, "-c", TAKE_INTERRUPTS, "analyze", *files, "--jobs", "2"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, text=True,
        )  # fmt: skip
        time.sleep(wait_s)
        os.killpg(running.pid, signal.SIGINT)
        _, err = running.communicate(timeout=30)
        assert running.returncode in {Exit.OK, Exit.INTERRUPTED, -signal.SIGINT}
        if running.returncode == Exit.INTERRUPTED:
            assert err == "kdaprof: interrupted\n"


INTERRUPTED_WHILE_STARTING = """
import os, signal, sys, threading, time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from kdaprof.analysis.trace import files
from kdaprof.analysis.trace.report import Scope

class Interrupted(ProcessPoolExecutor):
    def submit(self, *work):
        os.kill(os.getpid(), signal.SIGINT)  # the main thread holds it, so that another one takes it
        time.sleep(0.05)
        pending = super().submit(*work)
        print("started", flush=True)
        return pending

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    files.ProcessPoolExecutor = Interrupted
    try:
        files.analyse_files([Path(sys.argv[1])] * 2, Scope(), jobs=2)
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_an_interrupt_waits_until_the_processes_have_started(trace: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(INTERRUPTED_WHILE_STARTING)
    command = [sys.executable, str(program), str(trace)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("started\nstarted\ninterrupted\n", "")


def test_without_dask_the_scheduler_flag_says_what_to_install(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["analyze", str(trace), "--scheduler", "tcp://127.0.0.1:1"]) == Exit.UNFIT
    assert "pip install" in capsys.readouterr().err


def test_on_a_dask_cluster_of_two_workers(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    other = trace.with_name("other.json")
    other.write_text(trace.read_text())
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        code = main(["analyze", str(trace), str(other), "--scheduler", cluster.scheduler_address, "--json"])
        assert code == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert [device["busy_ns"] for device in found["devices"]] == [60_000, 60_000]


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"the shared traces are not at {TRACES}")
@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_verdicts_of_real_traces(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, str(TRACES / name))
    assert found["verdict"]["bound"] in VERDICTS[name]


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"the shared traces are not at {TRACES}")
@pytest.mark.parametrize(
    "region", ["dispatch", "sync", "allocator", "host_other", "gpu", "streams", "graph", "triton", "jit", "copies"]
)
def test_verdicts_of_regions_with_one_cause(region: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = json.loads((TRACES / "EXPECTED.json").read_text())["traces"]["h200-known-causes.json.gz"]
    want = expected["regions_us"][region]
    found = document(capsys, str(TRACES / "h200-known-causes.json.gz"), "--phase", f"region:{region}")
    (device,) = found["devices"]
    assert found["verdict"]["bound"] == want["bound"]
    assert device["idle_ns"] / 1000 == pytest.approx(want["idle"], abs=1.0)
    assert device["events"] == want["device_events"]
    assert device["launches"] == want["launch_calls"]
    if "largest_class" in want:
        classes = device["idle_classes"]
        assert max(classes, key=classes.get) == want["largest_class"]


@pytest.mark.parametrize("flag", ["--out", "--perfetto"])
@pytest.mark.parametrize("place", ["/proc/x", "/dev/null/x"])
def test_a_place_that_cannot_be_written_is_said_before_the_trace_is_read(
    flag: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(tmp_path / "no such trace.json"), flag, place]) == Exit.ERROR
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"kdaprof: {place}")
    assert "cannot write (" in err
    assert err.count("\n") == 1

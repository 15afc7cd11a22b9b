"""`kdaprof probe`: what is refused before anything is measured, and one real probe on the CPU, seen from outside."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kdaprof.cli import probe
from kdaprof.cli.main import main
from kdaprof.cli.probe_run import _exit_code
from kdaprof.cli.stopping import stoppable
from kdaprof.errors import Exit, UsageError
from kdaprof.probe.plan import Request
from kdaprof.probe.step.plan import StepRequest
from kdaprof.runs.document import run_schema
from kdaprof.runs.history import read_history
from kdaprof.runs.record import CellError, CellRecord, RunRecord

FLAGS = {
    "--workload",
    "--preset",
    "--batch",
    "--seq",
    "--max-iter",
    "--ablate",
    "--target",
    "--path",
    "--paths",
    "--shape",
    "--chunk",
    "--dtype",
    "--phases",
    "--modes",
    "--contexts",
    "--device",
    "--rounds",
    "--samples",
    "--cell-seconds",
    "--util-seconds",
    "--cache",
    "--cold",
    "--cold-limit",
    "--stacks",
    "--seed",
    "--out",
    "--force",
    "--anonymous",
    "--json",
    "--store",
    "--wait",
}


@pytest.fixture
def nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything that reaches torch is too late."""

    def late() -> None:
        raise AssertionError("went as far as torch")

    monkeypatch.setattr(probe, "_require_torch", late)


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = main(["probe", *argv])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("kdaprof: ")
    return code, err


# ---------------------------------------------------------------- bad input


@pytest.mark.usefixtures("nothing_is_measured")
@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--shape", "1,2,3"], "--shape '1,2,3': needs 5 sizes, B,T,H,K,V; got 3"),
        (["--shape", "1,32,1,16,0"], "V = '0' is not a whole number"),
        (["--shape", ""], "--shape '': needs 5 sizes"),
        (["--dtype", "int8"], "--dtype: 'int8' is unknown; choose from float32, bfloat16, float16, float64"),
        (["--path", "fast"], "--path: 'fast' is unknown; choose from fused, tensor"),
        (["--path", ""], "nothing named; choose from fused, tensor"),
        (["--paths", "tensor,flash"], "'flash' is unknown"),
        (["--path", "fused", "--paths", "tensor"], "--path and --paths: give one of them"),
        (["--path", "fused,tensor"], "--path 'fused,tensor': takes one path; --paths takes several"),
        (["--path", "", "--paths", "tensor"], "--path and --paths: give one of them"),
        (["--phases", "step"], "--phases: 'step' is unknown"),
        (["--modes", "lazy"], "--modes: 'lazy' is unknown"),
        (["--contexts", "plain,amp"], "--contexts: 'amp' is unknown"),
        (["--chunk", "0"], "--chunk 0: must be 1 or more"),
        (["--chunk", "x"], "invalid int value: 'x'"),
        (["--rounds", "0"], "--rounds 0"),
        (["--samples", "-1"], "--samples -1"),
        (["--util-seconds", "nan"], "--util-seconds nan"),
        (["--cache", "cold"], "--cache: 'cold' is unknown"),
        (["--cold-limit", "0"], "--cold-limit 0: more than 0"),
        (["--cold-limit", "nan"], "--cold-limit nan"),
        (["--workload", "gemm", "--cold-limit", "-1"], "--cold-limit -1: more than 0"),
        (["--workload", "step", "--cold-limit", "9"], "--cold-limit is the op's"),
        (["--preset", "b8"], "--preset: 'b8' is unknown for the op; choose from production, fla-model, fla-registry"),
        (["--preset", "fla-model", "--shape", "1,2,3,4,5"], "--preset and --shape: give one of them"),
        (["--workload", "step", "--preset", "fla-model"], "choose from b8"),
        (["--seed", "-1"], "--seed -1"),
        (["--sample", "3"], "unrecognized arguments: --sample"),
        (["tensor"], "unrecognized arguments: tensor"),
    ],
)
def test_what_has_no_meaning_is_one_line_before_torch(
    capsys: pytest.CaptureFixture[str], argv: list[str], says: str
) -> None:
    code, err = refused(capsys, *argv)
    assert code == Exit.USAGE
    assert says in err


@pytest.mark.usefixtures("nothing_is_measured")
def test_fused_alone_at_a_shape_that_it_never_takes_is_refused_before_torch(capsys: pytest.CaptureFixture[str]) -> None:
    code, err = refused(capsys, "--path", "fused", "--shape", "1,32,1,33,32")
    assert code == Exit.UNFIT
    assert err == "kdaprof: path 'fused' cannot run: K = 33 (fused takes multiples of 16 up to 128)\n"


def test_an_unknown_device_is_usage_and_an_absent_one_is_an_unfit_machine(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    code, err = refused(capsys, "--device", "tpu", "--out", str(out))
    assert (code, "unknown device 'tpu'" in err) == (Exit.USAGE, True)
    code, err = refused(capsys, "--device", "cuda:99", "--out", str(out))
    assert code in (Exit.UNFIT, Exit.USAGE)
    assert "cuda" in err.lower()
    assert not out.exists()


@pytest.fixture
def never_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything that reaches a cell or the card is too late."""
    from kdaprof.probe import session

    def late(*_: Any) -> Any:
        raise AssertionError("went as far as measuring")

    monkeypatch.setattr(session, "GroupMeasurement", late)
    monkeypatch.setattr(session, "measure_ceilings", late)


@pytest.mark.usefixtures("never_measured")
@pytest.mark.parametrize(
    ("target", "code", "says"),
    [
        ("/proc/kdaprof/run", Exit.ERROR, "cannot write there"),
        ("/dev/null", Exit.USAGE, "exists and is not a directory"),
        ("/dev/full/run", Exit.ERROR, "cannot write there"),
    ],
)
def test_a_target_that_takes_no_run(capsys: pytest.CaptureFixture[str], target: str, code: Exit, says: str) -> None:
    got, err = refused(capsys, "--path", "tensor", "--device", "cpu", "--out", target)
    assert got == code
    assert f"--out {target}: {says}" in err
    assert "choose another" in err


@pytest.mark.usefixtures("never_measured")
def test_a_target_that_holds_something_needs_force(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    code, err = refused(capsys, "--path", "tensor", "--device", "cpu", "--out", str(tmp_path))
    assert (code, "add --force" in err) == (Exit.USAGE, True)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_without_torch_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    code = probe_code(["--path", "fast"])
    assert code == Exit.USAGE
    with pytest.raises(UsageError, match=r"pip install 'kdaprof\[torch\]'"):
        probe.run(["--path", "tensor"])


def probe_code(argv: list[str]) -> int:
    with pytest.raises(UsageError) as caught:
        probe.run(argv)
    return int(caught.value.exit_code)


# ---------------------------------------------------------------- help


def test_help_names_every_flag_with_its_default_and_an_example() -> None:
    text = probe.build_parser().format_help()
    assert set(re.findall(r"(?<![\w-])--[a-z-]+", text)) >= FLAGS
    for default in (
        "fused,tensor",
        "10,512,12,64,64",
        "fwd,bwd,fwdbwd",
        "eager,graph",
        "float32",
        "(5)",
        "(20)",
        "auto",
    ):
        assert default in text
    assert "exit codes: 0 ok" in text
    assert "130 interrupted" in text
    assert text.count("  kdaprof probe ") >= 3


def test_the_flags_are_those_of_the_contract() -> None:
    options = {o for action in probe.build_parser()._actions for o in action.option_strings if o.startswith("--")}
    assert options == FLAGS | {"--help"}


def test_examples_of_the_help_are_accepted() -> None:
    """Each parses and passes the checks; none of them is run."""
    lines = re.findall(r"^  kdaprof probe (.*)$", probe.EXAMPLES, re.MULTILINE)
    assert len(lines) >= 3
    for line in lines:
        argv = line.split(" > ")[0].split()
        request = probe._request(probe.build_parser().parse_args(argv), tuple(argv))
        assert isinstance(request, Request | StepRequest)
        assert request.command == ("kdaprof", "probe", *argv)


def test_help_needs_no_torch() -> None:
    program = (
        "import sys\nfrom kdaprof.cli.main import main\n"
        "try:\n    main(['probe', '--help'])\nexcept SystemExit as end:\n    code = end.code\n"
        "heavy = {'torch', 'triton', 'pandas', 'pyarrow', 'scipy', 'ruptures', 'pynvml'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: kdaprof probe")


# ---------------------------------------------------------------- exit codes


def record(*statuses: Any) -> RunRecord:
    from paper_runs import h200_run

    full, _ = h200_run()
    error = CellError(type="E", text="why")
    cells = tuple(
        CellRecord(key=full.cells[i].key, status=status, error=None if status == "ok" else error)
        for i, status in enumerate(statuses)
    )
    return replace(full, cells=cells)


@pytest.mark.parametrize(
    ("statuses", "interrupted", "code"),
    [
        (("ok", "ok"), False, Exit.OK),
        (("ok", "unavailable"), False, Exit.OK),
        (("ok", "failed"), False, Exit.ERROR),
        (("failed", "failed"), False, Exit.ERROR),
        (("unavailable", "failed"), False, Exit.ERROR),
        (("unavailable", "unavailable"), False, Exit.UNFIT),
        (("ok", "skipped"), True, Exit.INTERRUPTED),
        (("failed", "skipped"), True, Exit.INTERRUPTED),
    ],
)
def test_the_exit_code_follows_from_the_cells(statuses: tuple[str, ...], interrupted: bool, code: Exit) -> None:
    assert _exit_code(record(*statuses), interrupted=interrupted) is code


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is watched for a second before and after a probe; not here."""
    from kdaprof.probe import real

    monkeypatch.setattr(real, "BUSY_WINDOW_NS", 0)


@pytest.mark.usefixtures("no_waiting")
def test_the_only_path_that_cannot_run_is_an_unfit_environment(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    argv = ["--path", "tensor", "--device", "cpu", "--contexts", "no_grad", "--phases", "bwd", "--modes", "eager"]
    out, store = tmp_path / "run", tmp_path / "store"
    argv += ["--shape", "1,16,1,16,16", "--out", str(out), "--store", str(store)]
    assert main(["probe", *argv]) == Exit.UNFIT
    assert not any(entry.fact.value for entry in read_history(store))
    assert "it has no backward pass" in " ".join(capsys.readouterr().out.split())
    assert (out / "report.md").exists()


# ---------------------------------------------------------------- one real probe


@dataclass(frozen=True, slots=True)
class Real:
    """One probe on the CPU, run once for all tests."""

    out: Path
    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        return dict(json.loads(self.stdout, parse_constant=pytest.fail))


TINY = ("--paths", "tensor,reference", "--shape", "1,32,1,16,16", "--phases", "fwd", "--rounds", "2", "--samples", "3")


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    place = tmp_path_factory.mktemp("probe")
    argv = ["probe", *TINY, "--device", "cpu", "--anonymous", "--json", "--out", str(place / "run")]
    done = subprocess.run(
        [sys.executable, "-m", "kdaprof", *argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        cwd=place,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return Real(place / "run", done.returncode, done.stdout, done.stderr)


def test_json_is_alone_on_stdout_strict_and_of_its_schema(real: Real) -> None:
    assert real.code == 0, real.stderr
    jsonschema.Draft202012Validator(run_schema()).validate(real.document)
    assert real.document["schema"] == "kdaprof.run/1"
    assert real.document["complete"] is True
    assert "\x1b" not in real.stdout


def test_the_run_is_recorded_in_the_history_once(real: Real, capsys: pytest.CaptureFixture[str]) -> None:
    """The store of a folder without a project is `.kdaprof` in it."""
    store = real.out.parent / ".kdaprof"
    entries = read_history(store)
    assert {entry.stamp.run for entry in entries} == {real.document["run"]}
    assert {entry.stamp.directory for entry in entries} == {None}  # --anonymous
    stated = {
        (cell["id"], name): fact["value"] for cell in real.document["cells"] for name, fact in cell["facts"].items()
    }
    assert {(entry.cell, entry.name): entry.fact.value for entry in entries} == stated
    assert main(["history", "--add", str(real.out), "--store", str(store)]) == Exit.OK
    assert "recorded already" in capsys.readouterr().out


@pytest.mark.usefixtures("nothing_is_measured")
def test_a_store_that_is_a_file_is_refused_before(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, err = refused(capsys, "--store", str(tmp_path / "file"))
    assert code == Exit.USAGE
    assert "is a file; give a folder" in err


def test_progress_goes_to_stderr_and_no_warning_does(real: Real) -> None:
    assert "plain/fwd" in real.stderr
    assert "Warning" not in real.stderr
    assert "Traceback" not in real.stderr


def test_the_cells_are_those_asked_for(real: Real) -> None:
    cells = {cell["id"]: cell for cell in real.document["cells"]}
    end = "fwd/B1-T32-H1-K16-V16-C16/float32"
    assert {name: cell["status"] for name, cell in cells.items()} == {
        f"kda/tensor/plain/eager/{end}": "ok",
        f"kda/tensor/plain/graph/{end}": "unavailable",
        f"kda/reference/plain/eager/{end}": "ok",
        f"kda/reference/plain/graph/{end}": "unavailable",
    }


def test_cpu_times_are_kept_and_not_to_be_quoted(real: Real) -> None:
    for cell in real.document["cells"]:
        wall = cell["facts"]["wall_ns"]
        if cell["mode"] == "graph":
            assert (wall["value"], wall["missing"]) == (None, "no-device")
            continue
        assert wall["value"] > 0
        assert wall["quotable"] is False
        assert "Q08" in {reason["rule"] for reason in wall["reasons"]}
        assert cell["facts"]["error_l2"]["value"] < 1e-6
        assert cell["evidence"]["verdict"] == "gate-only"


def test_every_gpu_figure_is_missing_with_its_reason(real: Real) -> None:
    for cell in real.document["cells"]:
        for name in (
            "gpu_busy_ns",
            "host_bound",
            "launches",
            "allocs",
            "util_mean",
            "idle_dispatch_ns",
            "graph_removed",
        ):
            fact = cell["facts"].get(name)
            if fact is not None:
                assert (fact["value"], fact["missing"]) == (None, "no-device")
                assert fact["detail"]


def test_an_anonymous_run_names_nobody_and_no_place(real: Real) -> None:
    assert "path" not in real.document
    home, user, host = str(Path.home()), getpass.getuser(), socket.gethostname()
    word = re.compile(rf"(?<![A-Za-z0-9])({re.escape(user)}|{re.escape(host)})(?![A-Za-z0-9])")
    files = [p for p in real.out.rglob("*") if p.is_file()]
    assert len(files) >= 6
    for name, data in [("stdout", real.stdout.encode()), *((p.name, p.read_bytes()) for p in files)]:
        text = data.decode("latin-1")
        assert str(real.out.parent) not in text, name
        assert home + "/" not in text, name
        assert sys.prefix not in text, name
        if not name.endswith(".parquet"):  # two letters may stand anywhere in compressed bytes
            assert not word.search(text), (name, word.search(text))


def test_report_shows_the_same_run(real: Real, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(real.out), "--json"]) == 0
    assert capsys.readouterr().out == real.stdout
    assert main(["report", str(real.out), "--check"]) == 0
    capsys.readouterr()
    assert main(["report", str(real.out), "--md"]) == 0
    assert capsys.readouterr().out == (real.out / "report.md").read_text()


def test_a_second_probe_needs_force_for_the_same_place(real: Real, capsys: pytest.CaptureFixture[str]) -> None:
    before = {p: p.read_bytes() for p in real.out.rglob("*") if p.is_file()}
    code, err = refused(capsys, *TINY, "--device", "cpu", "--out", str(real.out))
    assert (code, "add --force" in err) == (Exit.USAGE, True)
    assert {p: p.read_bytes() for p in real.out.rglob("*") if p.is_file()} == before


@pytest.mark.usefixtures("no_waiting")
def test_people_get_tables_the_verdict_and_where_to_see_a_gpu(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    argv = ["--path", "tensor", "--shape", "1,16,1,16,16", "--phases", "fwd", "--rounds", "1", "--samples", "2"]
    assert main(["probe", *argv, "--device", "cpu", "--out", str(out)]) == 0
    text, progress = capsys.readouterr()
    words = " ".join(text.split())
    assert "\nVerdict\n" in text
    assert "its times are not speed (Q08)" in words
    assert "reports/h200-kda" in words
    assert f"run directory {out}" in words
    assert "plain/fwd" in progress
    assert "\x1b" not in text


def test_the_first_signal_stops_and_handlers_are_put_back() -> None:
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in signals]

    def stopped() -> None:
        with stoppable():
            assert not {signal.getsignal(number) for number in signals} & set(before)
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert [signal.getsignal(number) for number in signals] == before


# ---------------------------------------------------------------- the interpreter


@pytest.mark.interpreter
@pytest.mark.slow
def test_fused_without_a_gpu_is_checked_in_the_interpreter(tmp_path: Path) -> None:
    """The kernels themselves, forward and backward, at one short chunk: right, witnessed by the gate, never speed."""
    out = tmp_path / "run"
    argv = ["--path", "fused", "--shape", "1,20,1,16,16", "--phases", "fwdbwd", "--rounds", "1", "--samples", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "kdaprof", "probe", *argv, "--device", "cpu", "--json", "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"},
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout, parse_constant=pytest.fail)
    eager = next(cell for cell in document["cells"] if cell["mode"] == "eager")
    assert eager["status"] == "ok"
    assert eager["facts"]["error_l2"]["value"] < 1e-5
    gate = next(w for w in eager["evidence"]["witnesses"] if w["name"] == "gate")
    assert gate["says"] == "fused"
    wall = eager["facts"]["wall_ns"]
    assert wall["value"] > 0
    assert wall["quotable"] is False
    assert "Q08" in {reason["rule"] for reason in wall["reasons"]}

"""The command line: verbs, help without heavy imports, and one line with an exit code for every end."""

from __future__ import annotations

import errno
import importlib
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from kdaprof import __version__
from kdaprof.cli import main as cli
from kdaprof.cli.parser import VerbParser
from kdaprof.errors import BadFileError, Exit, UnavailableError, UsageError

HEAVY = ("torch", "triton", "pandas", "pyarrow", "numpy", "scipy", "ruptures", "pynvml", "rich", "jinja2")


@pytest.fixture
def run_verb(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[str]], int]], int]:
    """Run `kdaprof fake A B` with this body."""

    def call(body: Callable[[list[str]], int]) -> int:
        module = types.ModuleType("fake_verb")
        module.run = body  # type: ignore[attr-defined]
        module.__spec__ = importlib.machinery.ModuleSpec("fake_verb", None)
        monkeypatch.setitem(sys.modules, "fake_verb", module)
        return cli.main(["fake", "A", "B"], {"fake": cli.Verb("fake_verb", "a verb for tests")})

    return call


def raising(error: BaseException) -> Callable[[list[str]], int]:
    def body(_: list[str]) -> int:
        raise error

    return body


def kdaprof(*argv: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kdaprof", *argv], capture_output=True, text=True, timeout=120, check=False, **more
    )


def test_the_verb_gets_its_arguments_and_its_code_is_returned(run_verb: Callable[..., int]) -> None:
    seen: list[str] = []
    assert run_verb(lambda argv: seen.extend(argv) or 4) == 4
    assert seen == ["A", "B"]


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (UsageError("--shape '1': needs 5 sizes"), 2, "kdaprof: --shape '1': needs 5 sizes\n"),
        (BadFileError("x/run.json: not valid JSON"), 1, "kdaprof: x/run.json: not valid JSON\n"),
        (UnavailableError("no device"), 5, "kdaprof: no device\n"),
        (BadFileError("two\n  lines"), 1, "kdaprof: two lines\n"),
        (KeyboardInterrupt(), 130, "kdaprof: interrupted\n"),
    ],
)
def test_a_named_error_is_one_line_and_its_code(
    run_verb: Callable[..., int], capsys: pytest.CaptureFixture[str], error: BaseException, code: int, says: str
) -> None:
    assert run_verb(raising(error)) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", says)


@pytest.mark.parametrize("error", [ZeroDivisionError("division by zero"), RuntimeError(), KeyError("a\nb")])
def test_an_unexpected_error_is_one_line_with_its_type_and_the_way_to_a_traceback(
    run_verb: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    monkeypatch.delenv("KDAPROF_TRACEBACK", raising=False)
    assert run_verb(raising(error)) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith(f"kdaprof: {type(error).__name__}")
    assert "KDAPROF_TRACEBACK=1" in err


def test_the_traceback_is_printed_when_asked_for(
    run_verb: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDAPROF_TRACEBACK", "1")
    assert run_verb(raising(ZeroDivisionError("x"))) == 1
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert "in body" in err
    assert err.endswith("kdaprof: ZeroDivisionError: x\n")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("prob", "`kdaprof probe`"),
        ("REPORT", "there are: "),
        ("reprot", "`kdaprof report`"),
        ("zzz", "there are: probe"),
    ],
)
def test_an_unknown_verb_names_the_nearest(capsys: pytest.CaptureFixture[str], typed: str, hint: str) -> None:
    assert cli.main([typed]) == Exit.USAGE
    err = capsys.readouterr().err
    assert err.startswith(f"kdaprof: no verb {typed!r}: ")
    assert hint in err
    assert err.count("\n") == 1


def test_an_option_before_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--json", "report"]) == Exit.USAGE
    assert "options stand after the verb" in capsys.readouterr().err


def test_version_and_overview(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"kdaprof {__version__}\n"
    assert cli.main(["--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert all(f"  {name} " in out for name in cli.available(cli.VERBS))
    assert cli.main([]) == Exit.USAGE
    assert capsys.readouterr() == ("", out)


def test_only_verbs_whose_module_is_there_are_listed() -> None:
    verbs = {"report": cli.VERBS["report"], "none": cli.Verb("kdaprof.cli.none_such", "x")}
    assert list(cli.available(verbs)) == ["report"]


@pytest.mark.parametrize("verb", [None, *cli.available(cli.VERBS)])
def test_help_teaches_and_imports_nothing_heavy(verb: str | None) -> None:
    program = (
        "import sys, json\nfrom kdaprof.cli.main import main\n"
        "try:\n    code = main(sys.argv[1:])\nexcept SystemExit as end:\n    code = end.code or 0\n"
        "json.dump([code, sorted({n.partition('.')[0] for n in sys.modules})], sys.stderr)"
    )
    argv = [verb, "--help"] if verb else ["--help"]
    done = subprocess.run(
        [sys.executable, "-c", program, *argv], capture_output=True, text=True, check=True, timeout=60
    )
    code, modules = json.loads(done.stderr)
    assert code == 0
    assert not set(HEAVY) & set(modules)
    assert "examples:" in done.stdout
    assert "kdaprof " in done.stdout.partition("examples:")[2]
    assert "exit codes:" in done.stdout


def test_the_module_runs_as_the_script_does() -> None:
    done = kdaprof("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"kdaprof {__version__}\n", "")
    done = kdaprof("reprot")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kdaprof: no verb 'reprot': did you mean `kdaprof report`?\n"


def test_a_reader_that_leaves_is_no_fault() -> None:
    """`kdaprof --help | true`: the pipe is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kdaprof", "--help"], stdout=writing, stderr=subprocess.PIPE, check=False, timeout=60
        )
    finally:
        os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kdaprof", "--help"], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr.decode() == "kdaprof: cannot write the output (No space left on device)\n"


def test_a_closed_stdout_is_no_fault() -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec '{sys.executable}' -m kdaprof --version >&-"],
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_os_error_of_a_verb_is_not_blamed_on_stdout(
    run_verb: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_verb(raising(OSError(errno.EIO, "Input/output error"))) == 1
    assert "cannot write" not in capsys.readouterr().err


def test_output_survives_a_terminal_that_knows_only_ascii() -> None:
    done = kdaprof("reprot", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 2
    done = kdaprof("report", "--help", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_a_verbs_parser_says_one_line_and_takes_no_abbreviations() -> None:
    parser = VerbParser("x", description="d", epilog="e")
    parser.add_argument("--samples", type=int)
    assert parser.parse_args(["--samples", "3"]).samples == 3
    for bad in (["--sample", "3"], ["--samples", "many"], ["more"]):
        with pytest.raises(UsageError) as caught:
            parser.parse_args(bad)
        assert str(caught.value).endswith("; see `kdaprof x --help`")
        assert "\n" not in str(caught.value)

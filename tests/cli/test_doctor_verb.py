"""`kdaprof doctor` as a user calls it, on the machine of this test."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import jsonschema
import pytest

from kdaprof.cli.main import main
from kdaprof.errors import Exit
from kdaprof.runs.checkup import checkup_schema

ROOT = Path(__file__).parents[2]


def document(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, dict[str, str]]]:
    code = main(["doctor", "--quick", "--json", *words])
    out, err = capsys.readouterr()
    assert not err
    found = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    jsonschema.validate(found, checkup_schema())
    assert found["fit"] is (code == Exit.OK)
    return code, {check["id"]: check for check in found["checks"]}


def test_the_document_and_the_exit_code_agree(capsys: pytest.CaptureFixture[str]) -> None:
    code, checks = document(capsys)
    failed = [id_ for id_, check in checks.items() if check["status"] == "fail"]
    assert code == (Exit.UNFIT if failed else Exit.OK)
    assert {"torch", "nvtx", "ptrace", "path-fused", "path-fla", "attention-float32", "host-load"} <= set(checks)


def test_the_field_report_s_card_is_caught(capsys: pytest.CaptureFixture[str]) -> None:
    code, checks = document(capsys, "--card", "RTX 5060 Ti", "--declare", "sms=170", "--declare", "bandwidth=1792GB/s")
    assert code == Exit.UNFIT
    assert checks["declared-sms"]["status"] == checks["declared-bandwidth"]["status"] == "fail"
    assert "GeForce RTX 5090" in checks["declared-sms"]["text"]


def test_a_stored_run_s_ceilings_are_held_against_its_card(capsys: pytest.CaptureFixture[str]) -> None:
    run = str(ROOT / "reports" / "h200-kda")
    _, checks = document(capsys, "--run", run, "--declare", "bandwidth=4.8TB/s", "--declare", "sms=132")
    assert checks["declared-bandwidth"]["status"] == checks["declared-sms"]["status"] == "ok"
    assert checks["declared-reachable"]["status"] == "ok"
    assert "H200" in checks["ceiling-copy"]["text"]
    _, checks = document(capsys, "--run", run, "--declare", "bandwidth=1792GB/s")
    assert checks["declared-below-measured"]["status"] == "fail"


def test_people_read_what_fails_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--quick", "--card", "RTX 5060 Ti", "--declare", "sms=170"])
    out = capsys.readouterr().out
    assert code == Exit.UNFIT
    assert out.startswith("Card\nFAIL  sms 170 cannot be that of GeForce RTX 5060 Ti")
    assert "\n      → withdraw" in out
    assert "Unfit to measure on: declared-sms" in out.splitlines()[-1]
    assert all(len(line) <= 80 for line in out.splitlines()[:-1] if "http" not in line)


@pytest.mark.parametrize(
    "words",
    [["--measure", "--quick"], ["--measure", "--run", "x"], ["--declare", "speed=3"], ["--card", "H200"], ["x"]],
)
def test_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *words]) == Exit.USAGE
    assert capsys.readouterr().err.count("\n") == 1


def test_a_run_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["doctor", "--run", str(tmp_path / "absent")]) == Exit.ERROR
    assert "no such run directory" in capsys.readouterr().err


def test_it_works_where_torch_is_not_installed_at_all() -> None:
    """Torch and triton hidden from the import system, as on a laptop that only analyses."""
    script = textwrap.dedent(
        """
        import sys
        from importlib import machinery, metadata
        hidden = ("torch", "triton")
        find, version = machinery.PathFinder.find_spec, metadata.version
        def find_spec(name, path=None, target=None):
            return None if name.split(".")[0] in hidden else find(name, path, target)
        def version_of(name):
            if name in hidden:
                raise metadata.PackageNotFoundError(name)
            return version(name)
        machinery.PathFinder.find_spec, metadata.version = find_spec, version_of
        from kdaprof.cli.main import main
        sys.exit(main(["doctor", "--quick", "--json"]))
        """
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == Exit.UNFIT, done.stderr
    found = {check["id"]: check for check in json.loads(done.stdout)["checks"]}
    assert found["torch"]["status"] == "fail"
    assert "kdaprof[torch]" in found["torch"]["next"]
    assert found["path-fused"]["status"] == "warn"
    assert "torch is not installed" in found["path-fused"]["text"]

"""`probe --workload step` and `--target` as typed: what is refused, and your own step as the page documents it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kdaprof.cli.main import main
from kdaprof.probe import real
from kdaprof.runs.document import run_schema

PAGE = Path(__file__).parents[2] / "docs" / "your-own-step.md"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--workload", "gru"], "choose kda, step"),
        (["--batch", "4"], "only with --workload step"),
        (["--workload", "step", "--preset", "b9"], "b8, b10, b32, b4"),
        (["--workload", "step", "--batch", "0"], "1 or more"),
        (["--workload", "step", "--shape", "1,2,3,4,5"], "--batch, --seq and --max-iter"),
        (["--workload", "step", "--ablate", "mha"], "kda"),
        (["--workload", "step", "--contexts", "no_grad"], "unknown"),
        (["--target", "my_step"], "package.module:make_step"),
        (["--target", "m:f", "--batch", "4"], "--batch is the built-in step's"),
        (["--target", "m:f", "--ablate", "kda"], "--ablate is the built-in step's"),
        (["--target", "m:f", "--contexts", "autocast"], "--contexts is the built-in step's"),
        (["--target", "m:f", "--path", "fused"], "--path is the built-in step's"),
        (["--target", "m:f", "--modes", "eager,graph"], "--modes is the built-in step's"),
    ],
)
def test_what_has_no_meaning_is_refused_in_one_line(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", *flags]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


def test_the_page_s_step_is_probed_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.S)
    command = re.search(r"```sh\nkdaprof (.*?)\n```", text)
    assert code
    assert command
    (tmp_path / "my_step.py").write_text(code[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(real, "BUSY_WINDOW_NS", 0)
    flags = [*command[1].split(), "--rounds", "2", "--samples", "3", "--util-seconds", "0", "--device", "cpu", "--json"]
    assert main(flags) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(run_schema()).validate(document)
    assert [cell["phase"] for cell in document["cells"]] == ["step", "fwd", "bwd", "opt"]
    assert {cell["status"] for cell in document["cells"]} == {"ok"}
    assert all(cell["facts"]["wall_ns"]["value"] > 0 for cell in document["cells"])
    assert all({r["rule"] for r in cell["facts"]["wall_ns"]["reasons"]} >= {"Q08"} for cell in document["cells"])
    assert "The step by phase" in (tmp_path / "runs/my-step/report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise OSError('no data')", "importing broken_step failed: OSError: no data"),
        ("x = 1", "no function 'make_step'"),
        ("def make_step(device): return 3", "neither callable nor has phases"),
        ("class S:\n    phases = {'step': print}\ndef make_step(device): return S()", "not 'step'"),
        ("class S:\n    phases = {'fwd': 3}\ndef make_step(device): return S()", "phase 'fwd' is not callable"),
        ("class S:\n    phases = ['fwd', 'b']\ndef make_step(device): return S()", "(name, callable) pairs"),
        ("import sys; sys.exit(0)", "importing broken_step failed: it called sys.exit(0)"),
    ],
)
def test_a_target_that_cannot_be_made_says_why(
    body: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_step.py").write_text(body + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_step", raising=False)
    assert main(["probe", "--target", "broken_step:make_step", "--device", "cpu"]) == 2
    assert says in capsys.readouterr().err
    monkeypatch.delitem(sys.modules, "broken_step", raising=False)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "    raise ValueError('no data here')",
            "make_step('cpu') failed: ValueError: no data here; KDAPROF_TRACEBACK=1",
        ),
        ("    return other()", "make_step('cpu') failed: NameError"),
        ("    import sys; sys.exit(0)", "make_step('cpu') failed: it called sys.exit(0)"),
        ("    import os; os.chdir('/'); return print", "changed the working directory to /; let it use whole paths"),
    ],
)
def test_a_make_step_that_fails_is_the_user_s_fault_not_kdaprof_s(
    body: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raising_step.py").write_text(f"def make_step(device):\n{body}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "raising_step", raising=False)
    assert main(["probe", "--target", "raising_step:make_step", "--device", "cpu"]) == 1
    told = capsys.readouterr().err
    assert says in told
    assert "fault in kdaprof" not in told
    assert told.count("\n") == 1
    assert Path.cwd() == tmp_path
    monkeypatch.delitem(sys.modules, "raising_step", raising=False)


def failing(
    module: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[dict[str, Any]]:
    """The cells of a probe of the target in `folder`, which fails."""
    monkeypatch.delitem(sys.modules, module, raising=False)  # of the case before
    monkeypatch.chdir(folder)
    monkeypatch.setattr(real, "BUSY_WINDOW_NS", 0)
    flags = ["--rounds", "1", "--samples", "1", "--util-seconds", "0", "--device", "cpu", "--json"]
    assert main(["probe", "--target", f"{module}:make_step", *flags]) == 1
    cells: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["cells"]
    return cells


@pytest.mark.parametrize("where", ["phase", "prepare"])
def test_a_step_that_exits_is_a_failed_cell_and_no_silent_success(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "leaving_step.py").write_text(
        "import sys\n"
        "class S:\n"
        f"    def phase(self): sys.exit(0) if {where == 'phase'} else None\n"
        f"    def prepare(self, i): sys.exit(0) if {where == 'prepare'} else None\n"
        "    @property\n"
        "    def phases(self): return {'fwd': self.phase}\n"
        "def make_step(device): return S()\n"
    )
    cells = failing("leaving_step", tmp_path, monkeypatch, capsys)
    assert {cell["status"] for cell in cells} == {"failed"}
    assert {cell["error"]["text"] for cell in cells} == {"the step called sys.exit(0)"}


@pytest.mark.parametrize("where", ["bwd", "prepare"])
def test_a_step_that_raises_says_in_which_part_and_at_which_line(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "third_step.py").write_text(
        "import torch\n"
        "class S:\n"
        "    def __init__(self): self.steps = 0\n"
        "    def prepare(self, i):\n"
        "        self.steps += 1\n"
        f"        if {where == 'prepare'} and self.steps == 3: torch.ones(2).reshape(3)\n"
        "    def bwd(self):\n"
        f"        if {where == 'bwd'} and self.steps == 3: torch.ones(2).reshape(3)\n"
        "    @property\n"
        "    def phases(self): return {'fwd': int, 'bwd': self.bwd}\n"
        "def make_step(device): return S()\n"
    )
    cells = failing("third_step", tmp_path, monkeypatch, capsys)
    line = {"prepare": 6, "bwd": 8}[where]
    (text,) = {cell["error"]["text"] for cell in cells}
    assert text.startswith("shape '[3]' is invalid")
    assert text.endswith(f" · in {where}, at third_step.py:{line}")

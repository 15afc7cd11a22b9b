"""The targets that need a GPU still say what kdaprof takes: each of their commands is parsed, none is run."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"(?m)^(gpu-[a-z]*-?run):.*## ", MAKEFILE)


def commands(target: str) -> list[list[str]]:
    """The words of each command that the target would run, without what the shell does with its exit code."""
    told = subprocess.run(
        ["make", "-n", "--no-print-directory", target, "OUT=runs/x", "GPU_PYTHON=python"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout  # fmt: skip
    lines = told.replace("\\\n", " ").splitlines()
    found = [part.split("||")[0] for line in lines for part in line.split(";") if "python " in part]
    return [shlex.split(part) for part in found]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", TARGETS)
def test_what_a_target_runs_is_taken(target: str) -> None:
    found = commands(target)
    assert found
    for words in found:
        script = words[words.index("python") + 1 :]
        if script[0] != "-m":
            assert (ROOT / script[0]).is_file(), script
            verb, flags = "probe", script[1:]
            if script[0] == "probes/sampled_utilisation.py":
                continue  # its first word is a folder, and no flag
        else:
            assert script[1] == "kdaprof"
            verb, flags = script[2], script[3:]
        importlib.import_module(f"kdaprof.cli.{verb}").build_parser().parse_args(flags)


def test_every_such_target_is_listed_and_phony() -> None:
    assert {"gpu-run", "gpu-peers-run", "gpu-step-run", "gpu-util-run", "gpu-baseline-run"} <= set(TARGETS)
    phony = re.search(r"(?m)^\.PHONY: (.*)$", MAKEFILE)
    assert phony
    assert set(TARGETS) <= set(phony[1].split())

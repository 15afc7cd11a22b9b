"""A real fork inside the `with` block: run, device and output stay the parent's, whatever the child does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import forking_loop
import pytest

from kdaprof.analysis.recompute import load_raw


@pytest.mark.parametrize("how", ["leaves", "raises", "ends", "hooks", "steps on", "worker"])
def test_a_forked_child_has_no_part_in_the_run(tmp_path: Path, how: str) -> None:
    command = [sys.executable, forking_loop.__file__, str(tmp_path / "run"), how]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    # The child that raises says what it raised, once, as any process does.
    assert (ended.stderr.splitlines() or [""])[-1] == ("ValueError: in the child" if how == "raises" else "")
    raw = load_raw(tmp_path / "run")
    assert (raw.record.complete, raw.record.notes) == (True, ())
    steps = list(range(forking_loop.STEPS))
    assert [row.step for row in raw.samples["step/own/plain/eager/step/B8/float32"]] == steps
    assert {cell for cell, _ in raw.timelines} == set(raw.samples)
    assert [line.split(" · ")[0] for line in ended.stdout.splitlines()] == [f"step {number}" for number in steps]

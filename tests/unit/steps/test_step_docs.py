"""The documentation's example does what it says: it is run as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from kdaprof.analysis.recompute import load_raw

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_example_loop_runs_as_it_stands(tmp_path: Path) -> None:
    code = BLOCK.findall((DOCS / "step-profiler.md").read_text())[0]
    environ = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "own cost: " in done.stdout
    raw = load_raw(tmp_path / "runs" / "my-loop")
    assert raw.record.complete
    assert raw.record.notes == ()
    assert {len([r for r in rows if r.wall_ns]) for rows in raw.samples.values()} == {40}


def test_every_python_block_compiles() -> None:
    for page in ("step-profiler.md", "lightning.md"):
        for number, code in enumerate(BLOCK.findall((DOCS / page).read_text())):
            compile(code, f"{page}#{number}", "exec")

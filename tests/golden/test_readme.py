"""What the README shows is what the commands print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_first_screen_is_real_output() -> None:
    start = README.index("$ .venv/bin/kdaprof report reports/h200-kda\n")
    shown = README[start : README.index("```", start)].splitlines()[1:]
    command = [sys.executable, "-m", "kdaprof", "report", "reports/h200-kda"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    parts = [part.strip("\n") for part in f"\n{chr(10).join(shown)}\n".split("\n…\n")]
    assert len(parts) > 1
    assert [part for part in parts if part not in printed] == []


def test_the_picture_is_the_one_that_the_probe_makes(tmp_path: Path) -> None:
    made = tmp_path / "picture.svg"
    command = [sys.executable, "probes/picture.py", "reports/h200-kda", str(made)]
    subprocess.run(command, cwd=ROOT, check=True)
    assert made.read_text() == (ROOT / "docs" / "h200-kda.svg").read_text()


def test_every_file_that_the_readme_links_to_is_there() -> None:
    links = [part.split(")")[0] for part in README.split("](")[1:]]
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert links
    assert not missing

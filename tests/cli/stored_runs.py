"""Runs of scenes laid out on disk, told apart by id, start and wall."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import scenes
from test_report_verb import store

from kdaprof.cli.main import main

MS = 1_000_000
DAY = 86_400 * 1_000_000_000
CELL = scenes.key().id


def stored(folder: Path, name: str, *, wall_ns: int = 200_000, day: int = 0, **changes: Any) -> Path:
    """A run `name` in `folder`: one fused forward cell of this wall, started so many days later."""
    scene = {key: changes.pop(key) for key in ("warm", "rounds", "per_round") if key in changes}
    scene.setdefault("warm", (20 * wall_ns, *[wall_ns] * 4))
    record: dict[str, Any] = {"run": name, "started_unix_ns": 1_796_000_000_000_000_000 + day * DAY, **changes}
    record.setdefault("environment", replace(scenes.environment(), cwd="/srv/kda", git_commit="abc1234def567890"))
    raw = scenes.raw(scenes.scene(wall_ns=wall_ns, profiled_wall_ns=wall_ns, **scene), **record)
    return store(folder / name, raw)


def fails_in_one_line(capsys: pytest.CaptureFixture[str], argv: list[str], code: int, says: str) -> None:
    """The command ends with `code` and one line on stderr, and prints nothing else."""
    capsys.readouterr()
    assert main(argv) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert says in err

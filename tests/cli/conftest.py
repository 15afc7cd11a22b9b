"""Builders that other tests keep beside them are used here too: runs on paper, and scenes with samples."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kdaprof.errors import Exit

UNIT = Path(__file__).resolve().parents[1] / "unit"
sys.path += [str(UNIT / "report"), str(UNIT / "analysis")]


@pytest.fixture(params=["/proc/x", "/dev/null", "/dev/null/x", "a file", "files inside", "a full disk"])
def place_of_no_use(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Exit]:
    """What `--out` cannot be, and the exit code that says so."""
    what = str(request.param)
    place = Path(what) if what.startswith("/") else tmp_path / what
    if what == "a file":
        place.write_text("mine")
    elif what == "files inside":
        place.mkdir()
        (place / "notes.txt").write_text("mine")
    elif what == "a full disk":

        class Room:
            f_bavail, f_frsize = 0, 4096

        monkeypatch.setattr("os.statvfs", lambda _: Room())
    usage = what in ("/dev/null", "a file", "files inside")
    return str(place), Exit.USAGE if usage else Exit.ERROR

"""The store: the folder that holds what is said about runs rather than measured: history and retractions."""

from __future__ import annotations

import tomllib
from pathlib import Path

from kdaprof.errors import UsageError

DEFAULT_STORE = ".kdaprof"
HISTORY_FOLDER = "history"
RETRACTIONS_FOLDER = "retractions"


def find_store(flag: Path | None, start: Path) -> Path:
    """The store: `flag` where it is given, else `[tool.kdaprof] store` of the nearest pyproject.toml above `start`.

    A relative path in a pyproject.toml counts from that file; one that says nothing has `.kdaprof` beside it, and
    without any it is `.kdaprof` in `start`. The folder need not exist.
    Errors: UsageError for a pyproject.toml whose entry is no path, or a `flag` that is a file.
    """
    if flag is not None:
        if flag.exists() and not flag.is_dir():
            raise UsageError(f"--store {flag}: is a file; give a folder")
        return flag
    for folder in (start, *start.resolve().parents):
        project = folder / "pyproject.toml"
        if project.is_file():
            return folder / _stated(project)
    return start / DEFAULT_STORE


def _stated(project: Path) -> str:
    """What the project says; the default where it says nothing."""
    try:
        document = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        text = f"{project}: cannot read it for [tool.kdaprof] store ({error}); mend it or give --store"
        raise UsageError(text) from error
    tool = document.get("tool", {})
    stated = tool.get("kdaprof", {}).get("store", DEFAULT_STORE) if isinstance(tool, dict) else DEFAULT_STORE
    if not isinstance(stated, str) or not stated:
        raise UsageError(f"{project}: [tool.kdaprof] store must be a path, not {stated!r}")
    return stated

"""What was written before makes way for what comes: an old file must not pass for one of the new run."""

from __future__ import annotations

import glob
from pathlib import Path

from kdaprof.runs.atomic import TargetError


def make_way(*files: Path) -> None:
    """Make the folders of `files` and remove what lies there, and what a killed write of them left half done.

    Errors: TargetError where that cannot be done.
    """
    for path in files:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            for old in (path, *path.parent.glob(f".{glob.escape(path.name)}.*.tmp")):
                old.unlink(missing_ok=True)
        except OSError as error:
            reason = error.strerror or error
            raise TargetError(f"{path}: cannot be replaced ({reason}); choose another --out") from error

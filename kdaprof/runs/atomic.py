"""Every write goes temp → fsync → replace, so that a reader sees the old file or the new one, never half of either."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from kdaprof.errors import KdaprofError


class TargetError(KdaprofError):
    """The target cannot be written: full disk, no permission, not a directory."""


def write_with(path: Path, writer: Callable[[Path], object]) -> None:
    """Let `writer` fill a temporary file beside `path`, then put it in place; on any fault the old file stays.

    Errors: TargetError naming the path and the cause.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
        temporary = Path(name)
        writer(temporary)
        _fsync(temporary)
        temporary.chmod(0o644)
        os.replace(temporary, path)
        temporary = None
        _fsync(path.parent)
    except OSError as error:
        raise TargetError(
            f"{path}: cannot write ({error.strerror or error}); free space or choose another --out"
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Put `data` in place atomically."""
    write_with(path, lambda temporary: temporary.write_bytes(data))


def write_text(path: Path, text: str) -> None:
    """Put UTF-8 `text` in place atomically."""
    write_bytes(path, text.encode())


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

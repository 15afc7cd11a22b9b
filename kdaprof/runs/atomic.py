"""Every write goes temp → fsync → replace, so that a reader sees the old file or the new one, never half of either."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kdaprof.errors import KdaprofError

_MARKED_WITHIN = 300
"""Bytes of a page or picture in which its mark stands."""


class TargetError(KdaprofError):
    """The target cannot be written: full disk, no permission, not a directory."""


def write_with(path: Path, writer: Callable[[Path], object]) -> None:
    """Let `writer` fill a temporary file beside `path`, then put it in place; on any fault the old file stays.

    Errors: TargetError naming the path and the cause.
    """
    with _beside(path) as (place, temporary):
        writer(temporary)
        _fsync(temporary)
        temporary.chmod(0o644)
        os.replace(temporary, place)
        _fsync(place.parent)


def check_file(path: Path) -> None:
    """See that `path` can be written, before the work that it is for; its folder is made. Errors: TargetError."""
    with _beside(path):
        return


def write_bytes(path: Path, data: bytes) -> None:
    """Put `data` in place atomically."""
    write_with(path, lambda temporary: temporary.write_bytes(data))


def write_text(path: Path, text: str) -> None:
    """Put UTF-8 `text` in place atomically."""
    write_bytes(path, text.encode())


def may_replace(path: Path, mark: str) -> bool:
    """Whether nothing is there, or a file with `mark` near its start; a device or a pipe is not even opened."""
    if not path.is_file():
        return not path.exists()
    with path.open("rb") as file:
        return mark.encode() in file.read(_MARKED_WITHIN)


@contextmanager
def _beside(path: Path) -> Iterator[tuple[Path, Path]]:
    """Where the file really lies, and an empty temporary file beside it, which goes if it is still there."""
    temporary: Path | None = None
    try:
        place = _place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.", suffix=".tmp")
        os.close(handle)
        temporary = Path(name)
        yield place, temporary
    except FileExistsError as error:  # of mkdir: what should be the folder is a file
        raise TargetError(f"{path}: cannot write ({path.parent} is not a directory); choose another place") from error
    except OSError as error:
        raise TargetError(
            f"{path}: cannot write ({error.strerror or error}); free space or choose another place"
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _place(path: Path) -> Path:
    """Where the file really lies: a link is followed, or the new file would take the link's place.

    Errors: TargetError for what is there and is no file. Root can replace a device, and takes it from everybody.
    """
    place = Path(os.path.realpath(path)) if path.is_symlink() else path
    if place.exists() and not place.is_file():
        kind = "a directory" if place.is_dir() else "a device or a pipe"
        raise TargetError(f"{path}: cannot write (it is {kind}, not a file); choose another place")
    return place


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

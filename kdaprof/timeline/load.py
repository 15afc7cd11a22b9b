"""Reads a timeline from any source, told apart by content, not by name."""

from __future__ import annotations

from pathlib import Path

from kdaprof.errors import BadFileError
from kdaprof.timeline import kineto
from kdaprof.timeline.columns import Timeline

_SQLITE = b"SQLite format 3\0"
_PARQUET = b"PAR1"
_FOREIGN = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"\x7fELF": "a program",
    b"%PDF": "a PDF",
    b"BZh": "bzip2 data; unpack it first",
    b"\xfd7zXZ": "xz data; unpack it first",
    b"\x28\xb5\x2f\xfd": "zstd data; unpack it first",
}
SUFFIXES = (".json", ".json.gz", ".sqlite", ".parquet")


def load(path: Path) -> Timeline:
    """Read Kineto JSON (plain or gzip), an Nsight Systems SQLite export, or a timeline of our own.

    Raises `BadFileError`: file, place, reason.
    """
    try:
        if path.is_dir():
            raise BadFileError(f"{path}: a folder; name a trace in it")
        if path.is_fifo():  # it can be read once only, and would wait for a writer
            raise BadFileError(f"{path}: a pipe; write it to a file first")
        with path.open("rb") as file:
            magic = file.read(len(_SQLITE))
    except OSError as error:
        raise BadFileError(f"{path}: {error.strerror or error}") from error
    # Each of these costs an import that a JSON trace does not need.
    if magic == _SQLITE:
        from kdaprof.timeline import nsys  # noqa: PLC0415

        return nsys.read(path)
    if magic.startswith(_PARQUET):
        from kdaprof.timeline import parquet  # noqa: PLC0415

        return parquet.read(path)
    for start, what in _FOREIGN.items():
        if magic.startswith(start):
            raise BadFileError(f"{path}: not a trace: {what}")
    if path.suffix in {".nsys-rep", ".qdrep"}:
        raise BadFileError(f"{path}: a report of Nsight Systems; export it: nsys export --type sqlite {path.name}")
    return kineto.read(path)

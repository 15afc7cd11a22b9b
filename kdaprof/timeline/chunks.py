"""The text of a trace file in pieces: plain or gzip, intact or damaged, without holding the whole of it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from kdaprof.errors import BadFileError

CHUNK_BYTES = 2 << 20
"""Small enough to stay in the cache between reading and decoding; larger pieces were not faster."""

_PACKED_BYTES = 128 << 10  # traces shrink about fifteen-fold
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


class Chunks:
    """Iterates over the bytes of a file; afterwards `problem` says why it ended too early, or is None.

    What stands before a damaged place is delivered: half a trace with a warning is worth more than none.
    """

    def __init__(self, path: Path, size: int = CHUNK_BYTES) -> None:
        self.path = path
        self.size = size
        self.problem: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        """Yield non-empty pieces. Raises `BadFileError` when the file cannot be opened or read at all."""
        try:
            with self.path.open("rb") as file:
                magic = file.read(2)
                file.seek(0)
                if magic == _GZIP_MAGIC:
                    yield from self._gunzip(iter(lambda: file.read(_PACKED_BYTES), b""))
                else:
                    yield from iter(lambda: file.read(self.size), b"")
        except OSError as error:
            raise BadFileError(f"{self.path}: {error.strerror or error}") from error

    def _gunzip(self, packed: Iterator[bytes]) -> Iterator[bytes]:
        """Unpack by hand: the gzip module drops what it had unpacked when it meets damage."""
        member = zlib.decompressobj(_GZIP_WINDOW)
        offset, open_member = 0, False
        for piece in packed:
            data = piece
            while data:
                open_member = True
                try:
                    out = member.decompress(data)
                except zlib.error as error:
                    self.problem = f"gzip data damaged near packed byte {offset}: {error}"
                    return
                if out:
                    yield out
                data = b""
                if member.eof:
                    data = member.unused_data.lstrip(b"\0")  # zero padding after a member is legal
                    member, open_member = zlib.decompressobj(_GZIP_WINDOW), False
                    if data and not data.startswith(_GZIP_MAGIC[: len(data)]):
                        self.problem = f"bytes after the gzip data near packed byte {offset} ignored"
                        return
            offset += len(piece)
        if open_member:
            self.problem = f"gzip data ends too early, after packed byte {offset}"

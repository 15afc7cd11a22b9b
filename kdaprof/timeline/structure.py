"""Where the elements of a JSON array begin and end, found with numpy over bytes.

The fast reader cuts at a line pattern. This is the exact way, for files without such a pattern (minified),
for the slice in which the array ends, and for slices that do not decode.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_STEP = np.zeros(256, dtype=np.int8)
_STEP[[ord("{"), ord("[")]] = 1
_STEP[[ord("}"), ord("]")]] = -1


@dataclass(frozen=True, slots=True)
class Elements:
    """Objects found at the top level of a piece of an array.

    `spans`: (start, end) byte offsets of each whole object. `consumed`: everything before is dealt with.
    `array_end`: offset just behind the bracket that closes the array, None when it is not in the piece.
    """

    spans: list[tuple[int, int]]
    consumed: int
    array_end: int | None


def find_elements(text: bytes) -> Elements:
    """Find the whole objects in `text`, which starts between two elements of an array, outside a string."""
    data = np.frombuffer(text, dtype=np.uint8)
    brackets = np.flatnonzero(_STEP[data])
    if not brackets.size:
        return Elements(spans=[], consumed=0, array_end=None)
    inside_string = np.searchsorted(_string_borders(data), brackets) & 1
    brackets = brackets[inside_string == 0]
    steps = _STEP[data[brackets]].astype(np.int64)
    depth = np.cumsum(steps)
    closing = np.flatnonzero(depth < 0)
    array_end: int | None = None
    if closing.size:
        array_end = int(brackets[closing[0]]) + 1
        brackets, steps, depth = brackets[: closing[0]], steps[: closing[0]], depth[: closing[0]]
    ends = brackets[(depth == 0) & (steps < 0)] + 1
    starts = brackets[(depth == 1) & (steps > 0)]
    spans = list(zip(starts.tolist(), ends.tolist(), strict=False))
    consumed = array_end if array_end is not None else (spans[-1][1] if spans else 0)
    return Elements(spans=spans, consumed=consumed, array_end=array_end)


def _string_borders(data: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Offsets of the quotes that open or close a string: those with an even number of backslashes before."""
    quotes = np.flatnonzero(data == _QUOTE)
    before = quotes[(quotes > 0)]
    suspects = before[data[before - 1] == _BACKSLASH]
    if not suspects.size:
        return quotes
    escaped = [offset for offset in suspects.tolist() if _backslashes_before(data, offset) % 2]
    return np.setdiff1d(quotes, np.asarray(escaped, dtype=quotes.dtype), assume_unique=True)


def _backslashes_before(data: NDArray[np.uint8], offset: int) -> int:
    count = 0
    while offset - count > 0 and data[offset - count - 1] == _BACKSLASH:
        count += 1
    return count

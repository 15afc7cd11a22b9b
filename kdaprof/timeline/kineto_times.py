"""Exact nanoseconds from the microseconds of a Kineto trace: doubles, whole numbers, or text."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import msgspec
import numpy as np

from kdaprof.timeline.clean import NO_END, NO_START
from kdaprof.timeline.columns import Int64

EXACT_FLOAT_NS = 2**43 * 1000
"""From 2^43 µs on a double is coarser than 1/1024 µs and cannot hold a time of three decimals."""

_LARGEST_NS = Decimal("9.2e18")
_LARGEST_US = 9_200_000_000_000_000


def ns_of_floats(values: Sequence[float]) -> Int64:
    """Nanoseconds of microseconds. Whole part and fraction apart: the product alone would leave 53 bits."""
    micros = np.array(values, dtype=np.float64)
    usable = np.abs(micros) < _LARGEST_US
    whole = np.floor(np.where(usable, micros, 0.0))
    fraction = np.where(usable, micros, 0.0) - whole
    nanos = whole.astype(np.int64) * 1000 + np.rint(fraction * 1000.0).astype(np.int64)
    return np.where(usable, nanos, NO_START)


def ns_of_ints(values: Sequence[int]) -> Int64:
    """Nanoseconds of whole microseconds of any size."""
    return np.array([value * 1000 if abs(value) < _LARGEST_US else NO_START for value in values], np.int64)


def ns_of_raw(values: Sequence[msgspec.Raw]) -> Int64:
    """Nanoseconds of microseconds in the text of the file."""
    return np.array([ns_of_text(bytes(value).decode(), NO_START) for value in values], dtype=np.int64)


def ns_of_text(value: object, missing: int) -> int:
    """Exact nanoseconds of microseconds given as a number or as text; `missing` for what is neither."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return NO_START if missing == NO_END else missing
    try:
        nanos = Decimal(str(value).strip().strip('"')) * 1000
        if not nanos.is_finite() or abs(nanos) >= _LARGEST_NS:
            return NO_START
        return int(nanos.to_integral_value())
    except (InvalidOperation, ValueError):  # ValueError: an integer of more digits than Python writes
        return NO_START


def ends(start_ns: Int64, length_ns: Int64) -> Int64:
    """End times; a missing start or duration stays recognisable for `clean`, and so does one that overflows."""
    timed = (start_ns != NO_START) & (length_ns != NO_START)
    fits = np.abs(np.where(timed, start_ns, 0) // 2 + np.where(timed, length_ns, 0) // 2) < np.int64(4.6e18)
    with np.errstate(over="ignore"):
        return np.where(timed & fits, start_ns + np.where(timed & fits, length_ns, 0), NO_END)

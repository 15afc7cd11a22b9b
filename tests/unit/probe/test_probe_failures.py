"""A failure is told in one line, without what only torch's authors can use."""

from __future__ import annotations

import pytest

from kdaprof.errors import UnavailableError
from kdaprof.probe.failures import describe, status_of


def test_a_stack_of_torchs_c_side_is_left_out() -> None:
    error = TypeError(
        "randn(): failed to unpack the object at pos 2\n"
        "Exception raised from THPUtils_unpackLong at python_numbers.h:79 (most recent call first):\n"
        "frame #0: c10::Error::Error(...) + 0x9d (0x7fb1 in /home/ann/env/libc10.so)\n"
    )
    assert describe(error).text == "randn(): failed to unpack the object at pos 2"


def test_the_lines_that_say_what_failed_stay() -> None:
    assert describe(RuntimeError("backend failed:\n\n  no compiler\n")).text == "backend failed: · no compiler"
    assert describe(RuntimeError("")).text == "no message"
    assert len(describe(RuntimeError("x" * 9000)).text) == 500
    noted = RuntimeError("x" * 9000)
    noted.add_note("at train.py:7")
    assert len(describe(noted).text) == 500
    assert describe(noted).text.endswith("xx · at train.py:7")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 25 bytes. Error code 12"),
    ],
)
def test_no_memory_comes_with_its_way_out(error: Exception) -> None:
    assert describe(error).text.endswith("choose a smaller --shape")


def test_other_failures_get_no_such_advice() -> None:
    assert "--shape" not in describe(RuntimeError("can't allocate a stream")).text


def test_a_path_that_cannot_run_is_unavailable() -> None:
    assert status_of(UnavailableError("no g++")) == "unavailable"
    assert status_of(RuntimeError("no g++")) == "failed"

"""The process of one target: builds it, warms it up, and times a block of calls for each line it is sent.

What the target prints goes to stderr, so that it cannot be taken for an answer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from kdaprof.instruments.allocator import Allocator, allocator_of, delta
from kdaprof.instruments.clock import Clock, MonotonicClock
from kdaprof.instruments.cuda_device import open_device
from kdaprof.instruments.device import Device
from kdaprof.instruments.timing import time_call
from kdaprof.probe.ab.messages import Answer, Ask, Start
from kdaprof.probe.ab.target_call import Call, load_call


def serve(requests: Iterator[bytes], answers: BinaryIO) -> None:
    """Answer each line until there are no more; an error is an answer, and the last one."""
    try:
        for answer in _answers(requests):
            _say(answers, answer)
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        _say(answers, Answer(error=f"{type(error).__name__}: {text}" if text else type(error).__name__))


def _answers(requests: Iterator[bytes]) -> Iterator[Answer]:
    start = msgspec.json.decode(next(requests), type=Start)
    device, clock = open_device(start.device), MonotonicClock()
    allocator = allocator_of(device)
    call = load_call(start.target, "cpu" if device.index is None else f"cuda:{device.index}")
    yield _block(call, start.warmup, device, clock, allocator)
    for line in requests:
        asked = msgspec.json.decode(line, type=Ask)
        # After the other side ran, caches and clocks are that side's: one call that is not a sample.
        time_call(call, device, clock)
        yield _block(call, asked.samples, device, clock, allocator)


def _block(call: Call, samples: int, device: Device, clock: Clock, allocator: Allocator) -> Answer:
    before = allocator.read()
    allocator.reset_peak()
    walls = tuple(time_call(call, device, clock).wall_ns for _ in range(samples))
    change = delta(before, allocator.read())
    return Answer(
        wall_ns=walls,
        peak_bytes=None if change is None else change.peak_bytes,
        peak_missing=allocator.missing,
    )


def _say(answers: BinaryIO, answer: Answer) -> None:
    answers.write(msgspec.json.encode(answer) + b"\n")
    answers.flush()


def main() -> None:
    """Serve on stdin and on what was stdout."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        serve(iter(sys.stdin.buffer.readline, b""), answers)


if __name__ == "__main__":
    main()

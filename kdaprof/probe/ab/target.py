"""A side that is a target: a process of its own that stays warm, and times a block whenever it is its turn."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec

from kdaprof.probe.ab.blocks import Block, SideError
from kdaprof.probe.ab.messages import Answer, Ask, Start
from kdaprof.probe.ab.process import end_group, last_line


class Asker(Protocol):
    """One question to a worker, one answer. The seam that tests replace."""

    def __call__(self, question: Start | Ask) -> Answer:
        """The answer. Errors: SideError when the process ended or took too long."""
        ...


class TargetSide:
    """One target under one shape. `warm_ns` are the walls of its first calls, from the very first on."""

    def __init__(self, shape: str, ask: Asker, start: Start) -> None:
        self._shape, self._ask = shape, ask
        self.warm_ns = self._asked(start).wall_ns

    def block(self, number: int, samples: int) -> Mapping[str, Block]:
        """`samples` timed calls. Errors: SideError with what the target raised, or how its process ended."""
        answer = self._asked(Ask(samples=samples))
        block = Block(wall_ns=answer.wall_ns, peak_bytes=answer.peak_bytes, peak_missing=answer.peak_missing)
        return {self._shape: block}

    def _asked(self, question: Start | Ask) -> Answer:
        answer = self._ask(question)
        if answer.error is not None:
            raise SideError(answer.error)
        return answer


@contextmanager
def worker(env: Mapping[str, str], log: Path, timeout_s: float) -> Iterator[Asker]:
    """A worker process, ended when the block is left. All its work together may take `timeout_s`."""
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "kdaprof.probe.ab.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            env={**os.environ, **env},
            start_new_session=True,
        )
    late = threading.Event()

    def end() -> None:
        late.set()
        end_group(process)

    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()

    def ask(question: Start | Ask) -> Answer:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(question) + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            if late.is_set():
                raise SideError(f"took longer than {timeout_s:g} s and was ended")
            raise SideError(f"its process ended: {last_line(log) or 'no output'}")
        return msgspec.json.decode(line, type=Answer)

    try:
        yield ask
    finally:
        timer.cancel()
        end_group(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # a question that was never read is flushed into a closed pipe
                    pipe.close()

"""A side that is a command: a fresh process a block, which measures and writes a line of JSON for each shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kdaprof.probe.ab.blocks import Block, SideError, SideName
from kdaprof.probe.ab.process import RunCommand, modules_of


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What a command writes for one shape: walls in whole nanoseconds, one a call, and its peak memory in bytes."""

    shape: str
    wall_ns: tuple[int, ...]
    peak_bytes: int | None = None


class CommandSide:
    """Runs the contract's command in a folder, once a block. What it wrote is in `target`, what it printed in `log`.

    The command finds what it is asked for in KDAPROF_AB_OUT (the file to write), KDAPROF_AB_SHAPES (names, separated
    by commas), KDAPROF_AB_SAMPLES (timed calls a shape), KDAPROF_AB_SIDE (base, cand) and KDAPROF_AB_ROUND.
    PYTHONPATH is the folder, so that the modules of its revision are found before installed ones.
    """

    def __init__(
        self,
        side: SideName,
        argv: Sequence[str],
        folder: Path,
        *,
        shapes: Sequence[str],
        target: Path,
        log: Path,
        timeout_s: float,
        run: RunCommand,
    ) -> None:
        self._side, self._argv, self._folder = side, tuple(argv), folder
        self._shapes, self._target, self._log = tuple(shapes), target, log
        self._timeout_s, self._run = timeout_s, run

    def block(self, number: int, samples: int) -> Mapping[str, Block]:
        """One process. Errors: SideError with how it ended, or what is missing in the file it wrote."""
        target = self._target
        target.unlink(missing_ok=True)
        env = {
            "KDAPROF_AB_OUT": str(target),
            "KDAPROF_AB_SHAPES": ",".join(self._shapes),
            "KDAPROF_AB_SAMPLES": str(samples),
            "KDAPROF_AB_SIDE": self._side,
            "KDAPROF_AB_ROUND": str(number),
            "PYTHONPATH": modules_of(self._folder),
        }
        ended = self._run(self._argv, cwd=self._folder, env=env, log=self._log, timeout_s=self._timeout_s)
        why = ended.why(self._timeout_s)
        if why is not None:
            raise SideError(f"the command {why}")
        return _blocks(_lines(target), self._shapes, samples)


def _lines(target: Path) -> list[Line]:
    try:
        raw = target.read_bytes()
    except OSError as error:
        raise SideError("the command wrote nothing to the file named by KDAPROF_AB_OUT") from error
    found = []
    for number, text in enumerate(raw.splitlines(), 1):
        if text.strip():
            try:
                found.append(msgspec.json.decode(text, type=Line))
            except msgspec.DecodeError as error:
                raise SideError(f"line {number} of KDAPROF_AB_OUT: {error}") from error
    return found


def _blocks(lines: Sequence[Line], shapes: Sequence[str], samples: int) -> dict[str, Block]:
    by_shape = {line.shape: line for line in lines}
    if len(by_shape) < len(lines):
        raise SideError("the command wrote two lines for one shape")
    for shape in shapes:
        line = by_shape.get(shape)
        if line is None:
            raise SideError(f"the command wrote no line for shape {shape!r}")
        if len(line.wall_ns) < samples:
            raise SideError(f"shape {shape!r}: {len(line.wall_ns)} samples written, {samples} asked for")
        if min(line.wall_ns) <= 0:
            raise SideError(f"shape {shape!r}: a wall of {min(line.wall_ns)} ns; whole nanoseconds above 0 are wanted")
    return {
        shape: Block(
            wall_ns=by_shape[shape].wall_ns,
            peak_bytes=by_shape[shape].peak_bytes,
            peak_missing="the command reported no peak_bytes",
        )
        for shape in shapes
    }

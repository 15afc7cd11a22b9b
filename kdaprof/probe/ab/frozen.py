"""What a contract freezes, checked before anything is timed: the bytes of files, and a command that must end with 0."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from kdaprof.analysis.ab.contract import Frozen
from kdaprof.analysis.ab.outcome import GateResult
from kdaprof.probe.ab.process import RunCommand, modules_of


def check_frozen(frozen: Frozen, places: dict[str, Path], logs: Path, run: RunCommand) -> Iterator[GateResult]:
    """A result for the files and one for the command in each of `places` (side → folder); ends at the first failure.

    `logs` is the folder that takes the command's output.
    """
    for side, folder in places.items():
        if frozen.files:
            result = _files(frozen, side, folder)
            yield result
            if result.verdict == "fail":
                return
        if frozen.command:
            result = _command(frozen, side, folder, logs / f"correctness-{side}.log", run)
            yield result
            if result.verdict == "fail":
                return


def sha256_of(path: Path) -> str | None:
    """SHA-256 of a file in hex; None when it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _files(frozen: Frozen, side: str, folder: Path) -> GateResult:
    changed = []
    for name, wanted in frozen.files.items():
        found = sha256_of(folder / name)
        if found != wanted.removeprefix("sha256:"):
            changed.append(f"{name} is {'not there' if found is None else found[:12] + '…'}")
    return GateResult(
        name=f"frozen files ({side})",
        kind="frozen-files",
        want=f"{len(frozen.files)} unchanged",
        got="; ".join(changed) or f"{len(frozen.files)} unchanged",
        verdict="fail" if changed else "pass",
    )


def _command(frozen: Frozen, side: str, folder: Path, log: Path, run: RunCommand) -> GateResult:
    env = {"KDAPROF_AB_SIDE": side, "PYTHONPATH": modules_of(folder)}
    ended = run(frozen.command, cwd=folder, env=env, log=log, timeout_s=frozen.timeout_s)
    why = ended.why(frozen.timeout_s)
    return GateResult(
        name=f"correctness ({side})",
        kind="correctness",
        want="exit code 0",
        got=why or f"exit code 0: {ended.last_line or 'no output'}",
        verdict="fail" if why else "pass",
    )

"""A user's own training step: `package.module:make_step`, called with the device, gives what is timed."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kdaprof.errors import KdaprofError, UsageError
from kdaprof.workloads.step.case import Phase
from kdaprof.workloads.step.spec import StepSpec
from kdaprof.workloads.step.watched import OpWatch

WHOLE = "all"
_TORCH = str(Path(torch.__file__).parent)


class OwnStepError(KdaprofError):
    """The user's `make_step` raised, or it or the step ended the process: their code failed, not kdaprof's."""


class TargetCase:
    """The step that `make_step(device)` returned: a callable without arguments, or an object with `phases`.

    `phases` is a list of (name, callable) pairs, or a dict of them, in the order in which a step runs them. An
    optional `prepare(i)` is called before each step and is never timed.
    """

    def __init__(self, spec: StepSpec) -> None:
        assert spec.target is not None
        self._step = _made(spec.target, spec.device)
        self.phases: tuple[Phase, ...] = tuple(
            Phase(phase.name, _kept_in(phase.run, phase.name)) for phase in _phases(self._step, spec.target)
        )
        self.steps_done = 0
        self.watch = OpWatch()
        self.run: Callable[[], None] = self._run

    def _run(self) -> None:
        for phase in self.phases:
            phase.run()
        self.steps_done += 1

    def prepare(self, index: int) -> None:
        """The target's own `prepare`, if it has one."""
        prepare = getattr(self._step, "prepare", None)
        if prepare is not None:
            _kept_in(partial(prepare, index), "prepare")()


def load_target(target: str) -> Callable[[str], Any]:
    """The function that `package.module:make_step` names; the working directory is searched as `python -m` does.

    Errors: UsageError naming what cannot be imported or found.
    """
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise UsageError(f"--target {target!r}: write package.module:make_step")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise UsageError(f"--target {target}: importing {module_name} failed: {_told(error)}") from error
    make = getattr(module, name, None)
    if not callable(make):
        raise UsageError(f"--target {target}: {module_name} has no function {name!r}")
    found: Callable[[str], Any] = make
    return found


def target_phases(target: str, device: str) -> tuple[str, ...]:
    """Names of the phases of a target's step, `()` for one that is not cut into phases. Calls `make_step`.

    Errors: UsageError for what is no step; OwnStepError when `make_step` fails.
    """
    names = tuple(phase.name for phase in _phases(_made(target, device), target))
    return () if names == (WHOLE,) else names


def _made(target: str, device: str) -> Any:
    here = Path.cwd()
    make = load_target(target)
    try:
        made = make(device)
    except (Exception, SystemExit) as error:
        name = target.partition(":")[2]
        raise OwnStepError(f"--target {target}: {name}({device!r}) failed: {_told(error)}") from error
    there = Path.cwd()
    if there != here:
        # The run's directory, the history and the module itself, in a process of its own, are found from here.
        os.chdir(here)
        raise OwnStepError(f"--target {target}: it changed the working directory to {there}; let it use whole paths")
    return made


def _told(error: BaseException) -> str:
    """An exception of the user's code in one line; an exit is called that, since its text is only a number."""
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r}); kdaprof's own flags are not the module's to parse"
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
    return f"{type(error).__name__}: {first}; KDAPROF_TRACEBACK=1 shows where"


def _kept_in(run: Callable[[], Any], name: str) -> Callable[[], None]:
    """`run`, whose sys.exit() is a failure of the step: else it would end the probe in silence, with its code.

    What it raises gets a note of the part and the line: the cell keeps one line of it, and no traceback.
    """

    def kept() -> None:
        try:
            run()
        except SystemExit as error:
            raise OwnStepError(f"the step called sys.exit({error.code!r})") from error
        except Exception as error:
            part = "" if name == WHOLE else f"in {name}, "
            error.add_note(f"{part}at {_line_of(error)}")
            raise

    return kept


def _line_of(error: BaseException) -> str:
    """`my_step.py:21`: the innermost line outside torch that an exception of the user's code came through."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is our own
    outside = [frame for frame in frames if not frame.filename.startswith(_TORCH)]
    innermost = (outside or frames)[-1] if frames else None
    return "its call" if innermost is None else f"{Path(innermost.filename).name}:{innermost.lineno}"


def _phases(step: Any, target: str) -> tuple[Phase, ...]:
    given = getattr(step, "phases", None)
    if given is None:
        if not callable(step):
            raise UsageError(f"--target {target}: what it returned is neither callable nor has phases")
        return (Phase(WHOLE, step),)
    try:
        pairs = [(name, run) for name, run in (given.items() if isinstance(given, dict) else given)]
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"--target {target}: phases are (name, callable) pairs, or a dict of them: {given!r}"
        ) from error
    names = [name for name, _ in pairs]
    bad = [name for name in names if not str(name).isidentifier() or name == "step"]
    if not pairs or bad or len(set(names)) < len(names):
        raise UsageError(f"--target {target}: phases need names of their own, letters and digits, not 'step': {names}")
    still = [name for name, run in pairs if not callable(run)]
    if still:
        raise UsageError(f"--target {target}: phase {still[0]!r} is not callable: give functions without arguments")
    return tuple(Phase(name, run) for name, run in pairs)

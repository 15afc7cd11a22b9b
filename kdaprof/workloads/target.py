"""A user's own training step: `package.module:make_step`, called with the device, gives what is timed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kdaprof.errors import UsageError
from kdaprof.workloads.step.case import Phase
from kdaprof.workloads.step.spec import StepSpec
from kdaprof.workloads.step.watched import OpWatch

WHOLE = "all"


class TargetCase:
    """The step that `make_step(device)` returned: a callable without arguments, or an object with `phases`.

    `phases` is a list of (name, callable) pairs, or a dict of them, in the order in which a step runs them. An
    optional `prepare(i)` is called before each step and is never timed.
    """

    def __init__(self, spec: StepSpec) -> None:
        assert spec.target is not None
        self._step = load_target(spec.target)(spec.device)
        self.phases: tuple[Phase, ...] = _phases(self._step, spec.target)
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
            prepare(index)


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
    except Exception as error:
        raise UsageError(
            f"--target {target}: importing {module_name} failed: {type(error).__name__}: {error}"
        ) from error
    make = getattr(module, name, None)
    if not callable(make):
        raise UsageError(f"--target {target}: {module_name} has no function {name!r}")
    found: Callable[[str], Any] = make
    return found


def target_phases(target: str, device: str) -> tuple[str, ...]:
    """Names of the phases of a target's step, `()` for one that is not cut into phases. Calls `make_step`."""
    names = tuple(phase.name for phase in _phases(load_target(target)(device), target))
    return () if names == (WHOLE,) else names


def _phases(step: Any, target: str) -> tuple[Phase, ...]:
    given = getattr(step, "phases", None)
    if given is None:
        if not callable(step):
            raise UsageError(f"--target {target}: what it returned is neither callable nor has phases")
        return (Phase(WHOLE, step),)
    pairs = list(given.items() if isinstance(given, dict) else given)
    names = [name for name, _ in pairs]
    bad = [name for name in names if not str(name).isidentifier() or name == "step"]
    if not pairs or bad or len(set(names)) < len(names):
        raise UsageError(f"--target {target}: phases need names of their own, letters and digits, not 'step': {names}")
    return tuple(Phase(name, run) for name, run in pairs)

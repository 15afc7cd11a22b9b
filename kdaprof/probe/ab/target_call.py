"""A target `package.module:make_step` as one call: what `make_step(device)` returns, or its phases in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module

from kdaprof.errors import UsageError

_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

Call = Callable[[], object]


def is_target(text: str) -> bool:
    """Whether `text` has the form `package.module:function`."""
    return _TARGET.fullmatch(text) is not None


def load_call(target: str, device: str) -> Call:
    """Import the module, call its function with the device's name, and give what is to be timed.

    Errors: UsageError when the module or function is not there, or when what it returns is neither callable nor has
    `phases`; whatever the function itself raises.
    """
    module_name, _, name = target.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{target}: no module {error.name!r}; run from the folder that holds it") from error
    make = getattr(module, name, None)
    if not callable(make):
        raise UsageError(f"{target}: {module_name} has no function {name!r}")
    return _call(target, make(device))


def _call(target: str, made: object) -> Call:
    phases = getattr(made, "phases", None)
    if isinstance(phases, Mapping) and phases and all(callable(phase) for phase in phases.values()):
        calls = tuple(phases.values())

        def step() -> None:
            for phase in calls:
                phase()

        return step
    if callable(made):
        return made
    raise UsageError(f"{target}: returned {type(made).__name__}; return a callable, or an object with phases")

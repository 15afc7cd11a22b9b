"""Arguments by the signature of the version that is installed: never one that it does not name.

Several peers end their signature in `**kwargs` and swallow what they do not know (ROCm/ATOM#1820): a misspelt or
renamed keyword then changes nothing, silently. So a keyword is passed only if the signature names it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from kdaprof.errors import UnavailableError

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def named_parameters(function: Callable[..., Any]) -> frozenset[str]:
    """The names that may be passed by keyword; what only `**kwargs` would catch is not among them."""
    return frozenset(n for n, p in inspect.signature(function).parameters.items() if p.kind in _NAMED)


def options(
    who: str, function: Callable[..., Any], *, needed: tuple[str, ...], wanted: Mapping[str, object]
) -> dict[str, object]:
    """Those of `wanted` that this version names.

    `needed` are tensors and settings without which the call would mean something else.
    Errors: UnavailableError when the function names one of `needed` not, or asks for an argument that is not known.
    """
    known = named_parameters(function)
    absent = [name for name in needed if name not in known]
    if absent:
        raise UnavailableError(f"{who}: its {function.__name__} takes no {', '.join(absent)}; use a checked version")
    asked = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind in _NAMED and parameter.default is parameter.empty and name not in {*needed, *wanted}
    ]
    if asked:
        raise UnavailableError(
            f"{who}: its {function.__name__} also asks for {', '.join(asked)}; use a checked version"
        )
    return {name: value for name, value in wanted.items() if name in known}

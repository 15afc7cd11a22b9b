"""Finding a peer: installed or not, importable or not, and the real reason where not."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from typing import Any

import torch

from kdaprof.errors import UnavailableError
from kdaprof.kda.peers.facts import PeerFacts, installed_version

_FOREIGN_BUILD = ("undefined symbol", "cannot open shared object", "DLL load failed", "ABI")
"""What the loader says of a binary that was built against another torch or another CUDA."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A peer that was imported: its function, and what to call it in messages (`fla-core 0.6.0`)."""

    facts: PeerFacts
    version: str | None
    """None for a module without a distribution, as a source tree on the path."""
    function: Callable[..., Any]

    @property
    def who(self) -> str:
        """Name and version."""
        return f"{self.facts.distributions[0]} {self.version or '(version unknown)'}"


def load(
    facts: PeerFacts, device_type: str, *, import_module: Callable[[str], Any] = importlib.import_module
) -> Installed:
    """Import the peer for use on `device_type`.

    Errors: UnavailableError with the reason: not installed, no GPU, import failed with its error, a build for another
    torch, function gone.
    """
    version = installed_version(facts.distributions)
    if version is None and _absent(facts, import_module):
        raise UnavailableError(f"{facts.distributions[0]} is not installed ({facts.install})")
    who = f"{facts.distributions[0]} {version or '(version unknown)'}"
    if device_type != "cuda":
        raise UnavailableError(f"{who} needs an NVIDIA GPU; this run is on {device_type}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a peer's advice about its environment is not ours to print
            module = import_module(facts.module)
    except Exception as error:
        raise UnavailableError(f"{_import_reason(who, error)}") from error
    function = getattr(module, facts.function, None)
    if not callable(function):
        raise UnavailableError(f"{who} has no {facts.module}.{facts.function}")
    return Installed(facts, version, function)


def _absent(facts: PeerFacts, import_module: Callable[[str], Any]) -> bool:
    """Whether there is no such module at all; one that is there and breaks is not absent."""
    top = facts.module.partition(".")[0]
    try:
        return is_bare_folder(getattr(import_module(top), "__spec__", None))
    except ModuleNotFoundError as error:
        return error.name == top
    except Exception:
        return False


def is_bare_folder(spec: ModuleSpec | None) -> bool:
    """Whether the module is a folder without code, as a clone of that name in the working directory: Python imports it
    as an empty package.
    """
    places = None if spec is None else spec.submodule_search_locations
    return places is not None and not isinstance(places, list)  # a package with code has a list of folders


def _import_reason(who: str, error: Exception) -> str:
    told = " ".join(f"{type(error).__name__}: {error}".split())
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{who} cannot be imported: {told} (pip install {error.name.partition('.')[0]})"
    if any(sign in str(error) for sign in _FOREIGN_BUILD):
        return f"{who} does not match torch {torch.__version__}: {told}; build it against this torch"
    return f"{who} cannot be imported: {told}"


def mismatch(installed: Installed, error: Exception) -> str | None:
    """The reason when a call on CUDA tensors was refused because they are "not on CUDA"; None for other errors.

    A binary built against another torch reads the device out of the wrong field.
    """
    text = str(error).lower()
    if "cuda" not in text or not any(sign in text for sign in ("must be on", "must be a cuda", "expected cuda")):
        return None
    told = " ".join(str(error).split())[:120]
    return f"{installed.who} does not match torch {torch.__version__}: it says {told!r} of tensors that are on CUDA"

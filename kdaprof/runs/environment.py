"""What a run was made with: versions, variables, card and host; and the same without what identifies people.

Plain data, written to `run.json` under `environment`. The instrument that fills it is
`kdaprof.instruments.environment`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

_T = TypeVar("_T")

# An absolute POSIX path: a slash that is not inside a word, a relative path, a URL or a unit such as B/s.
_POSIX_PATH = re.compile(r"(?<![\w.~/>*-])/(?:[\w.@+%#*-]+/?)+")
_FILE_URL = re.compile(r"file:///?[^\s\"']+")
# What a site adds to its kernel's version: `Linux-6.8.0-site-build7-x86_64` → `Linux-6.8.0-x86_64`.
_LOCAL_KERNEL = re.compile(r"^(Linux-\d+(?:\.\d+)*)(?:[-+][\w.+~]+)*?(?=-(?:x86_64|aarch64|ppc64le|with|$))")
_WINDOWS_PATH = re.compile(r"(?<!\w)[A-Za-z]:\\[^\s\"';,]*")


@dataclass(frozen=True, slots=True)
class Version:
    """A component's version; where it is None, `missing` says why (not installed, no driver…)."""

    name: str
    version: str | None
    missing: str | None


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable that changes what is measured, with its value."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class GpuHardware:
    """The card as the CUDA runtime describes it; bytes and counts, capability as `9.0`."""

    name: str
    uuid: str | None
    pci_bus_id: str | None
    capability: str | None
    sm_count: int | None
    l2_bytes: int | None
    total_memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class HostHardware:
    """The host: its name, CPU model, logical cores, operating system and memory."""

    hostname: str | None
    cpu_model: str | None
    cores_total: int | None
    platform: str
    machine: str
    mem_total_bytes: int | None


@dataclass(frozen=True, slots=True)
class TorchSettings:
    """torch's settings that decide which instruction runs: fp32 matmul precision, TF32, threads."""

    matmul_precision: str | None
    allow_tf32_matmul: bool | None
    allow_tf32_cudnn: bool | None
    cudnn_benchmark: bool | None
    deterministic_algorithms: bool | None
    num_threads: int | None


@dataclass(frozen=True, slots=True)
class Environment:
    """All of it. `gpu` and `torch` are None without a card or without torch; `…_missing` says why."""

    versions: tuple[Version, ...]
    variables: tuple[Variable, ...]
    host: HostHardware
    gpu: GpuHardware | None
    gpu_missing: str | None
    torch: TorchSettings | None
    torch_missing: str | None
    argv: tuple[str, ...]
    cwd: str | None
    git_commit: str | None
    git_dirty: bool | None
    git_missing: str | None

    def version(self, name: str) -> str | None:
        """The version of the component `name`, or None."""
        return next((v.version for v in self.versions if v.name == name), None)


@dataclass(frozen=True, slots=True)
class Secrets:
    """What identifies a person or a place: replaced, in this order, by a mark that says what stood there."""

    cwd: str | None
    home: str | None
    hostname: str | None
    user: str | None


# Fields whose text was written by people, programs or systems, and may name anybody. All other text of a record is its
# own vocabulary (statuses, paths, units, names of figures), which a user or host called `ok` or `cuda` must not change.
FREE_TEXT = frozenset(
    {
        "argv",
        "argv0",
        "command",
        "cwd",
        "detail",
        "error",
        "git_missing",
        "gpm_missing",
        "gpu_missing",
        "hint",
        "hostname",
        "missing",
        "notes",
        "operation",
        "platform",
        "reason",
        "text",
        "torch_missing",
        "value",
        "where",
    }
)
_NAMES_OF_OTHERS = frozenset({"ForeignProcess", "ProcessName"})
"""Classes whose `name` is a process's."""


def scrub_text(text: str, secrets: Secrets) -> str:
    """`text` without the working directory, home, host name, user name and any other absolute path."""
    text = _without_paths(text, secrets)
    for word, mark in ((secrets.hostname, "<host>"), (secrets.user, "<user>")):
        if word:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", mark, text)
    return text


def _without_paths(text: str, secrets: Secrets) -> str:
    for path, mark in ((secrets.cwd, "<cwd>"), (secrets.home, "<home>")):
        if path and len(path) > 1:
            # A directory right under / may look like a unit: /s in B/s.
            before = r"(?<!\w)" if path.rstrip("/").count("/") == 1 else ""
            text = re.sub(before + re.escape(path.rstrip("/")) + r"(?![\w-])", mark, text)
    text = _FILE_URL.sub("<path>", text)
    text = _POSIX_PATH.sub("<path>", text)
    return _WINDOWS_PATH.sub("<path>", text)


def scrub(value: _T, secrets: Secrets) -> _T:
    """Every string inside frozen dataclasses, tuples, lists and dicts without what identifies; the rest as it is.

    Paths go everywhere; host and user name go from free text (`FREE_TEXT`; all of it outside a dataclass), whole words.
    """
    return _scrub(value, secrets, free=True)  # type: ignore[no-any-return]


def _scrub(value: Any, secrets: Secrets, *, free: bool) -> Any:
    if isinstance(value, str):
        return scrub_text(value, secrets) if free else _without_paths(value, secrets)
    if is_dataclass(value) and not isinstance(value, type):
        told = {f.name: _scrub(getattr(value, f.name), secrets, free=_is_free(value, f.name)) for f in fields(value)}
        return replace(value, **told)
    if isinstance(value, tuple):
        return tuple(_scrub(item, secrets, free=free) for item in value)
    if isinstance(value, list):
        return [_scrub(item, secrets, free=free) for item in value]
    if isinstance(value, dict):
        return {_scrub(key, secrets, free=False): _scrub(item, secrets, free=free) for key, item in value.items()}
    return value


def _is_free(owner: object, field: str) -> bool:
    return field in FREE_TEXT or (field == "name" and type(owner).__name__ in _NAMES_OF_OTHERS)


def anonymised(env: Environment, secrets: Secrets) -> Environment:
    """`env` without host name, user, home, absolute paths and the kernel's local name. Hardware and versions stay."""
    clean = scrub(env, secrets)
    platform = _LOCAL_KERNEL.sub(r"\1", clean.host.platform)
    return replace(clean, host=replace(clean.host, hostname=None, platform=platform), cwd=None)


def anonymised_argv(argv: Iterable[str], secrets: Secrets) -> tuple[str, ...]:
    """A command line without host name, user, home and absolute paths."""
    return tuple(scrub_text(arg, secrets) for arg in argv)

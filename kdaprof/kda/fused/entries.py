"""Which entry of the table a kind of call takes: the first whose kernels compile and agree with the recurrence.

The first call of a kind compiles its kernels side by side, a thread each, and a training call its backward's too,
behind the forward. Then a call of 64 tokens is compared with float64 on the CPU. An entry that fails is skipped and
recorded (`skipped`). All of it happens once a kind; under a graph capture, and in the interpreter, not at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import torch

from kdaprof.errors import UnavailableError
from kdaprof.kda.fused.config import KernelConfig, candidates
from kdaprof.kda.fused.plan import BackwardPlan, Dtypes, ForwardPlan, backward_plan, forward_plan
from kdaprof.kda.fused.run import Job, backward_jobs, forward_jobs, on
from kdaprof.kda.fused.stage import Stage


@dataclass(frozen=True, slots=True)
class SkippedEntry:
    """A table entry that does not work on a card, and why."""

    card: str
    """Architecture, as in sm_90."""
    phase: str
    """`fwd` or `bwd`."""
    k_dim: int
    v_dim: int
    dtype: str
    """Of q, k and v, by torch's names; one name where they are alike."""
    reason: str


_SKIPPED: Final[list[SkippedEntry]] = []
_COMPILING: Final[dict[Stage, Future[None]]] = {}
_LOCK: Final = threading.RLock()
_THREADS: Final = 8


def skipped() -> tuple[SkippedEntry, ...]:
    """The entries that this process found not to work, in the order found."""
    return tuple(_SKIPPED)


@lru_cache(maxsize=1)
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="kdaprof-compile")


def _compile(device: torch.device, jobs: Sequence[Job]) -> list[Future[None]]:
    """Compile each in a thread of its own, unless that has begun already."""

    def one(job: Job) -> None:
        with on(device):
            job.stage.compile(*job.arguments)

    for job in jobs:
        if job.stage not in _COMPILING:
            _COMPILING[job.stage] = _workers().submit(one, job)
    return [_COMPILING[job.stage] for job in jobs]


def first_that_works(
    entries: Sequence[KernelConfig], attempt: Callable[[KernelConfig], str | None], note: Callable[[str], None]
) -> KernelConfig:
    """The first of `entries` for which `attempt` returns no reason against it; `note` is told each reason.

    Raises: UnavailableError when all have failed, with the last reason.
    """
    reason = "the table is empty"
    for entry in entries:
        try:
            against = attempt(entry)
        except Exception as error:  # a compiler and a launcher raise anything
            against = f"{type(error).__name__}: {error}".splitlines()[0]
        if against is None:
            return entry
        reason = against
        note(reason)
    raise UnavailableError(
        f"no configuration of the fused kernels works on this card; the last: {reason}; use path='tensor'"
    )


def _capability(device: torch.device) -> tuple[int, int] | None:
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def _note(device: torch.device, phase: str, k_dim: int, v_dim: int, dtypes: Dtypes) -> Callable[[str], None]:
    major, minor = _capability(device) or (0, 0)
    names = dict.fromkeys(str(x).removeprefix("torch.") for x in dtypes[:3])

    def note(reason: str) -> None:
        _SKIPPED.append(SkippedEntry(f"sm_{major}{minor}", phase, k_dim, v_dim, ", ".join(names), reason))

    return note


def _attempts_fit(device: torch.device) -> bool:
    """Whether entries can be tried: not in the interpreter, not while a graph is being captured."""
    return device.type == "cuda" and not torch.cuda.is_current_stream_capturing()


def _start_triton() -> None:
    """Let Triton build its own helper once, before several threads would."""
    from triton.runtime import driver  # noqa: PLC0415

    driver.active.get_current_device()


@lru_cache(maxsize=256)
def choose_forward(
    device: torch.device, dtypes: Dtypes, k_dim: int, v_dim: int, final_state: bool, precision: str,
    home: bool | None, keep: bool = True,
) -> ForwardPlan:  # fmt: skip
    """The forward's plan. Unless `home` is None, a backward of that kind will follow: its kernels begin to compile."""

    def plan(entry: KernelConfig) -> ForwardPlan:
        return forward_plan(entry, device, dtypes, k_dim, v_dim, final_state, precision, keep)

    def attempt(entry: KernelConfig) -> str | None:
        from kdaprof.kda.fused.check import check_forward  # noqa: PLC0415  needed once

        ours = _compile(device, forward_jobs(plan(entry), dtypes, final_state))
        if home is not None and entry is entries[0]:
            behind = backward_plan(entry, device, dtypes, k_dim, v_dim, final_state, home, precision)
            _compile(device, backward_jobs(behind, dtypes, final_state))
        for done in ours:
            done.result()
        return (
            _workers().submit(check_forward, plan(entry), device, dtypes, k_dim, v_dim, final_state, precision).result()
        )

    entries = candidates(_capability(device), k_dim, v_dim)
    if not _attempts_fit(device):
        return plan(entries[0])
    with _LOCK, on(device):
        _start_triton()
        return plan(first_that_works(entries, attempt, _note(device, "fwd", k_dim, v_dim, dtypes)))


@lru_cache(maxsize=256)
def choose_backward(
    device: torch.device, dtypes: Dtypes, k_dim: int, v_dim: int, has_dht: bool, home: bool, precision: str
) -> BackwardPlan:
    """The backward's plan."""

    def plan(entry: KernelConfig) -> BackwardPlan:
        return backward_plan(entry, device, dtypes, k_dim, v_dim, has_dht, home, precision)

    def attempt(entry: KernelConfig) -> str | None:
        from kdaprof.kda.fused.check import check_backward  # noqa: PLC0415

        for done in _compile(device, backward_jobs(plan(entry), dtypes, has_dht)):
            done.result()
        forward = choose_forward(device, dtypes, k_dim, v_dim, has_dht, precision, None)
        return _workers().submit(
            check_backward, plan(entry), forward, device, dtypes, k_dim, v_dim, has_dht, home, precision
        ).result()  # fmt: skip

    entries = candidates(_capability(device), k_dim, v_dim)
    if not _attempts_fit(device):
        return plan(entries[0])
    with _LOCK, on(device):
        return plan(first_that_works(entries, attempt, _note(device, "bwd", k_dim, v_dim, dtypes)))

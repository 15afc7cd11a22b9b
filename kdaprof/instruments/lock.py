"""One measurement at a time on a card: an advisory lock by PCI id, for everybody on the machine.

Two users who look whether a card is quiet and then run both see it quiet. The lock is `flock` on a file in a
directory that all may write to, so that the kernel gives it back when its holder dies. Workers of the holder share it.
It binds only those who ask for it: foreign processes are looked for all the same (Q03). Containers with a /tmp of
their own share it when KDAPROF_LOCK_DIR names a directory that they all see.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from kdaprof.errors import UnavailableError
from kdaprof.instruments.clock import Clock

DIRECTORY_VARIABLE = "KDAPROF_LOCK_DIR"
HELD_VARIABLE = "KDAPROF_LOCK_HELD"
"""What a holder tells its children: `<card>@<pid>`, several joined by commas."""

_PLACES = ("/run/lock", "/var/lock", "/tmp")
_POLL_NS = 200_000_000
_TOLD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Holder:
    """Who says to hold the lock."""

    pid: int
    user: str
    since_unix_s: int
    command: str

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_unix_s, UTC).strftime("%H:%M:%S UTC")
        return f"process {self.pid} of {self.user}, {self.command!r}, since {since}"


class CardInUseError(UnavailableError):
    """Somebody else measures on this card."""


@dataclass(frozen=True, slots=True)
class Held:
    """How the lock was had: `shared` from a parent that holds it, or not at all, with `missing` why."""

    waited_ns: int = 0
    shared: bool = False
    missing: str | None = None


def lock_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The first directory of the machine that every user may write to; KDAPROF_LOCK_DIR wins."""
    named = environ.get(DIRECTORY_VARIABLE)
    if named:
        return Path(named)
    for place in map(Path, _PLACES):
        with contextlib.suppress(OSError):
            if place.is_dir() and place.stat().st_mode & stat.S_IWOTH and os.access(place, os.W_OK):
                return place
    return Path("/tmp")


@contextmanager
def card_lock(
    pci_bus_id: str,
    *,
    wait_s: float,
    clock: Clock,
    command: str,
    directory: Path | None = None,
    waiting: Callable[[str], None] = lambda _text: None,
) -> Iterator[Held]:
    """Hold the card for the time of the `with`; wait at most `wait_s`, telling `waiting` once for whom.

    A directory that cannot be used is no reason not to measure: `missing` says so.
    Errors: CardInUseError (exit 5) naming the holder when the time is over.
    """
    card = _slug(pci_bus_id)
    if _held_above(card, os.environ.get(HELD_VARIABLE, "")):
        yield Held(shared=True)
        return
    path = (lock_directory() if directory is None else directory) / f"kdaprof-gpu-{card}.lock"
    try:
        descriptor = _open(path)
    except OSError as error:
        yield Held(missing=f"{path}: no lock ({error.strerror or error}); another run on this card would not notice")
        return
    try:
        waited = _acquire(descriptor, path, pci_bus_id, wait_s, clock, waiting)
        _write(descriptor, command)
        try:
            with _told_to_children(card):
                yield Held(waited_ns=waited)
        finally:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
    finally:
        # Never removed: whoever waits has it open, and would lock a file that nobody else finds.
        os.close(descriptor)


def _acquire(
    descriptor: int, path: Path, card: str, wait_s: float, clock: Clock, waiting: Callable[[str], None]
) -> int:
    began = clock.now_ns()
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
        else:
            return clock.now_ns() - began
        holder = holder_of(path)
        who = str(holder) if holder is not None else "another process"
        waited = clock.now_ns() - began
        if waited >= wait_s * 1e9:
            text = f"GPU {card} is being measured on by {who}"
            raise CardInUseError(f"{text}; wait with --wait S" if wait_s <= 0 else f"{text}, still after {wait_s:g} s")
        if not told:
            waiting(f"waiting up to {wait_s:g} s for GPU {card}: {who}")
            told = True
        clock.sleep_ns(min(_POLL_NS, round(wait_s * 1e9) - waited))


def holder_of(path: Path) -> Holder | None:
    """Who wrote the lock file last; None where it says nothing, or nothing that can be read."""
    try:
        told = json.loads(path.read_bytes()[:_TOLD_BYTES])
        return Holder(int(told["pid"]), str(told["user"]), int(told["since"]), str(told["command"])[:80])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _open(path: Path) -> int:
    """Open the file, making it where it is not there: to all readable and writable, never through a link.

    An existing file is opened without O_CREAT: the kernel refuses that on another user's file in /tmp. One that may
    only be read can be locked all the same.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o666)
    except FileExistsError:
        try:
            return os.open(path, os.O_RDWR | flags)
        except PermissionError:
            return os.open(path, os.O_RDONLY | flags)
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, 0o666)  # whatever the umask
    return descriptor


def _write(descriptor: int, command: str) -> None:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = f"uid {os.getuid()}"
    told = {"pid": os.getpid(), "user": user, "since": int(time.time()), "command": command[:80]}
    with contextlib.suppress(OSError):  # a file that may only be read: the lock holds, it says nothing of us
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(told).encode(), 0)


@contextmanager
def _told_to_children(card: str) -> Iterator[None]:
    before = os.environ.get(HELD_VARIABLE)
    os.environ[HELD_VARIABLE] = ",".join([*([before] if before else []), f"{card}@{os.getpid()}"])
    try:
        yield
    finally:
        if before is None:
            del os.environ[HELD_VARIABLE]
        else:
            os.environ[HELD_VARIABLE] = before


def _held_above(card: str, told: str) -> bool:
    """Whether we ourselves or a process above us holds that card: a stale variable of a dead parent does not count."""
    holders = [part.rpartition("@")[2] for part in told.split(",") if part.rpartition("@")[0] == card]
    if not holders:
        return False
    try:
        family = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    except psutil.Error:
        return False
    return any(pid.isdecimal() and int(pid) in family for pid in holders)


def _slug(pci_bus_id: str) -> str:
    """Torch and NVML write the same place in several ways; the domain may have four digits or eight."""
    parts = pci_bus_id.lower().split(":")
    domain = (parts[0] if len(parts) == 3 else "0").lstrip("0") or "0"
    return "-".join([domain, *(part.replace(".", "-") for part in parts[-2:])])

"""What is known of a watch beside its samples: when, at which rate, which cards, around which command.

It is written into `gpu-util.json` with the figures, and read back from there: figures can be made again from the
samples at any time. What was known when the watch began stands beside the unfinished samples until then, for a watch
that is killed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kdaprof.runs.codec import read_document, to_json, write_document
from kdaprof.runs.util import UTIL_FILE
from kdaprof.runs.util_file import parts_folder

WATCH_KIND = "gpu-util"
WATCH_FILE = "gpu-util.json"
PICTURE_FILE = "gpu_util.svg"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesEnd:
    """A card's series that ended before the watch: why, and when (monotonic ns)."""

    reason: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessName:
    """A process seen on a card; None where this pid namespace has no such process."""

    pid: int
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCard:
    """One card: `index` is NVML's, None for a MIG instance. One that could not be opened is stopped from the start."""

    uuid: str | None
    index: int | None
    name: str | None
    pci_bus_id: str | None
    stopped: SeriesEnd | None = None
    gpm_missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedCommand:
    """The command that ran inside the watch: its program, and its exit code (128 + n after signal n)."""

    argv0: str
    exit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRecord:
    """One watch. `own_cpu_ns` is the CPU time that kdaprof took from t0 to the end, all threads, children not.

    Of a watch that was killed it is not known (None), and the ends and counts are those of the samples kept.
    """

    tool: str
    command: tuple[str, ...]
    complete: bool
    hz: float
    started_unix_ns: int
    started_monotonic_ns: int
    ended_unix_ns: int
    ended_monotonic_ns: int
    samples_due: int
    samples_taken: int
    own_cpu_ns: int | None
    cards: tuple[WatchedCard, ...]
    names: tuple[ProcessName, ...] = ()
    pid: int | None = None
    child: WrappedCommand | None = None
    notes: tuple[str, ...] = ()

    @property
    def unfinished(self) -> bool:
        """Whether it is only known how the watch began."""
        return self.own_cpu_ns is None and self.samples_taken == 0

    @property
    def span_ns(self) -> int:
        """From t0 to the end."""
        return self.ended_monotonic_ns - self.started_monotonic_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    watch: WatchRecord


def write_begun(folder: Path, record: WatchRecord) -> None:
    """Keep what is known when the watch begins. Errors: TargetError."""
    place = parts_folder(folder / UTIL_FILE)
    place.mkdir(exist_ok=True)
    write_document(place / WATCH_FILE, WATCH_KIND, {"watch": to_json(record)})


def forget_begun(folder: Path) -> None:
    """The watch is stored whole: what was known when it began is not needed any more."""
    place = parts_folder(folder / UTIL_FILE)
    (place / WATCH_FILE).unlink(missing_ok=True)
    with suppress(OSError):
        place.rmdir()


def read_watch(folder: Path) -> WatchRecord:
    """The record of a stored watch. Errors: BadFileError with path, reason and way out.

    A watch that was killed, or whose disk was full, has the record of its beginning: `unfinished`.
    """
    begun = parts_folder(folder / UTIL_FILE) / WATCH_FILE
    path = begun if begun.is_file() and not (folder / WATCH_FILE).is_file() else folder / WATCH_FILE
    return read_document(path, WATCH_KIND, _Stored).watch

"""From files to reports: one or many, in parallel processes, or on other machines through Dask."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from kdaprof.analysis.trace.devices import TraceReport
from kdaprof.analysis.trace.ranks import RankInput, RankRow, check_ranks, rank_of, rank_table
from kdaprof.analysis.trace.report import Scope, analyse
from kdaprof.errors import BadFileError, UnavailableError
from kdaprof.signals import signals_to
from kdaprof.timeline.load import SUFFIXES, load


def analyse_file(path: Path, scope: Scope) -> TraceReport:
    """Read and analyse one trace. Raises `BadFileError`, `UsageError`."""
    return analyse(load(path), scope)


def expand(paths: Sequence[Path]) -> tuple[list[Path], list[list[Path]]]:
    """All trace files named, and those that came from each folder. Raises `BadFileError` for what is not there."""
    files: list[Path] = []
    folders: list[list[Path]] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.is_file() and file.name.endswith(SUFFIXES))
            if not inside:
                raise BadFileError(f"{path}: no trace in this folder ({', '.join(SUFFIXES)})")
            folders.append(inside)
            files += inside
        else:
            files.append(path)
    return files, folders


def analyse_files(
    files: Sequence[Path], scope: Scope, *, scheduler: str | None = None, jobs: int | None = None
) -> list[TraceReport]:
    """Analyse many traces, in order. `scheduler`: address of a Dask scheduler whose workers see the same files.

    `jobs`: parallel processes here, by default one a core. A file that cannot be read raises as in `analyse_file`.
    """
    if scheduler is not None:
        return _on_dask(files, scope, scheduler)
    workers = min(len(files), jobs or os.cpu_count() or 1)
    if workers <= 1:
        return [analyse_file(file, scope) for file in files]
    # spawn: a caller's threads (a profiler's, torch's) do not survive a fork
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_end_silently_on_interrupt)
    with pool:
        with _interrupts_held():  # children begin with interrupts held too, so that none of them prints a traceback
            pending = [pool.submit(analyse_file, file, scope) for file in files]
        try:
            return [one.result() for one in pending]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the end of the block, here and in the processes that the block starts.

    The mask is what those inherit; alone it would not do here, since any other thread (of a maths library, say) may
    take the signal for the process, and Python then raises in the main one.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    came: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with signals_to({signal.SIGINT: lambda number, _frame: came.append(number)}):
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if came:
            signal.raise_signal(signal.SIGINT)


def _end_silently_on_interrupt() -> None:
    """In a child: Ctrl-C ends it at once; the parent says so, in one line."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def ranks_of(
    files: Sequence[Path], reports: Sequence[TraceReport], folders: Sequence[Sequence[Path]]
) -> tuple[RankRow, ...]:
    """The table of ranks of folders; raises `BadFileError` when a folder's ranks are not complete and distinct."""
    by_path = dict(zip(files, reports, strict=True))
    rows: list[RankRow] = []
    for folder in folders:
        inside = [by_path[path] for path in folder]
        ranks = [(report.source.path or "", rank_of(report.source.path or "", report.source.rank)) for report in inside]
        sizes = [report.source.world_size for report in inside if report.source.world_size is not None]
        check_ranks(ranks, max(sizes, default=None))
        if any(rank is None for _, rank in ranks):
            continue
        rows += rank_table([_input(report, rank) for report, (_, rank) in zip(inside, ranks, strict=True)])
    return tuple(rows)


def _input(report: TraceReport, rank: int | None) -> RankInput:
    assert rank is not None  # asked for before
    return RankInput(
        rank=rank,
        path=report.source.path or "",
        span_ns=sum(device.span_ns for device in report.devices),
        busy_ns=sum(device.busy_ns for device in report.devices),
        idle_ns=sum(device.idle.total_ns for device in report.devices),
        collectives=report.collectives,
    )


def _on_dask(files: Sequence[Path], scope: Scope, address: str) -> list[TraceReport]:
    try:
        from distributed import Client  # noqa: PLC0415
    except ImportError as error:
        raise UnavailableError("--scheduler needs Dask: pip install 'kdaprof[dask]' (or distributed)") from error
    try:
        client = Client(address, timeout="20s")
    except (OSError, ValueError) as error:
        raise UnavailableError(f"--scheduler {address}: no Dask scheduler answers: {error}") from error
    gather: Callable[..., list[TraceReport]] = client.gather
    try:
        return gather(client.map(analyse_file, [file.resolve() for file in files], [scope] * len(files), pure=False))
    finally:
        client.close()

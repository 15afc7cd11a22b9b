"""`kdaprof stacks --read`: a stored recording, or a trace that py-spy wrote elsewhere, derived again and printed."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

from kdaprof import __version__
from kdaprof.analysis.stacks_document import StacksView, stacks_document, stacks_view
from kdaprof.analysis.stacks_trace import has_native, last_ns
from kdaprof.analysis.util_join import Interval, intervals_of
from kdaprof.cli.console import err_console, out_console, print_json
from kdaprof.errors import BadFileError, Exit
from kdaprof.report.stacks import terminal_lines
from kdaprof.runs.stacks import StacksRecord
from kdaprof.runs.stacks_file import read_holds, read_record, read_threads, read_trace


def show_stored(place: Path, steps: Path | None, *, command: Sequence[str], as_json: bool) -> int:
    """Derive and print; nothing is recorded or written. `place`: a recording's directory, or a Chrome trace of py-spy.

    Errors: BadFileError; UsageError for --steps with a trace alone, whose time is not known.
    """
    seen = _recording(place, steps) if place.is_dir() else _bare(place, command)
    show(seen, as_json=as_json, beside_command=False)
    if seen.record.missing is not None:
        return Exit.ERROR
    return Exit.INCONCLUSIVE if seen.verdict == "unusable" else Exit.OK


def show(seen: StacksView, *, as_json: bool, beside_command: bool) -> None:
    """JSON alone on stdout, or the summary: on stderr where stdout is the command's."""
    if as_json:
        print_json(stacks_document(seen))
        return
    console = err_console() if beside_command else out_console()
    for line in terminal_lines(seen):
        console.print(line, soft_wrap=True)


def intervals_during(steps: Path, record: StacksRecord) -> list[Interval]:
    """What the run `steps` did during the recording. Errors: BadFileError when it is of another time, or no run."""
    from kdaprof.analysis.recompute import load_raw

    raw = load_raw(steps)
    found = [
        interval
        for interval in intervals_of(raw.record, raw.samples)
        if interval[1] > record.started_monotonic_ns and interval[0] < record.ended_monotonic_ns
    ]
    if not found:
        raise BadFileError(f"{steps}: nothing of it ran during the recording; is it the run of that time?")
    return found


def _recording(folder: Path, steps: Path | None) -> StacksView:
    record = read_record(folder)
    intervals = [] if steps is None else intervals_during(steps, record)
    if record.missing is not None:
        return stacks_view(record, None, ())
    return stacks_view(record, read_trace(folder), read_threads(folder), read_holds(folder), intervals=intervals)


def _bare(file: Path, command: Sequence[str]) -> StacksView:
    """A trace alone: no counters, so that waiting shows only where native frames wait, and no share of failures."""
    try:
        raw = file.read_bytes()
        trace = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    except (OSError, EOFError) as error:
        raise BadFileError(f"{file}: cannot read ({getattr(error, 'strerror', None) or error})") from error
    end = last_ns(trace)
    if end is None:
        way = "`py-spy record --format chrometrace` writes one"
        raise BadFileError(f"{file}: neither a directory of `kdaprof stacks` nor a Chrome trace of py-spy; {way}")
    record = StacksRecord(
        tool=f"kdaprof {__version__}",
        command=tuple(command),
        complete=True,
        pid=None,
        rate_hz=None,
        native=has_native(trace),
        started_unix_ns=None,
        started_monotonic_ns=0,
        ended_monotonic_ns=end,
        anchor_ns=0,
        anchor_uncertainty_ns=None,
        samples=None,
        errors=None,
        spy_cpu_ns=None,
        own_cpu_ns=0,
        notes=("a trace alone, without the kernel's counters: running and waiting are not told apart by line",),
    )
    return stacks_view(record, trace, ())

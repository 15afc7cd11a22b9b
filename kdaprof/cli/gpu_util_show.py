"""Deriving, writing and printing a watch: the same for one that just ended and for a stored one."""

from __future__ import annotations

from pathlib import Path

from kdaprof.analysis.util_document import WatchView, gpu_util_document, view
from kdaprof.analysis.util_join import busy_shares, intervals_of
from kdaprof.cli.console import err_console, out_console, print_json
from kdaprof.errors import BadFileError, Exit
from kdaprof.report.gpu_util import markdown, terminal_lines
from kdaprof.report.gpu_util_picture import picture
from kdaprof.runs.atomic import write_text
from kdaprof.runs.codec import write_document
from kdaprof.runs.older import make_way
from kdaprof.runs.store import REPORT_FILE
from kdaprof.runs.util import UTIL_FILE
from kdaprof.runs.util_csv import CSV_FILE, write_csv
from kdaprof.runs.util_file import UtilFile, parts_folder, parts_of
from kdaprof.runs.watch import PICTURE_FILE, WATCH_FILE, WATCH_KIND, WatchRecord, read_watch


def derived(record: WatchRecord, folder: Path | None, steps: Path | None) -> WatchView:
    """Everything that follows from a watch, joined with the run `steps` where one is given."""
    file = UtilFile(folder / UTIL_FILE) if folder is not None else None
    if steps is None:
        return view(record, file)
    from kdaprof.analysis.derive import derive
    from kdaprof.analysis.recompute import load_raw

    raw = load_raw(steps)
    # Both clocks count from the machine's start; by unix time they join after a restart, too.
    of_run = raw.record.started_unix_ns - raw.record.started_monotonic_ns
    of_watch = record.started_unix_ns - record.started_monotonic_ns
    offset_ns = of_run - of_watch if abs(of_run - of_watch) > 1_000_000_000 else 0
    intervals = intervals_of(raw.record, raw.samples, offset_ns=offset_ns)
    seen = [i for i in intervals if i[1] > record.started_monotonic_ns and i[0] < record.ended_monotonic_ns]
    if not seen:
        raise BadFileError(f"{steps}: nothing of it ran while the watch did; is it the run of that time?")
    return view(record, file, intervals=seen, busy=busy_shares(raw.record, derive(raw)))


def write_all(folder: Path, seen: WatchView) -> None:
    """The document, CSV, picture and report beside the samples."""
    body = gpu_util_document(seen)
    del body["schema"]
    write_document(folder / WATCH_FILE, WATCH_KIND, body)
    write_csv(UtilFile(folder / UTIL_FILE), folder / CSV_FILE)
    write_text(folder / PICTURE_FILE, picture(seen))
    write_text(folder / REPORT_FILE, markdown(seen))


def forget_parts(folder: Path) -> None:
    """Take away the samples of an older watch that was killed, which `open_target` leaves. Errors: TargetError."""
    unfinished = parts_folder(folder / UTIL_FILE).glob(".part-*.tmp")
    make_way(*parts_of(folder / UTIL_FILE), *unfinished)


def print_view(seen: WatchView, *, as_json: bool, folder: Path | None, beside_command: bool) -> None:
    """JSON alone on stdout, or the summary: on stderr where stdout is the command's."""
    if as_json:
        print_json(gpu_util_document(seen))
        return
    console = err_console() if beside_command else out_console()
    for line in terminal_lines(seen):
        console.print(line, soft_wrap=True)
    if folder is not None:
        console.print(f"{folder}: samples (Parquet, CSV), {WATCH_FILE}, {PICTURE_FILE}, {REPORT_FILE}", soft_wrap=True)


def show_stored(folder: Path, steps: Path | None, *, as_json: bool) -> int:
    """Derive a stored watch again and print it; nothing is sampled or written."""
    seen = derived(read_watch(folder), folder, steps)
    print_view(seen, as_json=as_json, folder=None, beside_command=False)
    return Exit.OK

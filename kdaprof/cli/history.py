"""`kdaprof history`: figures of all recorded runs by commit, machine and shape, and where their level changed."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kdaprof.cli.parser import VerbParser, check_ours
from kdaprof.cli.standing import add_store_flag, store_of
from kdaprof.errors import Exit, UsageError

if TYPE_CHECKING:
    from kdaprof.analysis.history import Series, Wanted
    from kdaprof.runs.retractions import Retraction

EXAMPLES = """\
examples:
  kdaprof history --add reports/h200-kda
      derive a stored run again and record its figures (a probe does so at its end)
  kdaprof history
      wall of every cell over time, a table a cell and machine
  kdaprof history --fact wall_ns,gpu_busy_ns --cell '*/fused/*/eager/*' --quotable
      two figures of the fused path, only where they may be quoted
  kdaprof history --html history.html
      the same as a plot that works offline
  kdaprof history --json | python -m json.tool
      schema kdaprof.history/1

The record is a Parquet folder in the store, one file a run: pandas.read_parquet(".kdaprof/history").
Retracted figures, and those made from them, stand in parentheses with the reason.

exit codes: 0 ok · 1 the store or a run cannot be read · 2 usage"""

_TITLE = "kdaprof history"


def build_parser() -> argparse.ArgumentParser:
    """The flags of `history`."""
    parser = VerbParser(
        "history",
        description="Show the figures of all recorded runs over time, with changes of level, as they stand after "
        "what was retracted. The record is append-only.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--add", nargs="+", type=Path, metavar="RUN", help="record these stored runs instead")
    parser.add_argument("--fact", default="wall_ns", metavar="NAMES", help="figures, by comma (default wall_ns)")
    parser.add_argument("--cell", metavar="PATTERN", help="only cells whose id matches, with * and ?")
    parser.add_argument("--machine", metavar="TEXT", help="only machines whose name holds TEXT")
    parser.add_argument("--commit", metavar="SHA", help="only runs of commits that begin so")
    parser.add_argument("--quotable", action="store_true", help="only figures that may be quoted")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the document, alone on stdout")
    form.add_argument("--html", type=Path, metavar="FILE", help="write the plot; it replaces a plot of before")
    add_store_flag(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Record or show; returns the exit code."""
    args = build_parser().parse_args(argv)
    store = store_of(args)
    if args.add:
        return _add(args.add, store)

    from kdaprof.analysis.history import Wanted, series_of
    from kdaprof.runs.history import read_history, sources_of
    from kdaprof.runs.retractions import fallen, read_retractions

    entries = read_history(store)
    wanted = Wanted(
        facts=_facts(args.fact, (entry.name for entry in entries)),
        cell=args.cell,
        machine=args.machine,
        commit=args.commit,
        quotable=args.quotable,
    )
    retractions = read_retractions(store)
    series = series_of(entries, fallen(retractions, sources_of(entries)), wanted)
    if args.json:
        _print_json(series, retractions, argv, store)
    elif args.html is not None:
        _write_plot(series, args.html)
    elif series:
        from kdaprof.cli.console import out_console
        from kdaprof.report.history import show_history

        show_history(out_console(), series)
    else:
        _say_empty(store, wanted, len({entry.stamp.run for entry in entries}))
    return Exit.OK


def _facts(text: str, recorded: Iterable[str]) -> tuple[str, ...]:
    from kdaprof.runs.facts import EAGER_FACTS, GRAPH_FACTS

    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    known = dict.fromkeys((*EAGER_FACTS, *GRAPH_FACTS, *recorded))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise UsageError(
            f"--fact {text!r}: no figure is called {', '.join(unknown) or 'that'}; known: {', '.join(known)}"
        )
    return names


def _add(runs: Sequence[Path], store: Path) -> Exit:
    from kdaprof.analysis.derive import derive
    from kdaprof.analysis.recompute import load_raw
    from kdaprof.cli.console import out_console
    from kdaprof.cli.report import run_folders
    from kdaprof.runs.history import record_figures

    console = out_console()
    for folder in (folder for path in runs for folder in run_folders(path)):
        raw = load_raw(folder)
        added = record_figures(store, raw.record, derive(raw), folder)
        console.print(f"{folder}: {'recorded' if added else 'recorded already'} in {store}", soft_wrap=True)
    return Exit.OK


def _print_json(series: Sequence[Series], retractions: Sequence[Retraction], argv: Sequence[str], store: Path) -> None:
    from kdaprof import __version__
    from kdaprof.cli.console import print_json
    from kdaprof.report.history import history_document

    command = ["kdaprof", "history", *argv]
    tool = f"kdaprof {__version__}"
    print_json(history_document(series, retractions, tool=tool, command=command, store=str(store)))


def _write_plot(series: Sequence[Series], file: Path) -> None:
    from kdaprof.cli.console import out_console
    from kdaprof.report.figures import history_figure, page
    from kdaprof.runs.atomic import write_text

    if not series:
        raise UsageError(f"--html {file}: nothing to plot; `kdaprof history` says what is recorded")
    check_ours("--html", file, f"<title>{_TITLE}</title>", "plot")
    write_text(file, page([history_figure(one) for one in series], title=_TITLE))
    out_console().print(f"{file}: {len(series)} plots", soft_wrap=True)


def _say_empty(store: Path, wanted: Wanted, runs: int) -> None:
    from kdaprof.cli.console import out_console

    text = f"{store}: no run is recorded; `kdaprof history --add RUN` records one"
    if runs:
        asked = "no quotable figure" if wanted.quotable else "no figure"
        those = "the recorded run" if runs == 1 else f"{runs} recorded runs"
        text = f"{store}: {asked} {', '.join(wanted.facts)} is as asked for in {those}"
    out_console().print(text, soft_wrap=True)

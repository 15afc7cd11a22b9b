"""`kdaprof report`: show stored runs again, recomputed from their samples; never measures."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from kdaprof.cli.parser import VerbParser
from kdaprof.cli.report_stored import Shown, check, write
from kdaprof.cli.standing import add_store_flag, as_it_stands, store_of
from kdaprof.errors import BadFileError, Exit, UsageError

if TYPE_CHECKING:
    from kdaprof.analysis.loop_ranks import LoopRank

EXAMPLES = """\
examples:
  kdaprof report runs/20261202T015500Z-kda-fused-1f3a
      tables, verdict and findings on the terminal
  kdaprof report reports/h200-kda --md > report.md
      the page for a code host: verdict, conditions, tables, evidence, refused figures
  kdaprof report reports/h200-kda --json | python -m json.tool
      one JSON document (schema kdaprof.run/1; several runs: kdaprof.runs/1)
  kdaprof report reports/h200-kda --html --out kda.html --open
      one page that stands alone: charts, a timeline to zoom, every figure with its record
  kdaprof report reports/h200-kda runs/mine --html --out both.html
      several runs on one page, side by side, what differs between their machines first
  kdaprof report reports/h200-kda --tables field > field.md
      the tables of a field report: implementations, speedups with verdict, roofline, methods, what is missing
  kdaprof report reports/*/ --check
      does every stored figure still follow from its samples? exit 3 names those that do not
  kdaprof report reports/h200-kda --write
      store what this version derives from the same samples: facts, findings, report.md; of a sweep its files, too

exit codes: 0 ok · 1 a run cannot be read · 2 usage · 3 --check found a difference"""

_RANK_FOLDER = re.compile(r"rank\d+")
PAGE = "report.html"


def build_parser() -> argparse.ArgumentParser:
    """The flags of `report`."""
    parser = VerbParser(
        "report",
        description="Show stored runs. Facts and findings are recomputed from the stored samples and timelines; "
        "nothing is measured, and nothing is written without --write or --html.",
        epilog=EXAMPLES,
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run directory, as `probe --out` made it")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--md", action="store_true", help="print report.md instead of the terminal's tables")
    form.add_argument("--json", action="store_true", help="print the document, alone on stdout")
    form.add_argument(
        "--html",
        action="store_true",
        help="write one page that stands alone (to --out, else report.html in the run) and print where it is",
    )
    form.add_argument("--tables", choices=("field",), help="print the tables of a field report, as Markdown")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where --html goes")
    parser.add_argument("--open", action="store_true", help="show the page of --html in the browser")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare the figures with those stored beside the samples; exit 3 when one differs",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="put the recomputed facts, findings and report.md (and sweep.json, .md, .svg) into each run, in place of "
        "those stored there",
    )
    add_store_flag(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Show or check the runs; returns the exit code."""
    args = build_parser().parse_args(argv)
    if (args.out or args.open) and not args.html:
        raise UsageError("--out and --open belong to --html; redirect the other forms (… --md > FILE)")
    folders = [folder for run_path in args.runs for folder in run_folders(run_path)]
    shown = [_recomputed(folder) for folder in folders]
    code = (
        check(shown, sys.stderr if args.json or args.md or args.html or args.tables else sys.stdout)
        if args.check
        else Exit.OK
    )
    if args.write:
        write(shown)
    store = store_of(args)  # not before: what is checked and written follows from the samples alone
    shown = [replace(one, results=as_it_stands(one.raw, one.results, store)) for one in shown]
    if args.json:
        _print_json(shown)
    elif args.md:
        _print_markdown(shown)
    elif args.html:
        _put_page(shown, args.out, show=args.open)
    elif args.tables:
        _print_field_tables(shown)
    elif not (args.check or args.write):
        _print_tables(shown)
    return code


def run_folders(path: Path) -> list[Path]:
    """The run itself, or the runs of its ranks (`rank00000/` …) when it holds one a rank."""
    from kdaprof.runs.ranks import rank_folders
    from kdaprof.runs.store import RUN_FILE

    if path.is_dir() and not (path / RUN_FILE).exists():
        ranks = rank_folders(path)
        if ranks:
            return ranks
    if path.is_file():
        raise BadFileError(f"{path}: is a file; a run is a directory that holds {RUN_FILE}")
    return [path]


def _recomputed(path: Path) -> Shown:
    from kdaprof.analysis.derive import derive
    from kdaprof.analysis.recompute import load_raw

    raw = load_raw(path)
    return Shown(path, raw, derive(raw))


def _print_tables(shown: Sequence[Shown]) -> None:
    from kdaprof.analysis.step.sweep import sweep_of
    from kdaprof.cli.console import out_console
    from kdaprof.report.loop_ranks import show_ranks
    from kdaprof.report.sweep import sweep_markdown
    from kdaprof.report.terminal import show_run

    console = out_console()
    for ranks in _ranks(shown):
        show_ranks(console, ranks)
        console.print()
    for i, one in enumerate(shown):
        if i:
            console.print()
        sweep = sweep_of(one.record, one.results)
        if sweep is not None:
            console.print(sweep_markdown(sweep), soft_wrap=True)
        show_run(console, one.record, one.results, path=one.path)


def _ranks(shown: Sequence[Shown]) -> list[tuple[LoopRank, ...]]:
    """The ranks of each job among the runs that are shown, side by side."""
    from kdaprof.analysis.loop_ranks import loop_ranks

    jobs = groupby((one for one in shown if _RANK_FOLDER.fullmatch(one.path.name)), key=lambda one: one.path.parent)
    found = [loop_ranks([(int(one.path.name[4:]), one.raw, one.results) for one in job]) for _, job in jobs]
    return [ranks for ranks in found if len(ranks) > 1]


def _print_markdown(shown: Sequence[Shown]) -> None:
    from kdaprof.cli.console import print_file
    from kdaprof.report.loop_ranks import ranks_markdown
    from kdaprof.report.markdown import render

    beside = ["\n".join(ranks_markdown(ranks)) for ranks in _ranks(shown)]
    print_file("\n".join((*beside, *(render(one.record, one.results) for one in shown))).encode())


def _print_field_tables(shown: Sequence[Shown]) -> None:
    from kdaprof.cli.console import print_file
    from kdaprof.report.field.page import field_tables

    print_file("\n".join(field_tables(one.raw, one.results) for one in shown).encode())


def _put_page(shown: Sequence[Shown], out: Path | None, *, show: bool) -> None:
    """Write the page, say where it is on stdout, and open it if asked to. Only a page of ours is written over."""
    import webbrowser

    from kdaprof.cli.console import err_console, out_console
    from kdaprof.report.html.page import MARK, render, render_several
    from kdaprof.runs.atomic import may_replace, write_text

    default = shown[0].path / PAGE if len(shown) == 1 else Path(f"kdaprof-{PAGE}")
    target = out or default
    if target.is_dir():
        raise UsageError(f"--out {target}: is a directory; name a file in it")
    if not may_replace(target, MARK):
        raise UsageError(f"{target}: exists and is no page of kdaprof; choose another --out")
    runs = [(one.raw, one.results) for one in shown]
    write_text(target, render(*runs[0]) if len(runs) == 1 else render_several(runs))
    out_console().print(str(target), soft_wrap=True)
    if show and not webbrowser.open(target.resolve().as_uri()):
        err_console().print(f"no browser here; open {target} in one", soft_wrap=True)


def _print_json(shown: Sequence[Shown]) -> None:
    from kdaprof.cli.console import print_json
    from kdaprof.runs.document import run_document, runs_document

    # A run that was made anonymous stays so: where it lies on this machine is not printed either.
    documents = [
        run_document(one.record, one.results, None if one.record.environment.cwd is None else one.path) for one in shown
    ]
    print_json(documents[0] if len(documents) == 1 else runs_document(documents))

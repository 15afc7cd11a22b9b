"""`kdaprof analyze`: say why a trace is slow."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdaprof.cli.parser import VerbParser
from kdaprof.errors import Exit, UsageError

if TYPE_CHECKING:
    from kdaprof.analysis.trace.devices import TraceReport
    from kdaprof.analysis.trace.ranks import RankRow
    from kdaprof.analysis.trace.report import Scope

EXAMPLES = """\
examples:
  kdaprof analyze trace.json.gz                 torch.profiler: export_chrome_trace, plain or gzip
  kdaprof analyze report.sqlite                 Nsight Systems: nsys export --type sqlite
  kdaprof analyze trace.json --steps 5:8        steps 5, 6, 7 (numbers as in ProfilerStep#)
  kdaprof analyze trace.json --phase fwd        only what was launched inside annotations `fwd`
  kdaprof analyze traces/                       a folder with one trace a rank: stragglers, collectives
  kdaprof analyze trace.json --json > a.json    schema kdaprof.analysis/1
  kdaprof analyze trace.json --perfetto out.json   the trace with the idle as an extra track

exit codes: 0 ok · 1 a file cannot be read, or ranks are missing · 2 usage · 5 Dask is not there"""

_DOCUMENT = "analysis.json"
_STEPS = re.compile(r"(\d*):(\d*)$")


def build_parser() -> argparse.ArgumentParser:
    """The flags of `analyze`."""
    parser = VerbParser(
        "analyze",
        description="Read a trace and say whether the host or the GPU bounds it, where the idle goes, class by class "
        "to the nanosecond, and what to do about it. Needs neither torch nor a GPU.",
        epilog=EXAMPLES,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a trace, or a folder of one trace a rank")
    parser.add_argument("--steps", metavar="A:B", help="only steps A to B-1; A or B may be left out")
    parser.add_argument(
        "--phase",
        metavar="NAME",
        help="only what was launched in annotations of this name (with --steps: in these steps)",
    )
    parser.add_argument("--json", action="store_true", help="print the document, alone on stdout")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write analysis.json and report.md here")
    parser.add_argument("--force", action="store_true", help="write into a directory that is not empty")
    parser.add_argument("--perfetto", type=Path, metavar="OUT", help="write the trace with the gaps as an extra track")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes for many files (default: one a core)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="analyse on a Dask cluster whose workers see the files")
    parser.add_argument("--top", type=int, default=8, metavar="N", help="rows of each table (default 8)")
    return parser


def run(argv: Sequence[str]) -> int:
    """Analyse, print, write; returns the exit code."""
    args = build_parser().parse_args(argv)
    scope = _scope(args)
    _check_targets(args)

    from kdaprof.analysis.trace.files import analyse_files, expand, ranks_of

    files, folders = expand(args.files)
    if args.perfetto is not None and len(files) > 1:
        raise UsageError("--perfetto takes one trace")
    reports = analyse_files(files, scope, scheduler=args.scheduler, jobs=args.jobs)
    ranks = ranks_of(files, reports, folders)
    document = _document(argv, reports, ranks) if args.json or args.out else None
    if args.out is not None and document is not None:
        _write(args.out, document, reports, ranks, args.top)
    if args.perfetto is not None:
        _perfetto(files[0], args.perfetto, quiet=args.json)
    if args.json and document is not None:
        from kdaprof.cli.console import print_json

        print_json(document)
    else:
        from kdaprof.cli.console import out_console
        from kdaprof.report.trace import show_traces

        show_traces(out_console(), reports, ranks, top=args.top)
    return Exit.OK


def _scope(args: argparse.Namespace) -> Scope:
    from kdaprof.analysis.trace.report import Scope

    if args.steps is None:
        return Scope(phase=args.phase)
    match = _STEPS.match(args.steps)
    if match is None or args.steps == ":":
        raise UsageError(f"--steps {args.steps!r}: write A:B, A: or :B, for example 5:8")
    first, last = (int(text) if text else None for text in match.groups())
    if first is not None and last is not None and first >= last:
        raise UsageError(f"--steps {args.steps}: empty, as B is left out like in a slice")
    return Scope(first_step=first, last_step=last, phase=args.phase)


def _check_targets(args: argparse.Namespace) -> None:
    """Faults of the targets before any work."""
    from kdaprof.runs.atomic import check_file

    if args.out is not None:
        if args.out.exists() and not args.out.is_dir():
            raise UsageError(f"--out {args.out}: is a file")
        if args.out.is_dir() and any(args.out.iterdir()) and not args.force:
            raise UsageError(f"--out {args.out}: not empty; choose another or add --force")
        check_file(args.out / _DOCUMENT)
    if args.perfetto is not None:
        if args.perfetto.exists() and not args.force:
            raise UsageError(f"--perfetto {args.perfetto}: exists; choose another or add --force")
        check_file(args.perfetto)
    if args.jobs is not None and args.jobs < 1:
        raise UsageError(f"--jobs {args.jobs}: at least 1")
    if args.top < 1:
        raise UsageError(f"--top {args.top}: at least 1")


def _document(argv: Sequence[str], reports: Sequence[TraceReport], ranks: Sequence[RankRow]) -> dict[str, Any]:
    from kdaprof.analysis.trace.document import analysis_document

    return analysis_document(reports, command=["kdaprof", "analyze", *argv], ranks=ranks)


def _write(
    folder: Path, document: dict[str, Any], reports: Sequence[TraceReport], ranks: Sequence[RankRow], top: int
) -> None:
    from kdaprof.report.trace import trace_markdown
    from kdaprof.runs.atomic import write_bytes, write_text
    from kdaprof.runs.codec import dumps

    write_bytes(folder / _DOCUMENT, dumps(document))
    write_text(folder / "report.md", trace_markdown(reports, ranks, top=top))


def _perfetto(file: Path, target: Path, *, quiet: bool) -> None:
    from kdaprof.analysis.trace.perfetto import write_perfetto
    from kdaprof.cli.console import err_console
    from kdaprof.timeline.load import load

    gaps = write_perfetto(load(file), file, target)
    if not quiet:
        err_console().print(f"{target}: {gaps:,} gaps as an extra track; open it in ui.perfetto.dev")

"""`kdaprof nsys`: run a command under Nsight Systems, check that a report came out, and analyse it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kdaprof.cli.parser import VerbParser
from kdaprof.errors import Exit, UsageError

if TYPE_CHECKING:
    from kdaprof.instruments.nsight.nsys import NsysPlan

EXAMPLES = """\
examples:
  kdaprof nsys -- python train.py
      record CUDA calls, kernels, graph nodes and NVTX ranges of the whole command, then say why it is slow
  kdaprof nsys --capture step -- python train.py
      begin and end with the range `step` of kdaprof's domain; the command goes on to its own end
  kdaprof nsys --capture forward --domain '*' -- python train.py
      the same with a range of any domain, as torch.cuda.nvtx.range_push("forward") makes them
  kdaprof nsys --dry-run -- python train.py
      print the lines that would run, for a machine that has nsys and no kdaprof
  kdaprof analyze report.sqlite
      what is printed at the end, again and in full

Ranges of kdaprof: domain `kdaprof`; `probe` has one a run, group, cell (by its id) and stage, a StepProfiler one a
step and phase. The folder holds report.nsys-rep for Nsight's own window, report.sqlite, analysis.json and report.md.

exit codes: 0 ok · 1 nsys left no report · 2 usage · 5 nsys is not installed · 130 interrupted;
a command that fails passes its own code through, and what was recorded of it is analysed"""


def build_parser() -> argparse.ArgumentParser:
    """The flags of `nsys`."""
    parser = VerbParser(
        "nsys",
        description="Run a command under Nsight Systems with the flags that kdaprof's analysis needs, check that a "
        "report came out, export it to SQLite and analyse it: host- or GPU-bound, where the idle goes, what to do.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--capture", metavar="RANGE", help="record only from the begin to the end of this NVTX range")
    parser.add_argument("--domain", default="kdaprof", help="of that range, `*` for any (default %(default)s)")
    parser.add_argument(
        "--whole-graphs", action="store_true", help="one event a CUDA Graph replay: cheaper, but its kernels are hidden"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the report goes (default runs/<UTC>-nsys)")
    parser.add_argument("--force", action="store_true", help="write into a directory that is not empty")
    parser.add_argument("--dry-run", action="store_true", help="print the lines and run nothing")
    parser.add_argument("--json", action="store_true", help="print the analysis as JSON, alone on stdout")
    parser.add_argument("command", nargs="*", metavar="-- COMMAND", help="what is run, after two dashes")
    return parser


def run(argv: Sequence[str]) -> int:
    """Record, export, analyse; returns the command's exit code where it is not 0."""
    args = build_parser().parse_args(argv)
    if not args.command:
        raise UsageError("no command: write `kdaprof nsys -- python train.py`")

    from kdaprof.cli import analyze
    from kdaprof.cli.ending import after_command, tell
    from kdaprof.instruments.nsight import nsys
    from kdaprof.instruments.nsight.tool import find_tool, need_tool, spawn_attached
    from kdaprof.instruments.watch.command import check_command
    from kdaprof.runs.ids import new_run_id
    from kdaprof.runs.store import check_target

    plan = nsys.NsysPlan(
        command=tuple(args.command),
        folder=args.out or Path("runs") / new_run_id("nsys"),
        capture=args.capture,
        domain=args.domain,
        graph_nodes=not args.whole_graphs,
    )
    found = find_tool("nsys")
    if args.dry_run:
        _print_lines(plan, found or "nsys")
        return Exit.OK
    tool = need_tool("nsys", found, "run the line of `kdaprof nsys --dry-run` elsewhere and analyse its SQLite file")
    check_command(plan.command)
    check_target(plan.folder, force=args.force)
    code = nsys.record(tool, plan, spawn_attached, os.environ, quiet_stdout=args.json)
    shown = ["--json"] if args.json else []
    analysed: int = Exit.ERROR
    with after_command(code != 0):
        analysed = analyze.run([str(plan.folder / nsys.EXPORT), "--out", str(plan.folder), "--force", *shown])
    if code != 0:
        tell(f"the command ended with exit code {code}; the above is what it did until then")
    return code or analysed


def _print_lines(plan: NsysPlan, tool: str) -> None:
    from kdaprof.cli.console import print_file
    from kdaprof.instruments.nsight import nsys
    from kdaprof.instruments.nsight.tool import shown

    lines = (
        shown(nsys.profile_line(tool, plan), nsys.ENVIRON),
        shown(nsys.export_line(tool, plan.folder), {}),
        shown(("kdaprof", "analyze", str(plan.folder / nsys.EXPORT)), {}),
    )
    print_file("".join(f"{line}\n" for line in lines).encode())

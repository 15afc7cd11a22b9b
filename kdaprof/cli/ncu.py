"""`kdaprof ncu`: bytes, occupancy, registers and spills a kernel (Nsight Compute), beside the cost model's bytes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kdaprof.cli.parser import VerbParser
from kdaprof.errors import Exit, UsageError

if TYPE_CHECKING:
    from kdaprof.instruments.nsight.ncu import NcuPlan
    from kdaprof.runs.cells import CellKey
    from kdaprof.timeline.ncu_csv import NcuReport

EXAMPLES = """\
examples:
  kdaprof ncu --path fused
      one forward and one backward of the op, each kernel counted; measured bytes beside the cost model's
  kdaprof ncu --path tensor --phases fwd --shape 4,2048,16,128,128 --dtype bfloat16
      another path, phase, shape and dtype
  kdaprof ncu --ranges step --most 200 -- python train.py
      your own command: at most 200 kernels launched inside ranges `step` of kdaprof's domain, by any thread
  kdaprof ncu --kernels '^my_kernel' -- python train.py
      kernels by name instead, where there are no ranges
  kdaprof ncu --read ncu.csv --path fused
      read what ncu wrote elsewhere; --path, --shape and --dtype say which cost model stands beside it
  kdaprof ncu --dry-run --path fused
      print the line, for a machine where ncu may read counters

Clocks are not touched (--clock-control none). Times are of kernels replayed alone, from a cold L2 unless --cache keep:
they are no wall times; `kdaprof probe` measures those.

exit codes: 0 ok · 1 nothing was profiled, or the file cannot be read · 2 usage · 5 ncu is not installed, or the driver
refuses its counters · 130 interrupted; a command that fails passes its own code through"""

_PHASES = "fwd,bwd"
_SHAPE = "10,512,12,64,64"


def build_parser() -> argparse.ArgumentParser:
    """The flags of `ncu`."""
    parser = VerbParser(
        "ncu",
        description="Count what each kernel moves and occupies with Nsight Compute, filtered to NVTX ranges: duration, "
        "DRAM bytes, throughput, occupancy, registers, local memory. Runs the op itself, a command, or reads a CSV.",
        epilog=EXAMPLES,
    )
    what = parser.add_argument_group("the op, or the cost model beside a command or a file")
    what.add_argument("--path", help="fused, tensor, tensor-rows, compiled, reference")
    what.add_argument("--phases", default=_PHASES, metavar="P,P", help="fwd, bwd, fwdbwd (default %(default)s)")
    what.add_argument("--shape", default=_SHAPE, metavar="B,T,H,K,V", help="default %(default)s")
    what.add_argument("--chunk", type=int, default=16, metavar="C", help="tokens a chunk (default %(default)s)")
    what.add_argument("--dtype", default="float32", help="default %(default)s")
    what.add_argument("--seed", type=int, default=0, help="of the op's inputs (%(default)s)")
    how = parser.add_argument_group("which kernels, and how")
    how.add_argument("--ranges", metavar="A,B", help="NVTX ranges that select a kernel (default: the phases)")
    how.add_argument("--domain", default="kdaprof", help="of the ranges (default %(default)s)")
    how.add_argument("--kernels", metavar="REGEX", help="select by kernel name instead")
    how.add_argument("--most", type=int, metavar="N", help="stop counting after N launches")
    how.add_argument("--cache", choices=("flush", "keep"), default="flush", help="L2 before each pass (%(default)s)")
    where = parser.add_argument_group("where it comes from and goes")
    where.add_argument("--read", type=Path, metavar="FILE.csv", help="run nothing: read this file of `ncu --csv`")
    where.add_argument("--out", type=Path, metavar="DIR", help="where ncu.csv goes (default runs/<UTC>-ncu)")
    where.add_argument("--force", action="store_true", help="write into a directory that is not empty")
    where.add_argument("--dry-run", action="store_true", help="print the line and run nothing")
    where.add_argument("--json", action="store_true", help="print the document (kdaprof.ncu/1), alone on stdout")
    parser.add_argument("command", nargs="*", metavar="-- COMMAND", help="what is run instead of the op")
    return parser


def run(argv: Sequence[str]) -> int:
    """Count or read, then print; returns the command's exit code where it is not 0."""
    args = build_parser().parse_args(argv)
    keys = _cells(args)
    _check(args)
    if args.read is not None:
        from kdaprof.timeline.ncu_csv import read

        _show(args, argv, read(args.read), args.read, keys, cache=None)
        return Exit.OK

    from kdaprof.cli.console import print_file
    from kdaprof.cli.ending import after_command, tell
    from kdaprof.instruments.nsight import ncu
    from kdaprof.instruments.nsight.tool import find_tool, need_tool, shown, spawn_attached
    from kdaprof.instruments.watch.command import check_command
    from kdaprof.runs.store import check_target

    plan = _plan(args)
    found = find_tool("ncu")
    if args.dry_run:
        print_file(f"{shown(ncu.profile_line(found or 'ncu', plan), ncu.ENVIRON)}\n".encode())
        return Exit.OK
    tool = need_tool("ncu", found, "run the line of `kdaprof ncu --dry-run` elsewhere and read its CSV with --read")
    check_command(plan.command)
    check_target(plan.csv.parent, force=args.force)
    report, code = ncu.record(tool, plan, spawn_attached, os.environ, quiet_stdout=args.json)
    with after_command(code != 0):
        _show(args, argv, report, plan.csv, keys, cache=plan.cache)
    if code != 0:
        tell(f"the command ended with exit code {code}; the above is what it did until then")
    return code


def _check(args: argparse.Namespace) -> None:
    if args.read is not None and (args.command or args.out or args.dry_run):
        raise UsageError("--read runs nothing: leave out the command, --out and --dry-run")
    if args.read is None and not args.command and args.path is None:
        raise UsageError("nothing to run: give --path fused, a command after --, or --read FILE.csv")
    if args.most is not None and args.most < 1:
        raise UsageError(f"--most {args.most}: at least 1")


def _cells(args: argparse.Namespace) -> list[CellKey]:
    """The op's cells whose cost model stands beside the counts; none without --path."""
    from kdaprof.runs.cells import DTYPES, PATHS, PHASES, SHAPE_AXES, CellKey, make_shape, parse_shape

    phases = [phase.strip() for phase in args.phases.split(",") if phase.strip()]
    for flag, values, known in (
        ("--path", [args.path] if args.path else [], PATHS),
        ("--phases", phases, PHASES),
        ("--dtype", [args.dtype], DTYPES),
    ):
        for value in values:
            if value not in known:
                raise UsageError(f"{flag} {value!r} is unknown; known: {', '.join(known)}")
    if not phases:
        raise UsageError("--phases is empty")
    if args.chunk < 1:
        raise UsageError(f"--chunk {args.chunk}: at least 1")
    shape = make_shape("kda", (*parse_shape(args.shape, SHAPE_AXES["kda"][:-1]), args.chunk))
    if args.path is None:
        return []
    return [CellKey("kda", args.path, "plain", "eager", phase, shape, args.dtype) for phase in phases]


def _plan(args: argparse.Namespace) -> NcuPlan:
    from kdaprof.instruments.nsight import ncu
    from kdaprof.runs.ids import new_run_id

    phases = tuple(phase.strip() for phase in args.phases.split(",") if phase.strip())
    ours = (sys.executable, "-m", *ncu.ours(args.path, phases, args.shape, args.chunk, args.dtype, args.seed))
    folder = args.out or Path("runs") / new_run_id("ncu")
    return ncu.NcuPlan(
        command=tuple(args.command) or ours,
        csv=folder / ncu.CSV,
        ranges=tuple(args.ranges.split(",")) if args.ranges else phases,
        domain=args.domain,
        kernel=args.kernels,
        most=args.most,
        cache=args.cache,
    )


def _show(
    args: argparse.Namespace,
    argv: Sequence[str],
    report: NcuReport,
    file: Path,
    keys: Sequence[CellKey],
    *,
    cache: str | None,
) -> None:
    from kdaprof.analysis.ncu import analyse
    from kdaprof.kda.cost import OpSize
    from kdaprof.kda.traffic import work

    models = {key.phase: work(key.path, key.phase, OpSize.of(key.shape), key.dtype) for key in keys}
    found = analyse(report.kernels, models, model_missing=None if keys else "no --path was given")
    cell = keys[0].id.replace(f"/{keys[0].phase}/", f"/{'+'.join(k.phase for k in keys)}/") if keys else None
    if args.json:
        from kdaprof.analysis.ncu_document import ncu_document
        from kdaprof.cli.console import print_json

        command = ["kdaprof", "ncu", *argv]
        print_json(ncu_document(report, found, file=str(file), cell=cell, cache=cache, command=command))
        return
    from kdaprof.cli.console import out_console
    from kdaprof.report.ncu import show_ncu

    show_ncu(out_console(), report, found, cell=cell, cache=cache)

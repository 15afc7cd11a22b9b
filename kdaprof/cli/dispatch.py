"""`kdaprof dispatch`: in which contexts does the gate fall back, and why?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kdaprof.cli.parser import VerbParser
from kdaprof.errors import Exit, UnavailableError, UsageError

if TYPE_CHECKING:
    from kdaprof.instruments.device import Device
    from kdaprof.runs.dispatch import DispatchRow

EXAMPLES = """\
examples:
  kdaprof dispatch
      every context × dtype, and shapes that are odd, short, empty: the path taken, the reason for each refused one
  kdaprof dispatch --save dispatch.json
      keep the table; commit it
  kdaprof dispatch --against dispatch.json
      in CI: exit 3 as soon as a call takes another path than in the saved table
  kdaprof dispatch --ops kda --contexts plain,autocast,checkpoint --dtypes float32,bfloat16
      only these
  kdaprof dispatch --ops sdpa,compile
      torch's own choices: attention backends with torch's reasons, graph breaks, CUDA-graph skips
  kdaprof dispatch --ops fla-gate
      which backend FLA's dispatcher would hand a call to, by dtype, head size and keyword; nothing is run for it
  kdaprof dispatch --model
      a small gated-delta layer of transformers (Qwen3-Next), randomly initialised: fast path or torch loop, and why

On a GPU kernel names and launch counts stand beside what the gate says; without one the gate speaks alone.

A row is contradicted where a witness names another path than the gate. It is printed in red and in the table; with
--against it exits 3 like any other change, unless the saved table has the same row contradicted in the same way.

exit codes: 0 ok · 1 a call failed · 2 usage, or tables that cannot be compared · 3 with --against: a call takes
another path than in the saved table, or a witness contradicts its gate · 5 torch or the device is not there"""

_OPS = ("kda", "sdpa", "fla", "fla-gate", "compile")


def build_parser() -> argparse.ArgumentParser:
    """The flags of `dispatch`."""
    parser = VerbParser(
        "dispatch",
        description="Call the op once in each context, dtype and shape, and say which path each call took, by which "
        "witnesses, and why it did not take the others; the same for torch's attention, torch.compile and FLA.",
        epilog=EXAMPLES,
    )
    what = parser.add_argument_group("what is called")
    what.add_argument("--ops", default=",".join(_OPS), metavar="O,O", help="default %(default)s")
    what.add_argument("--contexts", metavar="C,C", help="how the op is wrapped (default: all)")
    what.add_argument("--dtypes", metavar="D,D", help="default float32,bfloat16,float16,float64")
    what.add_argument("--shape", metavar="B,T,H,K,V", help="of the op, instead of the built-in ones")
    what.add_argument("--model", action="store_true", help="a gated-delta layer of transformers instead")
    what.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default %(default)s)")
    where = parser.add_argument_group("what becomes of it")
    where.add_argument("--save", type=Path, metavar="FILE", help="write the table here")
    where.add_argument("--force", action="store_true", help="replace FILE of --save")
    where.add_argument("--against", type=Path, metavar="FILE", help="compare with a saved table; exit 3 on a change")
    where.add_argument("--full", action="store_true", help="also the paths that were merely not preferred")
    where.add_argument("--json", action="store_true", help="print the table (kdaprof.dispatch/1), alone on stdout")
    return parser


def run(argv: Sequence[str]) -> int:
    """Call everything once, print, save, compare; returns the exit code."""
    args = build_parser().parse_args(argv)
    ops, dtypes = _choices(args)

    from kdaprof.runs.dispatch import compare_tables, dispatch_document, make_table, read_table, save_table

    before = None if args.against is None else read_table(args.against)
    try:
        from kdaprof.instruments.cuda_device import open_device
    except ImportError as error:
        raise UnavailableError(f"dispatch calls the op, and torch cannot be imported: {error}") from error
    device = open_device(args.device)
    rows = list(_rows(args, device, ops, dtypes))
    if not rows:
        raise UsageError("nothing to call: none of these ops has such a context")
    table = make_table(
        rows,
        command=("kdaprof", "dispatch", *argv),
        device=device.kind,
        card=device.traits.name if device.kind == "cuda" else None,
        versions=_versions(),
    )
    compared = None if before is None else compare_tables(before, table)
    if args.save is not None:
        save_table(args.save, table)
    if args.json:
        from kdaprof.cli.console import print_json

        print_json(dispatch_document(table, compared))
    else:
        from kdaprof.cli.console import out_console
        from kdaprof.report.dispatch import show_dispatch

        show_dispatch(out_console(), table, compared, full=args.full)
    if compared is not None and compared.changes:
        return Exit.REGRESSION
    return Exit.ERROR if any(row.status == "failed" for row in rows) else Exit.OK


def _choices(args: argparse.Namespace) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ops and dtypes, and the faults of the other flags, before torch is imported."""
    from kdaprof.runs.cells import DTYPES, SHAPE_AXES, parse_shape

    ops = _names("--ops", args.ops, _OPS)
    dtypes = _names("--dtypes", args.dtypes, DTYPES) if args.dtypes is not None else DTYPES
    if args.shape is not None:
        parse_shape(args.shape, SHAPE_AXES["kda"][:-1])
    if args.model and (args.contexts or args.shape or args.ops != ",".join(_OPS)):
        raise UsageError("--model calls the layer alone: leave out --ops, --contexts and --shape")
    if args.save is not None:
        from kdaprof.runs.atomic import check_file

        if args.save.exists() and not args.force:
            raise UsageError(f"--save {args.save}: exists; compare with --against, or replace it with --force")
        check_file(args.save)
    return ops, dtypes


def _names(flag: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError(f"{flag} is empty; known: {', '.join(known)}")
    for name in names:
        if name not in known:
            raise UsageError(f"{flag} {name!r} is unknown; known: {', '.join(known)}")
    return names


def _rows(args: argparse.Namespace, device: Device, ops: Sequence[str], dtypes: Sequence[str]) -> Iterator[DispatchRow]:
    from kdaprof.probe.dispatch import attention, compiler, layer, matrix, peer_gate, peers
    from kdaprof.runs.cells import SHAPE_AXES, parse_shape
    from kdaprof.workloads.dispatch import DISPATCH_CONTEXTS

    if args.model:
        yield from layer.layer_rows(device, dtypes=[dtype for dtype in dtypes if args.dtypes or dtype == "float32"])
        return
    known = dict.fromkeys((*DISPATCH_CONTEXTS, *attention.CONTEXTS, *peers.CONTEXTS, *peer_gate.CONTEXTS))
    contexts = _names("--contexts", args.contexts, tuple(known)) if args.contexts is not None else tuple(known)
    for op in ops:
        match op:
            case "kda":
                shapes = matrix.SHAPES if args.shape is None else (parse_shape(args.shape, SHAPE_AXES["kda"][:-1]),)
                own = [context for context in contexts if context in DISPATCH_CONTEXTS]
                yield from matrix.op_rows(device, contexts=own, dtypes=dtypes, shapes=shapes)
            case "sdpa":
                yield from attention.attention_rows(device, dtypes=dtypes, contexts=contexts)
            case "fla":
                yield from peers.peer_rows(device, dtypes=dtypes, contexts=contexts)
            case "fla-gate":
                yield from peer_gate.gate_rows(device, dtypes=dtypes, contexts=contexts)
            case _:
                yield from compiler.compiler_rows(device, dtypes=dtypes) if "compile" in contexts else ()


def _versions() -> dict[str, str | None]:
    from kdaprof.kda.peers.facts import FLA, installed_version

    return {
        "torch": installed_version(("torch",)),
        "triton": installed_version(("triton",)),
        "fla": installed_version(FLA.distributions),
        "transformers": installed_version(("transformers",)),
    }

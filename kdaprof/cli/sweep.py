"""`kdaprof sweep`: measure a training step over batch, sequence or iterations, and fit what a step costs at least."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kdaprof.cli.parser import VerbParser, check_wait
from kdaprof.cli.standing import add_store_flag, store_of
from kdaprof.cli.stopping import stoppable
from kdaprof.errors import UsageError
from kdaprof.probe.step.plan import STEP_EFFORT, StepRequest
from kdaprof.runs.cells import SWEPT_AXES

EXAMPLES = """\
examples:
  kdaprof sweep --over batch=1,2,4,8,16,32
      what a step costs at any batch (fixed) and for each sequence (slope); where it turns from host- to GPU-bound
  kdaprof sweep --over max_iter=1,2,4,8 --path fused
      what an iteration of the looped block costs: max_iter as a lever, as a number
  kdaprof sweep --over batch=2,4,8 --over seq=128,256,512 --json > sweep.json
      two sizes at once, against their product; one JSON document (schema kdaprof.sweep/1)

A fit through fewer than four amounts of work, or whose fixed part may be 0, is shown and refused (Q12).
A wall that a rule refuses enters no fit; without a GPU that is every one (Q08), and the exit code is 4.
The run directory also holds sweep.json, sweep.md and sweep.svg; `kdaprof report DIR` shows the sweep again, --check
holds its files against the samples, --write makes them anew.

exit codes: 0 ok · 1 a step failed · 2 usage · 4 no line: too few walls may enter a fit · 5 nothing can run here ·
130 interrupted"""

SWEEP_EFFORT = replace(STEP_EFFORT, rounds=5, samples=3, warmup=5, burst=2, profiled=3, profiled_full=0, util_seconds=0)


def build_parser() -> argparse.ArgumentParser:
    """The flags of `sweep`."""
    parser = VerbParser(
        "sweep",
        description="Measure the training step of `probe --workload step` at several sizes, and fit wall = fixed + "
        "slope · work with intervals and residuals.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--over", action="append", required=True, metavar="AXIS=A,B", help="batch, seq or max_iter")
    parser.add_argument("--path", metavar="PATH", help="one path (default: fused,tensor)")
    parser.add_argument("--paths", metavar="A,B", help="several, interleaved at each size")
    parser.add_argument("--preset", metavar="P", help="sizes that are not swept: b8, b10, b32, b4")
    parser.add_argument("--modes", default="eager", metavar="M,M", help="eager, graph (default %(default)s)")
    parser.add_argument(
        "--contexts", default="plain", metavar="C", help="one: how the op is wrapped (default %(default)s)"
    )
    parser.add_argument("--dtype", default="float32", help="default %(default)s")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=SWEEP_EFFORT.rounds, help="interleaved rounds (%(default)s)")
    parser.add_argument("--samples", type=int, default=SWEEP_EFFORT.samples, help="steps a round (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and tokens (%(default)s)")
    parser.add_argument("--wait", type=float, default=0.0, metavar="S", help="for a card that another run measures on")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run directory (default runs/<UTC>-<what>)")
    parser.add_argument("--force", action="store_true", help="replace a run that is already in DIR")
    parser.add_argument("--anonymous", action="store_true", help="leave out host name, user, home and paths")
    parser.add_argument("--json", action="store_true", help="print the document, alone on stdout")
    add_store_flag(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Measure the sweep, write and show its lines; returns the exit code."""
    args = build_parser().parse_args(argv)
    over = swept(args.over)
    check_wait(args.wait)
    request = _request(args, over, tuple(argv))
    store = None if args.store is None else store_of(args)
    from kdaprof.cli.sweep_run import sweep_and_report

    with stoppable():
        return int(sweep_and_report(request, as_json=args.json, wait_s=args.wait, store=store))


def swept(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """`["batch=1,2", "seq=128,256"]` → sizes by axis, each size once; UsageError says what is wrong."""
    found: dict[str, tuple[int, ...]] = {}
    for text in texts:
        axis, equals, sizes = text.partition("=")
        if axis not in SWEPT_AXES or not equals:
            raise UsageError(f"--over {text!r}: write batch=…, seq=… or max_iter=…, sizes parted by commas")
        parts = [part.strip() for part in sizes.split(",")]
        if not all(part.isdecimal() and 0 < len(part) < 8 and int(part) > 0 for part in parts):
            raise UsageError(f"--over {text!r}: sizes are whole numbers of 1 or more")
        if axis in found:
            raise UsageError(f"--over {axis}: named twice")
        found[axis] = tuple(dict.fromkeys(map(int, parts)))
    if len(found) > 2:
        raise UsageError("--over: at most two axes")
    if all(len(sizes) < 2 for sizes in found.values()):
        raise UsageError("--over: a sweep needs two sizes or more")
    return found


def _request(args: argparse.Namespace, over: dict[str, tuple[int, ...]], argv: tuple[str, ...]) -> StepRequest:
    if args.path is not None and args.paths is not None:
        raise UsageError("--path and --paths: give one of them")
    if "," in args.contexts:
        raise UsageError(f"--contexts {args.contexts}: a sweep takes one, since a line is fitted through its points")
    named = args.paths if args.path is None else args.path
    request = StepRequest(
        paths="fused,tensor" if named is None else named,
        contexts=args.contexts,
        modes=args.modes,
        preset=args.preset,
        batch=over.get("batch", ()),
        seq=over.get("seq", ()),
        max_iter=over.get("max_iter", ()),
        dtype=args.dtype,
        device=args.device,
        seed=args.seed,
        split=False,
        effort=replace(SWEEP_EFFORT, rounds=args.rounds, samples=args.samples),
        out=args.out,
        force=args.force,
        anonymous=args.anonymous,
        command=("kdaprof", "sweep", *argv),
    )
    return request.checked()

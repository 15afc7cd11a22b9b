"""`kdaprof compare`: is one stored run faster than another, cell by cell, and may that be said?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kdaprof.cli.parser import VerbParser
from kdaprof.cli.standing import add_store_flag, load_standing, store_of
from kdaprof.errors import Exit, UsageError

EXAMPLES = """\
examples:
  kdaprof compare reports/h200-kda reports/h200-kda
      a run against itself: what a difference would have to exceed
  kdaprof compare BASE CAND
      wall of every cell that both runs have: ratio with interval, verdict
  kdaprof compare BASE CAND --threshold 0.02 --fact wall_ns,gpu_busy_ns
      a stricter gate, on two figures
  kdaprof compare BASE CAND --json | python -m json.tool
      schema kdaprof.compare/1

A ratio is CAND / BASE: below 1, CAND is faster; a call at several shapes also has their geometric mean. What should
be the same and is not (machine, versions, settings, clocks, cache policy, shapes) is named first. No ratio is made
from a figure that may not be quoted, or that was retracted. The runs were not interleaved: where a few per cent
decide, use `kdaprof ab`.

exit codes:
  0  GO: each ratio lies within 1 + threshold, interval and all
  3  NO-GO: a regression: a ratio lies beyond 1 + threshold, interval and all
  4  inconclusive: an interval holds 1 + threshold, CAND has no quotable figure where BASE has one, there
     are fewer than 5 rounds, or nothing can be compared at all
  1  a run cannot be read · 2  usage"""


def build_parser() -> argparse.ArgumentParser:
    """The flags of `compare`."""
    parser = VerbParser(
        "compare",
        description="Compare two stored runs, recomputed from their samples. Nothing is measured.",
        epilog=EXAMPLES,
    )
    parser.add_argument("base", type=Path, metavar="BASE", help="the run that CAND is measured against")
    parser.add_argument("cand", type=Path, metavar="CAND", help="the run in question")
    parser.add_argument(
        "--threshold", type=float, default=0.05, metavar="X", help="slower by more is a regression (default 0.05)"
    )
    parser.add_argument("--fact", default="wall_ns", metavar="NAMES", help="figures, by comma (default wall_ns)")
    parser.add_argument("--json", action="store_true", help="print the document, alone on stdout")
    add_store_flag(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Compare and print; returns the exit code that the decision has."""
    args = build_parser().parse_args(argv)
    if not 0 <= args.threshold < 100:
        raise UsageError(f"--threshold {args.threshold:g}: a share such as 0.05 is wanted, 0 or more")
    store = store_of(args)

    from kdaprof.analysis.compare import SERIES, Side, compare_runs

    facts = tuple(dict.fromkeys(part.strip() for part in args.fact.split(",") if part.strip()))
    unknown = [name for name in facts if name not in SERIES]
    if unknown or not facts:
        raise UsageError(f"--fact {args.fact!r}: a ratio can be made of {', '.join(SERIES)}")
    sides = [(path, *load_standing(path, store)) for path in (args.base, args.cand)]
    base, cand = (Side(raw=raw, results=results) for _, raw, results in sides)
    found = compare_runs(base, cand, facts=facts, threshold=args.threshold)
    if args.json:
        from kdaprof import __version__
        from kdaprof.cli.console import print_json
        from kdaprof.report.compare import compare_document

        (one, raw, _), (other, raw2, _) = sides
        named = ((raw.record, one), (raw2.record, other))
        command = ["kdaprof", "compare", *argv]
        print_json(compare_document(found, named, tool=f"kdaprof {__version__}", command=command))
    else:
        from kdaprof.cli.console import out_console
        from kdaprof.report.compare import show_comparison

        show_comparison(out_console(), found)
    return {"go": Exit.OK, "no-go": Exit.REGRESSION, "not-established": Exit.INCONCLUSIVE}[found.decision]

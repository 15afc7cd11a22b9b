"""`kdaprof cite`: one sentence for a figure, or the rule that refuses it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kdaprof.cli.parser import VerbParser
from kdaprof.cli.standing import add_store_flag, load_standing, store_of
from kdaprof.errors import Exit, UsageError

EXAMPLES = """\
examples:
  kdaprof cite kda/fused/plain/eager/fwd/B10-T512-H12-K64-V64-C16/float32/wall_ns reports/h200-kda
      a figure of a run: cell id, a slash, the fact
  kdaprof cite reports/h200-kda/kda/fused/plain/eager/fwd/B10-T512-H12-K64-V64-C16/float32/wall_ns
      the same in one word
  kdaprof cite RUN-ID/kda/fused/plain/eager/fwd/B10-T512-H12-K64-V64-C16/float32/wall_ns
      by fact id: the run is looked for in runs/, reports/ and the history

The figure is derived from the run's samples again, and looked up among what was retracted.

exit codes:
  0  the sentence stands on stdout, alone
  3  the figure may not be cited: a rule refuses it, or it was retracted; the reason stands on stderr
  4  the figure is missing, and why
  1  the run cannot be read · 2  usage, no such figure (the nearest are named)"""


def build_parser() -> argparse.ArgumentParser:
    """The flags of `cite`."""
    parser = VerbParser(
        "cite",
        description="Print one sentence with a figure, its interval, its conditions and its run, or say which rule "
        "refuses it.",
        epilog=EXAMPLES,
    )
    parser.add_argument("fact", metavar="FACT", help="a fact id, or with RUN the part of it behind the run's id")
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="the run directory that FACT is of")
    add_store_flag(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the sentence or the refusal; returns the exit code."""
    args = build_parser().parse_args(argv)
    store = store_of(args)

    from kdaprof.cli.console import err_console, out_console
    from kdaprof.cli.targets import find_target
    from kdaprof.report.cite import citation, refusal
    from kdaprof.runs.history import read_history

    target = find_target(args.fact, read_history(store), args.run)
    if target.directory is None:
        raise UsageError(f"{target.run} is recorded but not here; give its directory: kdaprof cite FACT RUN")
    cell_id, _, name = target.place.rpartition("/")
    raw, results = load_standing(target.directory, store)
    record = next((cell for cell in raw.record.cells if cell.id == cell_id), None)
    result = next((cell for cell in results.cells if cell.id == cell_id), None)
    if record is None or result is None or name not in result.facts:
        raise UsageError(f"{target.id}: names no figure; give the cell's id, a slash and the fact, such as wall_ns")
    fact = result.facts[name]
    if fact.quotable:
        out_console().print(citation(raw.record, record, result, name), soft_wrap=True)
        return Exit.OK
    err_console().print(f"kdaprof: {refusal(target.id, fact)}", soft_wrap=True)
    return Exit.INCONCLUSIVE if fact.value is None else Exit.REGRESSION

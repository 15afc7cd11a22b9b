"""`kdaprof retract`: withdraw a run or a figure, and with it all that was made from it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kdaprof.cli.parser import VerbParser
from kdaprof.cli.standing import add_store_flag, store_of
from kdaprof.errors import Exit, UsageError

EXAMPLES = """\
examples:
  kdaprof retract RUN --why "another job was on the card"
      the whole run: every figure of it, and every figure made from one
  kdaprof retract RUN --why "read at step 0" --superseded-by WARM_RUN
      with the run that stands in its place
  kdaprof retract RUN/kda/fused/plain/eager/fwd/B10-T512-H12-K64-V64-C16/float32/wall_ns --why "…"
      one figure; without /wall_ns the cell; RUN/ceilings/copy a ceiling
  kdaprof retract --list
      what was retracted, when and why

RUN is a run's directory or its id. Nothing is deleted: an entry is a file of its own in the store, and
reports, history, comparisons and citations show what it reaches struck out, with the reason. For a team,
let [tool.kdaprof] store in pyproject.toml name a folder that is committed.

exit codes: 0 ok · 1 the store cannot be read or written · 2 usage, no such run or figure"""


def build_parser() -> argparse.ArgumentParser:
    """The flags of `retract`."""
    parser = VerbParser(
        "retract",
        description="Withdraw a run, a cell or a figure. Whatever has it among its sources, in this run or another, "
        "falls with it.",
        epilog=EXAMPLES,
    )
    parser.add_argument("target", nargs="?", metavar="RUN|FACT", help="a run's directory or id, or an id below it")
    parser.add_argument("--why", metavar="TEXT", help="the reason, as readers will see it beside the figure")
    parser.add_argument("--superseded-by", metavar="RUN", help="the run that stands in its place")
    parser.add_argument("--list", action="store_true", help="show all entries instead")
    add_store_flag(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Add one entry to the store, and say what falls with it; returns the exit code."""
    args = build_parser().parse_args(argv)
    store = store_of(args)
    if args.list:
        if args.target or args.why or args.superseded_by:
            raise UsageError("retract --list takes nothing but --store")
        return _list(store)
    if not args.target:
        raise UsageError("retract needs RUN or FACT; see `kdaprof retract --help`")
    why = " ".join((args.why or "").split())
    if not why:
        raise UsageError("retract needs --why: the reason stands beside the figure wherever it is shown")
    return _retract(store, args.target, why, args.superseded_by)


def _retract(store: Path, text: str, why: str, successor: str | None) -> Exit:
    import time

    from kdaprof import __version__
    from kdaprof.cli.targets import find_run, find_target
    from kdaprof.runs.history import read_history, record_run, sources_of
    from kdaprof.runs.retractions import Retraction, add_retraction, fallen, read_retractions

    history = read_history(store)
    target = find_target(text, history)
    instead = find_run(successor, history).run if successor else None
    if instead == target.run:
        raise UsageError(f"--superseded-by {successor}: is the run that is retracted")
    if target.directory is not None and record_run(store, target.directory):
        history = read_history(store)
    sources = sources_of(history)
    before = fallen(read_retractions(store), sources)
    entry = Retraction(
        target=target.id,
        why=why,
        retracted_unix_ns=time.time_ns(),
        superseded_by=instead,
        tool=f"kdaprof {__version__}",
    )
    path = add_retraction(store, entry)
    after = fallen(read_retractions(store), sources)
    falls = [place for place in after if place not in before]
    elsewhere = [place for place in falls if not place.startswith(f"{target.run}/")]
    falls_text = "1 figure no longer stands" if len(falls) == 1 else f"{len(falls)} figures no longer stand"
    _say(f"retracted {target.id}: {why}", f"{falls_text}, {len(elsewhere)} in other runs")
    _say(*(f"  {place}" for place in elsewhere), f"entry {path}")
    return Exit.OK


def _list(store: Path) -> Exit:
    from kdaprof.runs.retractions import read_retractions

    entries = read_retractions(store)
    _say(*(line for entry in entries for line in (entry.target, f"  {entry.text}")))
    if not entries:
        _say(f"{store}: nothing was retracted")
    return Exit.OK


def _say(*lines: str) -> None:
    from kdaprof.cli.console import out_console

    console = out_console()
    for line in lines:
        console.print(line, soft_wrap=True)

"""`kdaprof doctor`: is this machine fit to measure on, and what is known about its card and versions?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kdaprof.cli.parser import VerbParser, check_wait
from kdaprof.errors import Exit, UsageError

if TYPE_CHECKING:
    from kdaprof.doctor.gather import Alone

EXAMPLES = """\
examples:
  kdaprof doctor
      what is installed and works together, which paths can run and why not, known faults, quiet or not
  kdaprof doctor --measure
      also measure the card's ceilings (seconds) and hold them against its memory clock and bus
  kdaprof doctor --run reports/h200-kda --json
      the same with the ceilings of a stored run, as one JSON document (schema kdaprof.doctor/1)
  kdaprof doctor --declare bandwidth=4.8TB/s --declare sms=132
      can figures that somebody declared be those of the card here?
  kdaprof doctor --card 'RTX 5060 Ti' --declare sms=170 --declare bandwidth=1792GB/s
      can they be those of a card that is not here? if not, whose are they?

Nothing is changed: settings are read, never set. It works without torch, without a driver, without a card.

exit codes: 0 fit · 1 the run cannot be read · 2 usage · 5 unfit: a line marked FAIL says what to do; or another run
measures on the card (--measure)"""


def build_parser() -> argparse.ArgumentParser:
    """The flags of `doctor`."""
    parser = VerbParser(
        "doctor",
        description="Is this machine fit to measure on? Looks at the card and who else uses it, at what is installed, "
        "at the paths and why one cannot run, and at known faults of this card with these versions, sources named.",
        epilog=EXAMPLES,
    )
    ceilings = parser.add_mutually_exclusive_group()
    ceilings.add_argument("--measure", action="store_true", help="measure the card's ceilings now")
    ceilings.add_argument("--run", type=Path, metavar="RUN", help="take the ceilings that a stored run measured")
    parser.add_argument("--wait", type=float, default=0.0, metavar="S", help="for a card that another run measures on")
    figures = "check a declared figure: sms, bandwidth, memory, capability; may be repeated"
    parser.add_argument("--declare", action="append", default=[], metavar="NAME=VALUE", help=figures)
    parser.add_argument("--card", metavar="NAME", help="whose figures are declared (default: the card here)")
    parser.add_argument("--quick", action="store_true", help="do not watch the card for a second first")
    parser.add_argument("--json", action="store_true", help="print the document, alone on stdout")
    return parser


def _alone(command: Sequence[str], wait_s: float) -> Alone:
    from functools import partial

    from kdaprof.cli.alone import alone_on

    return partial(alone_on, command=" ".join(command), wait_s=wait_s)


def run(argv: Sequence[str]) -> int:
    """Examine, print; 5 when a check fails."""
    args = build_parser().parse_args(argv)
    if args.measure and args.quick:
        raise UsageError("--measure and --quick: a ceiling is not measured in a hurry")
    check_wait(args.wait)

    from kdaprof.doctor.declared import parse_declared
    from kdaprof.doctor.examine import examine
    from kdaprof.doctor.gather import gather
    from kdaprof.doctor.stored import with_stored
    from kdaprof.runs.checkup import checkup_document, unfit
    from kdaprof.runs.store import read_run

    declared = parse_declared(args.card, args.declare)
    command = ("kdaprof", "doctor", *argv)
    stored = None if args.run is None else read_run(args.run).record
    machine = gather(argv=command, watch=not args.quick, measure=_alone(command, args.wait) if args.measure else None)
    if stored is not None:
        machine = with_stored(machine, stored)
    checks = examine(machine, declared)
    if args.json:
        from kdaprof.cli.console import print_json

        print_json(checkup_document(checks, command=command))
    else:
        from kdaprof.cli.console import out_console
        from kdaprof.report.doctor import show_checkup

        show_checkup(out_console(), checks)
    return Exit.UNFIT if unfit(checks) else Exit.OK

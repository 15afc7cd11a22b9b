"""`kdaprof stacks`: what the host does while the GPU waits, by layer and by phase (py-spy)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kdaprof.cli.parser import VerbParser
from kdaprof.errors import UsageError

EXAMPLES = """\
examples:
  kdaprof stacks -- python train.py
      Python stacks of a command, 100 a second, without stopping it; its exit code passes through
  kdaprof stacks --native --duration 20 -- python train.py
      20 s of C++ frames too: dispatcher, ATen, allocator, launches. Stops the process for each sample: for untimed runs
  kdaprof stacks --pid 4321 --duration 30
      beside a running process; under torchrun give a worker's id, not torchrun's
  kdaprof stacks --steps runs/train -- python train.py
      by phase: runs/train is the run that train.py's StepProfiler writes
  kdaprof stacks --read runs/20261202T015500Z-stacks-1f3a --steps runs/train
      a stored recording again, joined with a run; nothing is recorded. A file is a trace of
      `py-spy record --format chrometrace`, from any machine
  kdaprof probe --path tensor --stacks
      the op itself, in a process of its own after the timed part

what it writes: stacks.json (schema kdaprof.stacks/1), stacks.svg (flame graph), stacks.speedscope.json (drop it on
https://www.speedscope.app), stacks.chrometrace.json.gz, stacks_threads.parquet,
stacks_holds.parquet (--native), report.md

Running and waiting are told apart by the kernel's counters of each thread, not by the stacks. Around a command the
summary goes to stderr; with --json the command's own stdout does, too.

exit codes: 0 ok · 1 py-spy failed · 2 usage · 4 most samples failed · 5 no right to look at the process, or no py-spy ·
130 interrupted before --duration; around a command: the command's own"""

NATIVE_MOST_HZ = 100
"""py-spy with native stacks at 200 Hz more than doubles the run, and at 500 Hz does not end."""


def build_parser() -> argparse.ArgumentParser:
    """The flags of `stacks`."""
    parser = VerbParser(
        "stacks",
        description="Sample the stacks of a Python process with py-spy: host time by layer (Python, autograd, "
        "dispatcher, ATen, allocator, launches, synchronisation, Triton's launcher) and by phase of the step.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--pid", type=int, metavar="N", help="a running Python process, instead of a command")
    parser.add_argument("--duration", type=float, metavar="S", help="stop sampling after S seconds (default: its end)")
    parser.add_argument("--rate", type=int, default=100, metavar="HZ", help="samples a second (default %(default)s)")
    parser.add_argument("--native", action="store_true", help="C and C++ frames too; stops the process for each sample")
    parser.add_argument("--steps", type=Path, metavar="RUN", help="join with the phases of this run of the same time")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default runs/<UTC>-stacks")
    parser.add_argument("--force", action="store_true", help="replace what is already in DIR")
    parser.add_argument("--anonymous", action="store_true", help="leave out host name, user, home and paths")
    parser.add_argument("--read", type=Path, metavar="PATH", help="show a stored recording or a trace of py-spy")
    parser.add_argument("--json", action="store_true", help="print the document, alone on stdout")
    parser.add_argument("command", nargs="*", metavar="-- COMMAND", help="run this, and sample it until it ends")
    return parser


def run(argv: Sequence[str]) -> int:
    """Record, derive, write, print; returns the exit code."""
    place = list(argv).index("--") if "--" in argv else len(argv)
    command = tuple(argv[place + 1 :])
    args = build_parser().parse_args(argv[:place])
    _check(args, command)
    if args.read is not None:
        from kdaprof.cli.stacks_show import show_stored

        return show_stored(args.read, args.steps, command=("kdaprof", "stacks", *argv), as_json=args.json)
    from kdaprof.cli.stacks_run import record_and_show
    from kdaprof.instruments.stacks import StacksPlan

    plan = StacksPlan(
        rate_hz=args.rate,
        native=args.native,
        command=("kdaprof", "stacks", *argv),
        duration_s=args.duration,
        pid=args.pid,
        argv=command,
    )
    return record_and_show(
        plan, out=args.out, force=args.force, steps=args.steps, as_json=args.json, anonymous=args.anonymous
    )


def _check(args: argparse.Namespace, command: Sequence[str]) -> None:
    if args.command:
        raise UsageError(f"{args.command[0]!r}: a command stands behind `--`, as in `kdaprof stacks -- python x.py`")
    if args.read is not None:
        if command or args.pid is not None or args.duration is not None or args.out is not None or args.anonymous:
            raise UsageError("--read shows what is stored: it takes no command, --pid, --duration, --out, --anonymous")
        if args.steps is not None and args.read.is_file():
            raise UsageError("--steps: a trace alone does not say when it was recorded; give a recording's directory")
        return
    if (args.pid is None) == (not command):
        raise UsageError("give one of --pid N and a command: `kdaprof stacks -- python train.py`")
    most = NATIVE_MOST_HZ if args.native else 1000
    if not 1 <= args.rate <= most:
        why = "; native stacks at 200 Hz more than double the run" if args.native else ""
        raise UsageError(f"--rate {args.rate}: between 1 and {most}{why}")
    if args.duration is not None and not 0 < args.duration <= 86400:
        raise UsageError(f"--duration {args.duration:g}: above 0, and at most a day, in seconds")

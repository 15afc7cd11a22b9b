"""`kdaprof gpu-util`: sample the GPU beside a running job, or around a command."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kdaprof.cli.parser import VerbParser
from kdaprof.errors import UsageError

EXAMPLES = """\
examples:
  kdaprof gpu-util --hz 2
      watch every GPU until Ctrl-C; then mean, percentiles, histogram, the longest idle stretch, energy
  kdaprof gpu-util --hz 2 -- python train.py --epochs 3
      the same around a command; its exit code passes through, and it gets the signals that kdaprof gets
  kdaprof gpu-util --hz 10 --duration 60 --gpus 0,1 --out runs/watch
      one minute of two cards, into a directory of your choice
  kdaprof gpu-util --pid 4321
      until that process ends; the per-process figures are those of it and its children
  kdaprof gpu-util --read runs/watch --steps runs/20261202T015500Z-kda-fused-1f3a
      join a stored watch with what a run did at the same time: step by step, phase by phase

what it writes: gpu-util.json (schema kdaprof.gpu-util/1), gpu_util.parquet, gpu_util.csv, gpu_util.svg, report.md

what utilisation means: the share of time in which at least one kernel was running, averaged by the driver over
1/6 to 1 s; not how much of the card that kernel used. SM and tensor activity (GPM, Hopper and later) say that.

On a terminal a live line shows what each card does; around a command it is a line of its own every 10 s, since the
cursor is the command's. There the summary goes to stderr, and a second Ctrl-C kills the command. With --json there is
no live line, and the command's own stdout goes to stderr.

exit codes: 0 ok (Ctrl-C without --duration too) · 1 a GPU was lost, or the disk is full · 2 usage · 5 no NVML or no
GPU, without a command · 130 interrupted before --duration; around a command: the command's own"""


def build_parser() -> argparse.ArgumentParser:
    """The flags of `gpu-util`."""
    parser = VerbParser(
        "gpu-util",
        description="Sample utilisation, memory, clocks, power, throttle reasons, processes and, where the card has "
        "them, SM, tensor, DRAM, PCIe and NVLink activity. Is the GPU idle while you train, and for how long?",
        epilog=EXAMPLES,
    )
    parser.add_argument("--hz", type=float, default=2.0, help="samples a second, up to 100 (default %(default)s)")
    parser.add_argument("--gpus", metavar="A,B", help="numbers as in nvidia-smi, UUIDs or PCI ids (default: as CUDA)")
    parser.add_argument("--duration", type=float, metavar="S", help="stop after S seconds (default: at Ctrl-C)")
    parser.add_argument("--pid", type=int, metavar="N", help="end when that process does; its own figures only")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default runs/<UTC>-gpu-util")
    parser.add_argument("--force", action="store_true", help="replace a watch that is already in DIR")
    parser.add_argument("--anonymous", action="store_true", help="leave out host name, user, home and paths")
    parser.add_argument("--steps", type=Path, metavar="RUN", help="join with what this run did at the same time")
    parser.add_argument("--read", type=Path, metavar="DIR", help="show a stored watch again; nothing is sampled")
    parser.add_argument("--json", action="store_true", help="print the document, alone on stdout")
    parser.add_argument("command", nargs="*", metavar="-- COMMAND", help="run this, and watch until it ends")
    return parser


def run(argv: Sequence[str]) -> int:
    """Watch or read, print, write; returns the exit code."""
    own, command = _split(argv)
    args = build_parser().parse_args(own)
    if args.command:
        raise UsageError(f"{args.command[0]!r}: a command stands behind `--`, as in `kdaprof gpu-util -- python x.py`")
    _check(args, command)
    if args.read is not None:
        from kdaprof.cli.gpu_util_show import show_stored

        return show_stored(args.read, args.steps, as_json=args.json)
    from kdaprof.cli.gpu_util_run import Wanted, watch_and_show

    wanted = Wanted(
        hz=args.hz,
        gpus=args.gpus,
        duration_s=args.duration,
        pid=args.pid,
        out=args.out,
        force=args.force,
        anonymous=args.anonymous,
        steps=args.steps,
        as_json=args.json,
        argv=tuple(command),
        command=("kdaprof", "gpu-util", *argv),
    )
    return watch_and_show(wanted)


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is ours and what stands behind `--`."""
    if "--" not in argv:
        return list(argv), []
    place = list(argv).index("--")
    if place + 1 == len(argv):
        raise UsageError("no command behind `--`: write `kdaprof gpu-util -- python train.py`")
    return list(argv[:place]), list(argv[place + 1 :])


def _check(args: argparse.Namespace, command: Sequence[str]) -> None:
    """Faults of the flags, before anything is opened."""
    if not 0 < args.hz <= 100:
        raise UsageError(f"--hz {args.hz:g}: above 0 and at most 100")
    if args.duration is not None and not 0 < args.duration <= 31 * 86400:
        raise UsageError(f"--duration {args.duration:g}: above 0, and at most 31 days, in seconds")
    if args.pid is not None and command:
        raise UsageError("--pid and a command: give one of them")
    if args.read is not None and (command or args.pid is not None or args.duration is not None):
        raise UsageError("--read shows a stored watch: it takes no command, --pid or --duration")

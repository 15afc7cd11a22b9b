"""What the probes share: a verb with the script's own flags first and the caller's behind them."""

from __future__ import annotations

import sys

from kdaprof.cli.main import main


def probe(*flags: str) -> None:
    """Run the probe and leave with its exit code; what the caller typed comes last and wins."""
    sys.exit(main(["probe", *flags, *sys.argv[1:]]))


def sweep(over: str, *flags: str) -> None:
    """Run the sweep over these sizes, or over those that the caller names."""
    typed = sys.argv[1:]
    own = () if any(flag.startswith("--over") for flag in typed) else ("--over", over)
    sys.exit(main(["sweep", *own, *flags, *typed]))

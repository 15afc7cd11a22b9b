"""What the probes share: `kdaprof probe` with the script's own flags first and the caller's behind them."""

from __future__ import annotations

import sys

from kdaprof.cli.main import main


def probe(*flags: str) -> None:
    """Run the probe and leave with its exit code; what the caller typed comes last and wins."""
    sys.exit(main(["probe", *flags, *sys.argv[1:]]))

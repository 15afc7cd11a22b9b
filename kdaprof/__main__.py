"""`python -m kdaprof`: the same as the console script."""

from __future__ import annotations

from kdaprof.cli.main import entry

if __name__ == "__main__":
    entry()

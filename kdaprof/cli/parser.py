"""An argument parser whose faults are one line, as all other errors are."""

from __future__ import annotations

import argparse
import textwrap
from typing import NoReturn

from kdaprof.errors import UsageError


class VerbParser(argparse.ArgumentParser):
    """The parser of `kdaprof VERB`: keeps line breaks in examples, takes no abbreviated flags.

    Raises UsageError on bad arguments; `--help` prints and exits 0 as argparse does.
    """

    def __init__(self, verb: str, *, description: str, epilog: str) -> None:
        super().__init__(
            prog=f"kdaprof {verb}",
            description=textwrap.fill(description, 88),
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """One line instead of the whole usage."""
        raise UsageError(f"{message}; see `{self.prog} --help`")


def check_wait(seconds: float) -> None:
    """`--wait S` of the verbs that lock a card. Errors: UsageError, for what is no number of seconds, too."""
    if not 0 <= seconds <= 86400:
        raise UsageError(f"--wait {seconds:g}: between 0 and 86400 seconds")

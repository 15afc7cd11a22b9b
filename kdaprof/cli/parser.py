"""An argument parser whose faults are one line, as all other errors are."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
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


def check_ours(flag: str, file: Path, mark: str, what: str) -> None:
    """A file that a verb replaces unasked: nothing is there yet, or one of ours, with `mark`. Errors: UsageError."""
    from kdaprof.runs.atomic import may_replace

    if file.is_dir():
        raise UsageError(f"{flag} {file}: is a directory; name a file in it")
    if not may_replace(file, mark):
        raise UsageError(f"{flag} {file}: exists and is no {what} of kdaprof; choose another")

"""The one exception root: every error is one line that says what, where and what to do, and has an exit code."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every verb (a wrapped command's own code passes through instead)."""

    OK = 0
    ERROR = 1
    USAGE = 2
    REGRESSION = 3
    INCONCLUSIVE = 4
    UNFIT = 5
    TIMEOUT = 124
    INTERRUPTED = 130


class KdaprofError(Exception):
    """Something kdaprof can name. `str(error)` is one line; `exit_code` is what the command line returns."""

    exit_code: Exit = Exit.ERROR


class UsageError(KdaprofError):
    """The caller asked for something that has no meaning: a bad flag, shape, dtype, path or target."""

    exit_code = Exit.USAGE


class BadFileError(KdaprofError):
    """A file could not be read: truncated, garbage, of another schema, or newer than this kdaprof."""

    exit_code = Exit.ERROR


class UnavailableError(KdaprofError):
    """What was asked for cannot run here, with the reason: no device, missing package, refused by the gate."""

    exit_code = Exit.UNFIT


class InterruptedRunError(KdaprofError):
    """The user stopped the run; what was measured until then is on disk."""

    exit_code = Exit.INTERRUPTED


class TimeLimitError(KdaprofError):
    """A bound on time was reached; what was measured until then is on disk."""

    exit_code = Exit.TIMEOUT

"""The command line: finds the verb, runs it, and turns every end into one line and an exit code.

A verb is a module with `build_parser()` and `run(argv) -> int`, imported only when it is called, so that `--help`
needs neither torch nor pandas.
"""

from __future__ import annotations

import difflib
import errno
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from kdaprof import __version__
from kdaprof.cli.ending import ask_again, at_last, forget_output, tell
from kdaprof.errors import Exit, KdaprofError, UsageError

TRACEBACK_VARIABLE = "KDAPROF_TRACEBACK"
# What a shell reports for a program that SIGPIPE ended, as `cat` does: the reader had enough.
_BROKEN_PIPE = 141
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class Verb:
    """A subcommand: the module that holds it, and one line for the overview."""

    module: str
    help: str


VERBS: dict[str, Verb] = {
    "probe": Verb("kdaprof.cli.probe", "measure the op: host or GPU, which path ran, what a CUDA Graph buys"),
    "report": Verb("kdaprof.cli.report", "show a stored run, recomputed from its samples; never measures"),
    "analyze": Verb("kdaprof.cli.analyze", "say why a trace is slow (torch.profiler, Nsight Systems)"),
    "gpu-util": Verb("kdaprof.cli.gpu_util", "sample the GPU beside a job, or around a command"),
    "stacks": Verb("kdaprof.cli.stacks", "what the host does in the gaps: Python stacks by layer (py-spy)"),
    "roofline": Verb("kdaprof.cli.roofline", "how far from the hardware: bytes, FLOPs, floors, ceilings"),
    "dispatch": Verb("kdaprof.cli.dispatch", "in which contexts the gate falls back, and why"),
    "sweep": Verb("kdaprof.cli.sweep", "measure a step over batch, sequence or iterations; fixed cost and slope"),
    "compare": Verb("kdaprof.cli.compare", "is one stored run faster than another? with intervals"),
    "ab": Verb("kdaprof.cli.ab", "is B faster than A? interleaved, under a contract"),
    "history": Verb("kdaprof.cli.history", "the figures of all runs by commit and machine"),
    "retract": Verb("kdaprof.cli.retract", "withdraw a run or a figure, and all that follows from it"),
    "cite": Verb("kdaprof.cli.cite", "one sentence for a figure, or the rule that refuses it"),
    "doctor": Verb("kdaprof.cli.doctor", "is this machine fit to measure on?"),
    "nsys": Verb("kdaprof.cli.nsys", "run a command under Nsight Systems, and analyse its report"),
    "ncu": Verb("kdaprof.cli.ncu", "run a command under Nsight Compute: bytes, occupancy and spills a kernel"),
}

_OVERVIEW = """\
usage: kdaprof VERB [options]

Where a training step's time goes: host dispatch or GPU. Which code path really ran, what
capturing the step into a CUDA Graph buys, and whether the number may be quoted.

verbs:
{verbs}

examples:
  kdaprof probe --path fused                 measure the fused path, prove that it ran
  kdaprof report runs/20261202T015500Z-kda   show a stored run again
  kdaprof report RUN --json > run.json       the same as one JSON document

`kdaprof VERB --help` says what a verb takes. `kdaprof --version` prints the version.
exit codes: 0 ok, 1 error, 2 usage, 3 regression or failed contract, 4 inconclusive, 5 unfit
environment, 124 time limit, 130 interrupted"""


def entry() -> None:
    """The console script: runs `main` on the process's arguments and exits with its code."""
    # A stream that was closed (`>&-`) is None; what is written there goes nowhere.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the process's life
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the process's life
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without µ shows a mark instead of a traceback
    code: int | None = None
    ask_again()
    at_last(lambda: code if code == Exit.INTERRUPTED else None)
    code = main(sys.argv[1:])
    sys.exit(code)


def main(argv: Sequence[str], verbs: Mapping[str, Verb] = VERBS) -> int:
    """Run one command line and return its exit code. Raises nothing but what argparse exits with for `--help`."""
    try:
        code = _dispatch(list(argv), verbs)
        sys.stdout.flush()
    except KdaprofError as error:
        return _end(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _end("interrupted", Exit.INTERRUPTED)
    except BrokenPipeError:
        forget_output()
        return _BROKEN_PIPE
    except Exception as error:
        return _unexpected(error)
    return code


def available(verbs: Mapping[str, Verb]) -> dict[str, Verb]:
    """The verbs whose module is there; importing none of them."""
    return {name: verb for name, verb in verbs.items() if find_spec(verb.module) is not None}


def overview(verbs: Mapping[str, Verb]) -> str:
    """What `kdaprof --help` prints."""
    width = max(map(len, verbs), default=0)
    return _OVERVIEW.format(verbs="\n".join(f"  {name:<{width}}  {verb.help}" for name, verb in verbs.items()))


def _dispatch(argv: list[str], verbs: Mapping[str, Verb]) -> int:
    known = available(verbs)
    if not argv or argv[0] in {"-h", "--help"}:
        (sys.stdout if argv else sys.stderr).write(overview(known) + "\n")
        return Exit.OK if argv else Exit.USAGE
    if argv[0] in {"-V", "--version"}:
        sys.stdout.write(f"kdaprof {__version__}\n")
        return Exit.OK
    name, rest = argv[0], argv[1:]
    verb = known.get(name)
    if verb is None:
        raise UsageError(_unknown(name, known))
    return int(import_module(verb.module).run(rest))


def _unknown(name: str, known: Mapping[str, Verb]) -> str:
    if name.startswith("-"):
        return f"unknown option {name}: options stand after the verb; `kdaprof --help` lists the verbs"
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean `kdaprof {near[0]}`?" if near else f"there are: {', '.join(known)}"
    return f"no verb {name!r}: {hint}"


def _end(text: str, code: Exit) -> int:
    if os.environ.get(TRACEBACK_VARIABLE):
        traceback.print_exc()
    tell(text)
    return int(code)


def _unexpected(error: Exception) -> int:
    # Files are written by kdaprof.runs.atomic, which names them; what is full without a name is where we print to.
    if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
        forget_output()
        return _end(f"cannot write the output ({error.strerror})", Exit.ERROR)
    told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if not os.environ.get(TRACEBACK_VARIABLE):
        told += f" (a fault in kdaprof: run with {TRACEBACK_VARIABLE}=1 for the traceback)"
    return _end(told, Exit.ERROR)

"""Nsight Compute: the command line that counts the kernels of our ranges, clocks left as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kdaprof.instruments.nsight.tool import Spawn, ToolFailedError, ended
from kdaprof.instruments.nvtx import DOMAIN
from kdaprof.runs.older import make_way
from kdaprof.timeline.ncu_csv import METRICS, NcuReport, NoKernelsError, read

CSV = "ncu.csv"
Cache = Literal["flush", "keep"]

# ncu writes numbers as the locale does; ours can be read, but C's are the least to get wrong.
ENVIRON = {"LC_ALL": "C.UTF-8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NcuPlan:
    """What to count of `command`, into `csv`.

    `ranges`: start/end ranges of `domain`, any of which selects a launch; start/end ranges hold for the whole process,
    so that a phase selects what autograd's thread launches too. `kernel`: a regular expression over kernel names
    instead, which needs no ranges. `cache`: flush before each pass (each kernel finds a cold L2) or keep.
    """

    command: tuple[str, ...]
    csv: Path
    ranges: tuple[str, ...] = ("fwd", "bwd", "fwdbwd")
    domain: str = DOMAIN
    kernel: str | None = None
    most: int | None = None
    cache: Cache = "flush"


def profile_line(ncu: str, plan: NcuPlan) -> tuple[str, ...]:
    """`ncu …`: NVTX filter, no clock control, child processes too, the raw page as CSV into a file."""
    line = [ncu, "--nvtx", "--target-processes=all", "--clock-control=none"]
    line.append(f"--cache-control={'all' if plan.cache == 'flush' else 'none'}")
    if plan.kernel is not None:
        line += ["--kernel-name-base=function", f"--kernel-name=regex:{plan.kernel}"]
    else:
        line += [word for name in plan.ranges for word in ("--nvtx-include", f"{plan.domain}@{name}")]
    if plan.most is not None:
        line.append(f"--launch-count={plan.most}")
    line += [f"--metrics={','.join(METRICS)}", "--csv", "--page=raw", f"--log-file={plan.csv}"]
    return (*line, *plan.command)


def record(
    ncu: str, plan: NcuPlan, spawn: Spawn, environ: Mapping[str, str], *, quiet_stdout: bool
) -> tuple[NcuReport, int]:
    """Run the command under ncu; what it counted, and the code it ended with.

    Raises CountersRefusedError, NoKernelsError, ToolFailedError when ncu left no CSV, TargetError where none can lie.
    """
    make_way(plan.csv)
    code = spawn(profile_line(ncu, plan), {**environ, **ENVIRON}, quiet_stdout=quiet_stdout)
    if not plan.csv.is_file():
        raise ToolFailedError(f"{ended('ncu', code)} and wrote no {plan.csv}: its own messages are above", code)
    try:
        return read(plan.csv), code
    except NoKernelsError as error:
        if code == 0:
            raise
        raise ToolFailedError(
            f"the command ended with exit code {code} before any launch was profiled: {error}", code
        ) from error


def ours(path: str, phases: Sequence[str], shape: str, chunk: int, dtype: str, seed: int) -> tuple[str, ...]:
    """The arguments of our own call of the op (`kdaprof.probe.once`), to follow a Python and `-m`."""
    return (
        "kdaprof.probe.once", path, f"--phases={','.join(phases)}", f"--shape={shape}", f"--chunk={chunk}",
        f"--dtype={dtype}", f"--seed={seed}",
    )  # fmt: skip

"""Nsight Systems: the command line that records what kdaprof can analyse, and what must have come out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kdaprof.instruments.nsight.tool import Spawn, ToolFailedError, ended, signal_of
from kdaprof.instruments.nvtx import DOMAIN
from kdaprof.runs.older import make_way
from kdaprof.runs.store import REPORT_FILE

REPORT, EXPORT, UNFINISHED = "report.nsys-rep", "report.sqlite", "report.qdstrm"
DERIVED = ("analysis.json", REPORT_FILE)
"""What the analysis of an export leaves beside it."""

# A capture range is recognised by registered names alone unless this is 0; torch.cuda.nvtx registers none.
ENVIRON = {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NsysPlan:
    """What to record of `command`, into `folder`.

    `capture`: name of the range of `domain` that the recording begins and ends with; None records all. `graph_nodes`:
    each node of a CUDA Graph as an event of its own, which slows replays; otherwise a replay is one event.
    """

    command: tuple[str, ...]
    folder: Path
    capture: str | None = None
    domain: str = DOMAIN
    graph_nodes: bool = True


def profile_line(nsys: str, plan: NsysPlan) -> tuple[str, ...]:
    """`nsys profile …`: CUDA and NVTX, no sampling of the host, the command's own exit code."""
    line = [
        nsys,
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        f"--cuda-graph-trace={'node' if plan.graph_nodes else 'graph'}",
        "--force-overwrite=true",
        f"--output={plan.folder / Path(REPORT).stem}",
    ]
    if plan.capture is not None:
        # Without the last two the range's end shuts the session down and ends the command with SIGTERM.
        line += [
            "--capture-range=nvtx",
            f"--nvtx-capture={plan.capture}@{plan.domain}",
            "--capture-range-end=stop",
            "--kill=none",
        ]
    return (*line, *plan.command)


def export_line(nsys: str, folder: Path) -> tuple[str, ...]:
    """`nsys export`: the report as the SQLite file that `kdaprof analyze` reads."""
    return (
        nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={folder / EXPORT}", str(folder / REPORT),
    )  # fmt: skip


def record(nsys: str, plan: NsysPlan, spawn: Spawn, environ: Mapping[str, str], *, quiet_stdout: bool) -> int:
    """Run the command under nsys and export its report to `plan.folder / EXPORT`; returns the command's exit code.

    Raises ToolFailedError when there is nothing to analyse, with the reason, and TargetError where none can lie.
    """
    make_way(*(plan.folder / name for name in (REPORT, EXPORT, UNFINISHED, *DERIVED)))
    with_ours = {**environ, **ENVIRON}
    code = spawn(profile_line(nsys, plan), with_ours, quiet_stdout=quiet_stdout)
    _require_report(plan, code)
    exported = spawn(export_line(nsys, plan.folder), with_ours, quiet_stdout=True)
    if exported != 0 or not _filled(plan.folder / EXPORT):
        raise ToolFailedError(
            f"{plan.folder / REPORT}: nsys export ended with {exported} and left no SQLite file; the report is whole: "
            f"try `nsys export --type sqlite {plan.folder / REPORT}` with the nsys that opens it",
            code,
        )
    return code


def _require_report(plan: NsysPlan, code: int) -> None:
    if _filled(plan.folder / REPORT):
        return
    how = "the command ended with exit code 0" if code == 0 else ended("nsys", code)
    if _filled(plan.folder / UNFINISHED):
        raise ToolFailedError(
            f"{plan.folder / UNFINISHED}: nsys recorded but could not import it (its QdstrmImporter is missing or does "
            "not match): install nsys whole, or import the file with `QdstrmImporter -i` of the same version",
            code,
        )
    if signal_of(code) is not None:
        raise ToolFailedError(
            f"nsys made no report in {plan.folder} and {how}, before it wrote one: record again, or less of it "
            "with --capture",
            code,
        )
    if plan.capture is not None:
        raise ToolFailedError(
            f"nsys made no report in {plan.folder} and {how}: did range {plan.capture!r} of domain {plan.domain!r} "
            "ever begin? leave --capture out to record all, or see `kdaprof nsys --help` for the names of ranges",
            code,
        )
    raise ToolFailedError(
        f"nsys made no report in {plan.folder} and {how}: its own messages are above; "
        "often the folder is full, or the command could not be started",
        code,
    )


def _filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0

"""report.md: the whole run on one page, verdict first, for a code host and for a plain reader alike."""

from __future__ import annotations

from collections.abc import Callable

from kdaprof.analysis.step.sweep import sweep_of
from kdaprof.analysis.verdict import sentence
from kdaprof.report.gfm import plain
from kdaprof.report.machine import ceilings, conditions, environment, overhead
from kdaprof.report.pairs import cells_of, naming, pairs_of
from kdaprof.report.peers import peers
from kdaprof.report.proof import evidence, findings, refusals
from kdaprof.report.scene import Scene
from kdaprof.report.sections import figures, from_eager_to_floor, idle, instruments, more, spread, stages, taken
from kdaprof.report.step import by_phase, levers_section, modes
from kdaprof.report.step_cold import cold_section
from kdaprof.report.step_memory import memory_section
from kdaprof.report.sweep import sweep_lines, sweep_title
from kdaprof.report.trouble import troubles
from kdaprof.report.units import utc
from kdaprof.runs.record import RunRecord
from kdaprof.runs.results import RunResults

Section = Callable[[Scene], list[str]]

# What a reader needs first stands first; each section gives its lines, or none when it has nothing to say.
SECTIONS: tuple[tuple[str, Section], ...] = (
    ("Conditions", conditions),
    ("Figures", figures),
    ("Eager → graph → busy → floor", from_eager_to_floor),
    ("The step by phase", by_phase),
    ("The step in each mode", modes),
    ("Levers", levers_section),
    ("Cold and warm", cold_section),
    ("The step's memory", memory_section),
    ("Findings", findings),
    ("Where the GPU idles", idle),
    ("Stages", stages),
    ("Which path ran", evidence),
    ("Peers", peers),
    ("Instruments against each other", instruments),
    ("Refused figures", refusals),
    ("More figures", more),
    ("Spread", spread),
    ("Ceilings of this card", ceilings),
    ("What measuring costs", overhead),
    ("How each figure was taken", taken),
    ("Environment", environment),
)

FOLDED = frozenset(
    {
        "Cold and warm",
        "Where the GPU idles",
        "Stages",
        "Which path ran",
        "Instruments against each other",
        "More figures",
        "Spread",
        "Ceilings of this card",
        "What measuring costs",
        "How each figure was taken",
    }
)
"""Of a sweep: its sizes are alike, so that these are long, and are read when a line looks odd."""


def render(record: RunRecord, results: RunResults) -> str:
    """Markdown (GitHub's dialect) of one run, from its record and its derived results alone: same input, same text."""
    cells = cells_of(record, results)
    scene = Scene(record, results, cells, pairs_of(cells), naming(cells))
    sweep = sweep_of(record, results)
    lines = [f"# {title(scene)}", "", *opening(scene)]
    lines += ["", f"## {sweep_title(sweep)}", "", *sweep_lines(sweep)] if sweep is not None else []
    lines += ["", "## Verdict", "", *verdict(scene)]
    for heading, section in SECTIONS:
        body = section(scene)
        if body:
            folds = sweep is not None and heading in FOLDED
            lines += ["", f"## {heading}", "", *(_folded(heading, body) if folds else body)]
    return "\n".join(lines) + "\n"


def _folded(heading: str, body: list[str]) -> list[str]:
    return [f"<details><summary>{heading}</summary>", "", *body, "", "</details>"]


def title(scene: Scene) -> str:
    """`kda: fused, tensor on NVIDIA H200`."""
    workloads = ", ".join(dict.fromkeys(cell.key.workload for cell in scene.cells))
    paths = ", ".join(dict.fromkeys(cell.key.path for cell in scene.cells))
    gpu = scene.record.environment.gpu
    return plain(
        f"{workloads or 'empty run'}: {paths or 'no cells'} on {gpu.name if gpu else 'a machine without a GPU'}"
    )


def opening(scene: Scene) -> list[str]:
    """What was run and when, and whatever keeps the run from being whole."""
    record = scene.record
    seconds = (record.ended_unix_ns - record.started_unix_ns) / 1e9 if record.ended_unix_ns else None
    took = f", took {seconds:.0f} s" if seconds is not None else ""
    lines = [
        f"{plain(scene.naming.common)}  " if scene.naming.common else "",
        f"run `{record.run}` · {utc(record.started_unix_ns)}{took} · {plain(record.tool)}",
    ]
    lines = [line for line in lines if line]
    if not record.complete:
        done = sum(cell.record.status == "ok" for cell in scene.cells)
        lines += ["", f"> **Partial run:** it ended before its plan did; {done} of {len(scene.cells)} cells are whole."]
    for trouble in troubles(scene):
        lines += ["", f"> **{plain(trouble.cells)}: {trouble.status}.** {plain(trouble.why)}"]
    for note in dict.fromkeys(record.notes):
        lines += ["", f"> {plain(note)}"]
    return lines


def verdict(scene: Scene) -> list[str]:
    """The verdict's sentences, a line each, with the path that a line is about in bold."""
    paths = {cell.key.path for cell in scene.cells}
    lines = []
    for text in sentence(scene.record, scene.results):
        head, colon, rest = text.partition(":")
        lines.append(f"- **{plain(head)}:** {plain(rest)}" if colon and head in paths else f"- {plain(text)}")
    return lines or ["Nothing was measured."]

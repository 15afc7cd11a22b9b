"""The README's picture: where a call's time goes on each path. `python probes/picture.py RUN OUT.svg`."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from kdaprof.analysis.recompute import recompute
from kdaprof.errors import KdaprofError
from kdaprof.runs.atomic import write_text
from kdaprof.runs.facts import Fact
from kdaprof.runs.record import CellRecord
from kdaprof.runs.results import CellResult
from kdaprof.runs.store import read_run
from kdaprof.runs.units import format_fraction, format_ns

PARTS = (
    ("gpu_busy_ns", "GPU busy", "#2f9e44"),
    ("idle_dispatch_ns", "dispatch", "#e03131"),
    ("idle_host_other_ns", "Python", "#f76707"),
    ("idle_launch_call_ns", "launch calls", "#fab005"),
    ("idle_launch_latency_ns", "launch latency", "#868e96"),
    ("idle_drain_ns", "drain", "#ced4da"),
)
WIDTH, BAR, LEFT, ROW, TOP = 900, 470, 150, 46, 74


def number(fact: Fact | None) -> float | None:
    """A figure that may be shown as it is; None for a missing or a refused one."""
    return float(fact.value) if fact is not None and fact.value is not None and fact.quotable else None


def bar(cell: CellRecord, result: CellResult, graph: CellResult | None, y: int) -> list[str]:
    """One cell's row: its name, the call cut into parts, wall and what a graph makes of it."""
    wall = number(result.facts.get("wall_ns"))
    name = escape(f"{cell.key.path} {cell.key.phase}")
    out = [f'<text x="{LEFT - 12}" y="{y + 20}" text-anchor="end" font-weight="600">{name}</text>']
    if wall is None:
        rules = ", ".join(sorted({reason.rule for reason in result.facts["wall_ns"].reasons}))
        return [*out, f'<text x="{LEFT}" y="{y + 20}" class="dim">refused: {escape(rules or "not measured")}</text>']
    x = float(LEFT)
    for fact, label, colour in PARTS:
        share = (number(result.facts.get(fact)) or 0.0) / wall
        title = f"{label}: {format_fraction(share)} of the call"
        out.append(f'<rect x="{x:.1f}" y="{y}" width="{share * BAR:.1f}" height="30" fill="{colour}">')
        out.append(f"<title>{escape(title)}</title></rect>")
        x += share * BAR
    replay = number(graph.facts.get("wall_ns")) if graph else None
    text = format_ns(wall) + (f" → graph {format_ns(replay)}" if replay else "")
    return [*out, f'<text x="{LEFT + BAR + 14}" y="{y + 20}">{escape(text)}</text>']


def picture(run: Path) -> str:
    """The chart of a stored run as SVG text: one row an eager cell that was measured."""
    record, results = read_run(run).record, recompute(run)
    known = {result.id: result for result in results.cells}
    rows = [c for c in record.cells if c.key.mode == "eager" and c.status == "ok" and known[c.id].stages]
    height = TOP + ROW * len(rows) + 10
    gpu = record.environment.gpu.name if record.environment.gpu else "no GPU"
    shape = " ".join(f"{axis}{size}" for axis, size in rows[0].key.shape) if rows else ""
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="14" role="img">',
        "<style>text{fill:#212529}.dim{fill:#868e96}"
        "@media(prefers-color-scheme:dark){text{fill:#f1f3f5}.dim{fill:#adb5bd}}</style>",
        f'<text x="12" y="24" font-size="16" font-weight="600">One KDA call on {escape(gpu)}, {escape(shape)}</text>',
    ]
    x = LEFT
    for _, label, colour in PARTS:
        out.append(f'<rect x="{x}" y="42" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{x + 18}" y="53" font-size="13">{escape(label)}</text>')
        x += 40 + 8 * len(label)
    for row, cell in enumerate(rows):
        out += bar(cell, known[cell.id], known.get(cell.key.sibling(mode="graph").id), TOP + ROW * row)
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python probes/picture.py RUN OUT.svg")
    try:
        write_text(Path(sys.argv[2]), picture(Path(sys.argv[1])))
    except KdaprofError as error:
        sys.exit(f"picture: {error}")

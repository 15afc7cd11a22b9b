"""A sweep as a document, as text and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from kdaprof.analysis.step.fit import Fit, Point, Turn
from kdaprof.analysis.step.sweep import Sweep
from kdaprof.report.gfm import plain, text_table
from kdaprof.runs.cells import CellKey
from kdaprof.runs.codec import to_json
from kdaprof.runs.facts import Fact
from kdaprof.runs.record import CellRecord, RunRecord
from kdaprof.runs.units import format_fraction, format_ns

SWEEP_SCHEMA = "kdaprof.sweep/1"
COLOURS = ("#2f9e44", "#e03131", "#1971c2", "#f08c00", "#6741d9", "#868e96")
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 720, 420, 80, 40, 170, 50

Json = dict[str, Any]  # a document on its way out, validated against the shipped JSON Schema in tests


def sweep_document(record: RunRecord, sweep: Sweep) -> Json:
    """`kdaprof.sweep/1`: every point, every line with its intervals, and where each path turns GPU-bound."""
    return {
        "schema": SWEEP_SCHEMA,
        "tool": record.tool,
        "command": list(record.command),
        "complete": record.complete,
        "run": record.run,
        "over": list(sweep.over),
        "points": [
            {
                "cell": p.key.id,
                "path": p.key.path,
                "mode": p.key.mode,
                "work": p.work,
                "wall_ns": to_json(p.wall),
                "gpu_busy_ns": to_json(p.busy),
                "host_bound": to_json(p.host_bound) if p.host_bound is not None else None,
            }
            for p in sweep.points
        ],
        "fits": [
            {
                "path": f.path,
                "mode": f.mode,
                "fixed_ns": to_json(f.fixed),
                "slope_ns": to_json(f.slope),
                "residuals_ns": list(f.residuals_ns),
                "left_out": f.left_out,
            }
            for f in sweep.fits
        ],
        "turns": [{"path": t.path, "host_until": t.host_until, "gpu_from": t.gpu_from} for t in sweep.turns],
        "missing": [{"cell": c.id, "status": c.status, "why": why(c)} for c in sweep.missing],
    }


def sweep_markdown(sweep: Sweep) -> str:
    """The sweep as a page of Markdown."""
    return "\n".join([f"# {sweep_title(sweep)}", "", *sweep_lines(sweep)]) + "\n"


def sweep_title(sweep: Sweep) -> str:
    """`Step sweep over B`."""
    return f"Step sweep over {_work(sweep)}"


def sweep_lines(sweep: Sweep) -> list[str]:
    """The sweep in lines of Markdown: the fits first, then where the step turns and what is missing, every point."""
    lines = [line_text(sweep), "", *text_table(*fit_table(sweep))]
    lines += ["", *(f"- {sentence}" for sentence in said(sweep)), ""]
    shown = [
        (p.key.path, p.key.mode, _product(p, sweep.over), _figure(p.wall), _figure(p.busy), _share(p.host_bound))
        for p in sweep.points
    ]
    return [*lines, *text_table(("path", "mode", _work(sweep), "wall", "GPU busy", "host-bound"), shown, right=(2,))]


def line_text(sweep: Sweep) -> str:
    """What is fitted: `wall = fixed + slope · B`."""
    return f"wall = fixed + slope · {_work(sweep)}"


def fit_table(sweep: Sweep) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows of the lines."""
    headers = ("path", "mode", "points", "fixed", f"slope a unit of {_work(sweep)}", "largest residual")
    return headers, [
        (f.path, f.mode, str(f.fixed.n), _figure(f.fixed), _figure(f.slope), _worst(f.residuals_ns)) for f in sweep.fits
    ]


def said(sweep: Sweep) -> list[str]:
    """In sentences: why a line may not be quoted, where a step turns, what halving brings, what is missing."""
    turned = (turn_text(t, _work(sweep)) for t in sweep.turns)
    halved = halvings(sweep.points) if sweep.over == ("iters",) else ()
    return [*reasons(sweep.fits), *turned, *halved, *_missing(sweep)]


def _work(sweep: Sweep) -> str:
    """What a line runs over: `B`, and of two axes their product, `B · iters`."""
    return " · ".join(sweep.over)


def _product(point: Point, over: Sequence[str]) -> str:
    """`80`, and of two axes what it is the product of: `4 · 20 = 80`."""
    sizes = _sizes(point.key, over)
    return sizes if len(over) == 1 else f"{sizes} = {point.work}"


def _sizes(key: CellKey, over: Sequence[str]) -> str:
    return " · ".join(str(key.size(axis)) for axis in over)


def why(cell: CellRecord) -> str:
    """Why a step was not measured."""
    if cell.error is None:
        return "not reached"
    # As in a report: of what did not run the exception's type says nothing more.
    return cell.error.text if cell.status in ("unavailable", "skipped") else f"{cell.error.type}: {cell.error.text}"


def _missing(sweep: Sweep) -> list[str]:
    """Each reason once, with the sizes that it speaks of."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for cell in sweep.missing:
        reason = (cell.key.path, cell.key.mode, cell.status, why(cell))
        groups.setdefault(reason, []).append(_sizes(cell.key, sweep.over))
    work = _work(sweep)
    return [
        f"{path} {mode}, {work} = {', '.join(sizes)}: {status}, {plain(told)}"
        for (path, mode, status, told), sizes in groups.items()
    ]


def halvings(points: Sequence[Point]) -> list[str]:
    """What half the iterations give, path by path: from the largest number that was measured with its half."""
    groups: dict[tuple[str, str], dict[int, Fact]] = {}
    for point in points:
        if point.wall.quotable and point.wall.value:
            groups.setdefault((point.key.path, point.key.mode), {})[point.work] = point.wall
    said = []
    for (path, mode), walls in groups.items():
        most = max((n for n in walls if n % 2 == 0 and n // 2 in walls), default=None)
        if most is not None:
            whole, half = walls[most], walls[most // 2]
            less = format_fraction(1 - float(half.value or 0) / float(whole.value or 1))
            told = f"{_figure(whole)} → {_figure(half)}, {less} less"
            said.append(f"{path} {mode}: {most // 2} iterations instead of {most}: {told}")
    return said


def reasons(fits: Sequence[Fit]) -> list[str]:
    """Why lines, or parts of them, may not be quoted."""
    found = []
    for fit in fits:
        for name, fact in (("fixed", fit.fixed), ("slope", fit.slope)):
            found += [f"{fit.path} {fit.mode}, {name}: {plain(r.text)} ({r.rule})" for r in fact.reasons]
            if fact.value is None and name == "fixed":
                found.append(f"{fit.path} {fit.mode}: no line: {plain(fact.detail or '')}")
    return list(dict.fromkeys(found))


def turn_text(turn: Turn, work: str) -> str:
    """Where a path's eager step turns from host-bound to GPU-bound, in words."""
    if turn.host_until is None and turn.gpu_from is None:
        return f"{turn.path}: what bounds the step is not known at any point"
    if turn.host_until is None:
        return f"{turn.path}: GPU-bound at every point, from {work} = {turn.gpu_from}"
    if turn.gpu_from is None:
        return f"{turn.path}: host-bound up to the largest point, {work} = {turn.host_until}"
    return f"{turn.path}: host-bound up to {work} = {turn.host_until}, GPU-bound from {turn.gpu_from}"


def sweep_svg(sweep: Sweep) -> str:
    """Walls over work with their lines, and GPU busy as hollow marks. Refused walls are drawn pale."""
    drawn = [p for p in sweep.points if p.wall.value is not None]
    right = max((p.work for p in drawn), default=1)
    high = max((float(p.wall.value or 0) for p in drawn), default=1.0)
    groups = list(dict.fromkeys((p.key.path, p.key.mode) for p in drawn))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="13" role="img">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-weight="600">Wall of a step over {escape(_work(sweep))}</text>',
    ]
    for part in range(5):
        y = _y(high * part / 4, high)
        out.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dee2e6"/>')
        out.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{format_ns(high * part / 4)}</text>')
    for work in dict.fromkeys(p.work for p in drawn):
        x = _x(work, right)
        out.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{work}</text>')
    for number, (path, mode) in enumerate(groups):
        colour = COLOURS[number % len(COLOURS)]
        for fit in (f for f in sweep.fits if (f.path, f.mode) == (path, mode) and f.fixed.value is not None):
            ends = [(w, (fit.fixed.value or 0) + (fit.slope.value or 0) * w) for w in (0, right)]
            (x1, y1), (x2, y2) = ((_x(w, right), _y(value, high)) for w, value in ends)
            dash = "" if fit.fixed.quotable else ' stroke-dasharray="5 4"'
            out.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dash}/>')
        for p in (p for p in drawn if (p.key.path, p.key.mode) == (path, mode)):
            x, pale = _x(p.work, right), 1.0 if p.wall.quotable else 0.35
            title = escape(f"{path} {mode}, {p.work}: {format_ns(float(p.wall.value or 0))}")
            out.append(
                f'<circle cx="{x:.1f}" cy="{_y(float(p.wall.value or 0), high):.1f}" r="4" fill="{colour}" '
                f'fill-opacity="{pale}"><title>{title}</title></circle>'
            )
            if p.busy.value is not None:
                out.append(
                    f'<circle cx="{x:.1f}" cy="{_y(float(p.busy.value), high):.1f}" r="4" fill="none" '
                    f'stroke="{colour}"/>'
                )
        y = _TOP + 20 + 20 * number
        out.append(f'<circle cx="{_WIDTH - _RIGHT + 16}" cy="{y - 4}" r="4" fill="{colour}"/>')
        out.append(f'<text x="{_WIDTH - _RIGHT + 26}" y="{y}">{escape(f"{path} {mode}")}</text>')
    out.append(f'<text x="{_WIDTH - _RIGHT + 12}" y="{_HEIGHT - _BOTTOM}" fill="#495057">hollow: GPU busy</text>')
    return "\n".join([*out, "</svg>", ""])


def _x(work: float, right: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * work / right


def _y(value: float, high: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / high


def _figure(fact: Fact) -> str:
    if fact.value is None:
        return "—"
    text = format_ns(float(fact.value))
    if fact.ci95 is not None:
        text += f" [{format_ns(fact.ci95[0])}, {format_ns(fact.ci95[1])}]"
    rules = " ".join(sorted({reason.rule for reason in fact.reasons}))
    return f"({text}) {rules}" if rules else text


def _share(fact: Fact | None) -> str:
    if fact is None or fact.value is None:
        return "—"
    text = format_fraction(float(fact.value))
    return text if fact.quotable else f"({text}) {' '.join(sorted({r.rule for r in fact.reasons}))}"


def _worst(residuals: Sequence[float]) -> str:
    return format_ns(max(map(abs, residuals))) if residuals else "—"

"""The dispatch table on a terminal: a row a call, equal rows of several dtypes together, then what must be known."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kdaprof.report.tables import DASH
from kdaprof.runs.dispatch import Comparison, Difference, DispatchRow, DispatchTable, away_from_plain

_TITLES = {
    "kda": "kda, path auto",
    "sdpa": "scaled_dot_product_attention",
    "fla": "fla chunk_kda",
    "fla-gate kda": "fla chunk_kda, its dispatcher asked without a call",
    "fla-gate gdn": "fla chunk_gated_delta_rule, its dispatcher asked without a call",
    "compile": "torch.compile",
}
_SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}


def show_dispatch(console: Console, table: DispatchTable, compared: Comparison | None, *, full: bool = False) -> None:
    """Print the rows by op, the reasons, the contexts that leave the plain path, and what changed."""
    where = table.card or table.device
    _line(console, f"Dispatch on {where}: one call of each, and the way it took", "bold")
    reasons: dict[str, int] = {}
    for op in dict.fromkeys(row.op for row in table.rows):
        rows = [row for row in table.rows if row.op == op]
        console.print()
        title = _TITLES.get(op, f"transformers gated-delta {op}")
        _line(console, f"{title} ({_axes(rows[0])} {_extents(rows[0])} where no other shape is given)", "bold")
        console.print(_rows(rows, reasons, full=full))
    console.print()
    for reason, number in reasons.items():
        _line(console, f"[{number}] {reason}", "dim")
    for row in table.rows:
        if row.evidence is not None and row.evidence.verdict == "contradicted":
            told = "; ".join(f"{w.name} says {w.says}: {w.detail}" for w in row.evidence.witnesses if w.says)
            _line(console, f"Contradicted: {row.key}: {told}", "bold red")
    away = away_from_plain(table.rows)
    if away:
        console.print()
        _line(console, "Not the path of a plain call:", "bold")
        for difference in away:
            _line(console, f"  {_told(difference)}", "yellow")
    if compared is not None:
        _show_comparison(console, compared)


def _show_comparison(console: Console, compared: Comparison) -> None:
    changed = compared.changes
    console.print()
    _line(console, "Changed since the saved table:" if changed else "No path changed since the saved table.", "bold")
    for difference in changed:
        _line(console, f"  {_told(difference)}", "bold red")
    for keys, where in ((compared.only_saved, "the saved table"), (compared.only_now, "this one")):
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            _line(console, f"Not compared, since it is in {where} alone: {keys[0]}{more}", "yellow")


def _rows(rows: Sequence[DispatchRow], reasons: dict[str, int], *, full: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("context", "dtype", "path", "seen", "not taken, and why"):
        table.add_column(column, justify="left", no_wrap=column != "not taken, and why")
    base = _extents(rows[0])
    alike: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        context = row.context if _extents(row) == base else f"{row.context} {_extents(row)}"
        alike.setdefault((context, *_answer(row, reasons, full=full)), []).append(_SHORT.get(row.dtype, row.dtype))
    for (context, *answer), dtypes in alike.items():
        path, seen, refused = answer
        table.add_row(context, "all" if len(dtypes) == len(_SHORT) else ",".join(dtypes), path, seen, refused)
    return table


def _extents(row: DispatchRow) -> str:
    return ",".join(str(size) for axis, size in row.shape.items() if axis != "C")


def _axes(row: DispatchRow) -> str:
    return ",".join(axis for axis in row.shape if axis != "C")


def _answer(row: DispatchRow, reasons: dict[str, int], *, full: bool) -> tuple[str, str, str]:
    def marked(reason: str) -> str:
        return f"[{reasons.setdefault(reason, len(reasons) + 1)}]"

    told = [f"{refusal.path} {marked(refusal.reason)}" for refusal in row.refused if full or not _dull(refusal.reason)]
    if row.detail:
        told.append(marked(row.detail))
    seen = row.evidence.verdict if row.evidence else _ran(row)
    return row.chosen or ("FAILED" if row.status == "failed" else DASH), seen, " ".join(told) or DASH


def _ran(row: DispatchRow) -> str:
    if row.op == "compile":
        return ", ".join(row.ran) or DASH
    if row.op.startswith("fla-gate") and row.chosen is not None:
        return "asked"
    return "operator" if row.op == "sdpa" and row.ran else "function" if row.ran else DASH


def _dull(reason: str) -> bool:
    """Reasons that say no more than that another path was preferred."""
    return reason.startswith(("auto prefers", "never chosen by auto", "torch prefers", "not asked for"))


def _told(difference: Difference) -> str:
    because = f": {difference.reason}" if difference.reason else ""
    return f"{difference.key}: {difference.was or 'nothing'} → {difference.now or 'nothing'}{because}"


def _line(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style=style), soft_wrap=True)

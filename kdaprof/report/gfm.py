"""Markdown as code hosts read it, aligned so that it reads as plain text too."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kdaprof.report.tables import Column, Entry, Table

_CODE = re.compile(r"(`[^`]*`)")
# Only what would become markup here: `a * b`, `x < 3`, `[7.1, 7.3]` and `fwd_prepare` stay readable as they are.
_SPECIAL = re.compile(
    r"(\\(?=[^\w\s])|~|<(?=[A-Za-z/!?])|&(?=\w+;)|(?<=\])\(|\*(?!\s)|(?<!\s)\*|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))"
)
_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
# A row wider than this is not padded: aligned or not, it wraps when read as plain text.
_WIDEST = 180


def plain(text: str) -> str:
    """`text` on one line, with nothing that Markdown or HTML would take for markup; code spans stay code spans."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if part.startswith("`") and i % 2 else _escape(part) for i, part in enumerate(parts))


def in_cell(text: str) -> str:
    """`plain` for a table cell, where a bar ends the cell even inside a code span."""
    return re.sub(r"(?<!\\)\|", r"\\|", plain(text))


def code(text: str) -> str:
    """An inline code span that survives back-quotes in `text`."""
    fence = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def table_lines(table: Table) -> list[str]:
    """The table, then what its marks mean: reasons of missing figures, grouped, and columns that were left out."""
    notes: dict[str, int] = {}
    rows = [[_entry(entry, notes) for entry in row] for row in table.rows]
    lines = grid(table.columns, rows)
    told = [f"{_mark(number)} {plain(reason)}" for reason, number in notes.items()]
    if told:
        lines += ["", *_paragraph(told)]
    for left in table.left_out:
        lines += ["", f"Not shown: {', '.join(left.headers)} ({plain('; '.join(left.reasons))})."]
    return lines


def grid(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of finished Markdown texts."""
    headers = [in_cell(column.header) for column in columns]
    widths = [max(3, *map(len, texts)) for texts in zip(headers, *rows, strict=True)]
    if sum(widths) > _WIDEST:
        widths = [3] * len(widths)
    rule = ["-" * (width - 1) + ":" if c.right else "-" * width for c, width in zip(columns, widths, strict=True)]
    body = [_row(columns, row, widths) for row in rows]
    return [_row(columns, headers, widths), f"| {' | '.join(rule)} |", *body]


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """A table of plain texts; `right` lists the columns that are figures."""
    columns = [Column(header, right=i in right) for i, header in enumerate(headers)]
    return grid(columns, [[in_cell(text) for text in row] for row in rows])


def _row(columns: Sequence[Column], texts: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        text.rjust(width) if column.right else text.ljust(width)
        for column, text, width in zip(columns, texts, widths, strict=True)
    ]
    return f"| {' | '.join(padded)} |"


def _entry(entry: Entry, notes: dict[str, int]) -> str:
    if entry.missing is not None:
        return entry.text + _mark(notes.setdefault(entry.missing, len(notes) + 1))
    if entry.rules:
        return f"~~{in_cell(entry.text)}~~ {' '.join(entry.rules)}"
    return in_cell(entry.text)


def _mark(number: int) -> str:
    return str(number).translate(_SUPERSCRIPT)


def _paragraph(lines: Sequence[str]) -> list[str]:
    """Lines that stay lines: two blanks at the end are a break."""
    return [line + "  " for line in lines[:-1]] + [lines[-1]]


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)

"""Markdown: what is text stays text, tables keep their shape, notes are grouped."""

from __future__ import annotations

import re

import pytest

from kdaprof.report.gfm import code, in_cell, plain, table_lines, text_table
from kdaprof.report.tables import Column, Entry, LeftOut, Table


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("kdaprof_kda_fwd_prepare", "kdaprof_kda_fwd_prepare"),
        ("x < 3, a * b, [7.1, 7.3]", "x < 3, a * b, [7.1, 7.3]"),
        ("<cwd>/run", r"\<cwd>/run"),
        ("void f<float>(T*)", r"void f\<float>(T\*)"),
        ("__init__", r"\_\_init\_\_"),
        ("**bold** ~~gone~~", r"\*\*bold\*\* \~\~gone\~\~"),
        ("[a](http://x)", r"[a]\(http://x)"),
        ("&lt;b&gt;", r"\&lt;b\&gt;"),
        ("two\n lines", "two lines"),
        ("run `a_b*c*` now*", r"run `a_b*c*` now\*"),
    ],
)
def test_plain(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_bar_never_ends_a_cell() -> None:
    assert in_cell("a|b `c|d`") == r"a\|b `c\|d`"


@pytest.mark.parametrize(("text", "span"), [("a", "`a`"), ("a`b", "`` a`b ``")])
def test_code(text: str, span: str) -> None:
    assert code(text) == span


def test_a_table_is_aligned_and_its_marks_explained_once() -> None:
    columns = (Column("path", right=False, figures=False), Column("wall ms"))
    rows = (
        (Entry("fused"), Entry("0.156", ("Q02", "Q05"))),
        (Entry("tensor"), Entry("—", missing="no device: none")),
        (Entry("a|b"), Entry("—", missing="no device: none")),
        (Entry("fla"), Entry("—", missing="failed: x")),
        (Entry("ref"), Entry("—")),
    )
    lines = table_lines(Table(columns, rows, (LeftOut(("busy", "floor"), ("no device: none",)),)))
    assert lines == [
        "| path   |           wall ms |",
        "| ------ | ----------------: |",
        "| fused  | ~~0.156~~ Q02 Q05 |",
        "| tensor |                —¹ |",
        r"| a\|b   |                —¹ |",
        "| fla    |                —² |",
        "| ref    |                 — |",
        "",
        "¹ no device: none  ",
        "² failed: x",
        "",
        "Not shown: busy, floor (no device: none).",
    ]


def test_every_row_of_a_text_table_has_the_same_bars() -> None:
    rows = [("a|b", "x" * 200), ("`|`", "y\nz"), ("", "<b>")]
    lines = text_table(("one", "two"), rows, right=(1,))
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1

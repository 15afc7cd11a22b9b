"""Ranks of a watched loop side by side, on a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from kdaprof.analysis.loop_ranks import LoopRank
from kdaprof.report.gfm import text_table
from kdaprof.report.rules import rule_title
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_fraction, format_ns
from kdaprof.timeline.loop_ranges import OTHER, WHOLE

_DASH = "—"
_LAST = (OTHER, WHOLE)


def show_ranks(console: Console, ranks: Sequence[LoopRank]) -> None:
    """Print the table and what its marks mean; nothing without ranks."""
    if not ranks:
        return
    headers, rows = _grid(ranks)
    widths = [max(map(len, texts)) for texts in zip(headers, *rows, strict=True)]
    console.print(Text("Ranks, median wall a step", style="bold"))
    for number, row in enumerate((headers, *rows)):
        texts = (text.rjust(width) for text, width in zip(row[:-1], widths, strict=False))
        line = "  ".join((*texts, row[-1])).rstrip()
        # Never cut: a line that is too long for the terminal wraps there.
        console.print(Text(line, style="" if number else "dim"), soft_wrap=True)
    for note in _notes(ranks):
        console.print(Text(note, style="dim"))


def ranks_markdown(ranks: Sequence[LoopRank]) -> list[str]:
    """The same as lines of Markdown; [] without ranks."""
    if not ranks:
        return []
    headers, rows = _grid(ranks)
    return ["# Ranks", "", *text_table(headers, rows, range(1, len(headers) - 1)), "", *_notes(ranks), ""]


def _grid(ranks: Sequence[LoopRank]) -> tuple[list[str], list[list[str]]]:
    names = dict.fromkeys(name for rank in ranks for name in rank.walls)
    phases = [*(name for name in names if name not in _LAST), *(name for name in _LAST if name in names)]
    rows = [
        [
            str(rank.rank),
            *(_time(rank.walls.get(phase)) for phase in phases),
            _DASH if rank.host_bound is None or rank.host_bound.value is None else _share(rank.host_bound),
            _DASH if rank.collective_ns is None else format_ns(rank.collective_ns),
            _DASH if rank.wait_ns is None else format_ns(rank.wait_ns),
            _remark(rank),
        ]
        for rank in ranks
    ]
    return ["rank", *phases, "host-bound", "collectives", "waits", ""], rows


def _remark(rank: LoopRank) -> str:
    if not rank.walls:
        return "no step of it was stored"
    return "straggler: the others wait for it" if rank.straggler else ""


def _time(fact: Fact | None) -> str:
    if fact is None or fact.value is None:
        return _DASH
    text = format_ns(fact.value)
    return text if fact.quotable else f"({text})"


def _share(fact: Fact) -> str:
    text = format_fraction(float(fact.value or 0))
    return text if fact.quotable else f"({text})"


def _notes(ranks: Sequence[LoopRank]) -> list[str]:
    notes = []
    rules = sorted({r.rule for rank in ranks for fact in rank.walls.values() for r in fact.reasons})
    if rules:
        told = ", ".join(f"{rule} {rule_title(rule)}" for rule in rules)
        notes.append(f"In parentheses, not to be quoted: {told}.")
    if any(rank.compared for rank in ranks):
        notes.append(
            f"Collectives and waits in them are a step's, in the last profiled window; {ranks[0].compared} were "
            "compared one by one with the rank that took least."
        )
    else:
        notes.append("No collective was recorded by all ranks, so that nobody can be said to wait.")
    return notes

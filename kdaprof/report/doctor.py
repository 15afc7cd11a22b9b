"""A checkup on a terminal: what fails first, then what may mislead, then the rest by group."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from kdaprof.runs.checkup import Check, unfit

_MARKS = {"ok": "ok", "warn": "warn", "fail": "FAIL", "unknown": "?"}
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "unknown": "dim"}
_GROUPS = {
    "card": "Card",
    "machine": "Quiet or not",
    "software": "Installed, and working together",
    "paths": "What can run",
    "faults": "Known faults",
    "elsewhere": "Implementations of others",
}
_INDENT = 6


def show_checkup(console: Console, checks: Sequence[Check]) -> None:
    """Print every check with what to do and its source, then the verdict."""
    for group, title in _GROUPS.items():
        found = [check for check in checks if check.group == group]
        if not found:
            continue
        console.print(Text(title, style="bold"))
        for check in found:
            _show(console, check)
        console.print()
    console.print(Text(verdict(checks), style="bold red" if unfit(checks) else "bold"), soft_wrap=True)


def verdict(checks: Sequence[Check]) -> str:
    """One line: fit or not, and why."""
    failed = [check.id for check in checks if check.status == "fail"]
    warned = sum(check.status == "warn" for check in checks)
    beside = f"{warned} {'warning' if warned == 1 else 'warnings'}" if warned else "no warnings"
    if failed:
        return f"Unfit to measure on: {', '.join(failed)} ({beside})"
    return f"Fit to measure on ({beside})"


def _show(console: Console, check: Check) -> None:
    lines = Text(check.text).wrap(console, max(20, console.width - _INDENT))
    for index, line in enumerate(lines):
        line.rstrip()
        mark = Text(_MARKS[check.status].ljust(_INDENT) if index == 0 else " " * _INDENT, style=_STYLES[check.status])
        console.print(mark.append_text(Text(line.plain, style="default")), soft_wrap=True)
    if check.status in ("warn", "fail", "unknown") and check.next:
        _more(console, f"→ {check.next}", "default")
    if check.source and (check.status != "ok" or check.group == "elsewhere"):
        _more(console, check.source, "dim")


def _more(console: Console, text: str, style: str) -> None:
    for line in Text(text, style=style).wrap(console, max(20, console.width - _INDENT)):
        line.rstrip()
        console.print(Text(" " * _INDENT).append_text(line), soft_wrap=True)

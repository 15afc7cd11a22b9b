"""Figures on a page of their own: one file that works offline, the script in it once, the same for the same figures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

_HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>body {{ font-family: system-ui, sans-serif; margin: 1.5rem auto; max-width: 70rem; padding: 0 1rem }}</style>
</head>
<body>
<h1>{title}</h1>
"""


def page(figures: Sequence[Any], title: str) -> str:
    """HTML of plotly figures, one below the other; about 5 MB, nearly all of it plotly's script."""
    parts = [_HEAD.format(title=escape(title))]
    for number, figure in enumerate(figures):
        parts.append(
            figure.to_html(
                full_html=False,
                include_plotlyjs=number == 0,
                div_id=f"figure-{number}",
                config={"displaylogo": False, "responsive": True},
            )
        )
    return "\n".join([*parts, "</body>", "</html>", ""])

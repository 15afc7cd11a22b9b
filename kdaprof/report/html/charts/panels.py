"""Small panels in a grid, each with axes of its own and its name above it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Panels:
    """Panels by number, row by row."""

    names: tuple[str, ...]
    columns: int

    @classmethod
    def of(cls, names: Sequence[str], *, columns: int) -> Panels:
        """As many columns as asked for, fewer where there are fewer panels."""
        return cls(tuple(names), max(1, min(columns, len(names))))

    @property
    def rows(self) -> int:
        """Rows of the grid."""
        return -(-len(self.names) // self.columns)

    def height(self, each: int) -> int:
        """Pixels of the whole, at `each` a row."""
        return 80 + each * self.rows

    def axes(self, number: int) -> dict[str, str]:
        """The axes that a trace of this panel names."""
        end = "" if number == 0 else str(number + 1)
        return {"xaxis": f"x{end}", "yaxis": f"y{end}"}

    def layout(self, *, x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
        """Every panel's axes with their domains."""
        layout: dict[str, Any] = {}
        for number in range(len(self.names)):
            end = "" if number == 0 else str(number + 1)
            across, down = self._domains(number)
            layout[f"xaxis{end}"] = {**x, "domain": across, "anchor": f"y{end}"}
            layout[f"yaxis{end}"] = {**y, "domain": down, "anchor": f"x{end}"}
        return layout

    def titles(self, text: Callable[[str], str]) -> list[dict[str, Any]]:
        """Annotations with the panels' names."""
        titles = []
        for number, name in enumerate(self.names):
            axes = self.axes(number)
            titles.append(
                {
                    "text": f"<b>{text(name)}</b>",
                    "x": 0,
                    "y": 1,
                    "xref": f"{axes['xaxis']} domain",
                    "yref": f"{axes['yaxis']} domain",
                    "xanchor": "left",
                    "yanchor": "bottom",
                    "showarrow": False,
                }
            )
        return titles

    def _domains(self, number: int) -> tuple[list[float], list[float]]:
        row, col = divmod(number, self.columns)
        gap = 0.075 if self.columns > 1 else 0.0
        width = (1 - gap * (self.columns - 1)) / self.columns
        left = col * (width + gap)
        space = 0.36
        tall = 1 / (self.rows + space * (self.rows - 1))
        top = 1 - row * tall * (1 + space)
        return [round(left, 4), round(left + width, 4)], [round(max(top - tall, 0.0), 4), round(top, 4)]

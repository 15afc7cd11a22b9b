"""What an experiment is judged on: samples by round of both sides, or medians from elsewhere. Nothing derived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kdaprof.runs.facts import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A side that is known by its order statistics alone: times in ns over `n` samples."""

    median_ns: float
    n: int
    p10_ns: float | None = None
    p90_ns: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEvidence:
    """One side of one shape.

    `rounds`: walls in ns by round. `peak_bytes`: the peak of each round or repeat, above what was held before.
    `refused`: rules that keep these times out of a ratio. `noted`: rules by which they may not be quoted, and may
    still enter an interleaved one. `wrong`: how its outputs differ from the reference.
    """

    rounds: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    summary: Summary | None = None
    peak_bytes: tuple[int, ...] = ()
    peak_missing: str | None = None
    refused: tuple[Reason, ...] = ()
    noted: tuple[Reason, ...] = ()
    wrong: str | None = None
    error: str | None = None
    """Why there are no (more) samples: the side failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeEvidence:
    """Both sides of one shape, by the name that the contract gives it."""

    shape: str
    base: SideEvidence
    cand: SideEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that was seen. `source` says where it comes from when it was not measured here."""

    shapes: tuple[ShapeEvidence, ...]
    source: str | None = None

    def of(self, shape: str) -> ShapeEvidence | None:
        """The evidence on one shape."""
        return next((row for row in self.shapes if row.shape == shape), None)

    @property
    def errors(self) -> tuple[str, ...]:
        """Sides that could not be measured, with why, each once: an error is no verdict on speed."""
        told = (
            f"{name} on {row.shape}: {side.error}"
            for row in self.shapes
            for name, side in (("base", row.base), ("cand", row.cand))
            if side.error is not None
        )
        return tuple(dict.fromkeys(told))

"""Interleaving: each round is A B B A or B A A B, drawn by the seed, and its two blocks a side are one round's samples.

Within a round a steady drift falls on both sides alike. Which side opens is drawn, not alternated: a drift with a
period of two rounds would fall on the same side again and again (`benchmarks/ab_statistics.py` shows by how much).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from kdaprof.analysis.ab.evidence import ShapeEvidence, SideEvidence
from kdaprof.errors import KdaprofError

SideName = Literal["base", "cand"]
SIDES: tuple[SideName, ...] = ("base", "cand")


class SideError(KdaprofError):
    """A side could not be measured: its process failed, took too long, or reported something else than times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Walls in ns of one block of one shape, and its peak memory in bytes, or why there is none."""

    wall_ns: tuple[int, ...]
    peak_bytes: int | None = None
    peak_missing: str | None = None


class Side(Protocol):
    """One side of the experiment, ready to be timed."""

    def block(self, number: int, samples: int) -> Mapping[str, Block]:
        """`samples` timed calls of each shape, by shape, in round `number`. Errors: SideError."""
        ...


class Progress(Protocol):
    """Told of each round."""

    def advance(self, text: str) -> None:
        """One more step is done."""
        ...


def schedule(rounds: int, seed: int) -> tuple[tuple[SideName, ...], ...]:
    """The order of blocks in each round."""
    draw = random.Random(seed)
    return tuple(
        ("base", "cand", "cand", "base") if draw.random() < 0.5 else ("cand", "base", "base", "cand")
        for _ in range(rounds)
    )


class Interleaved:
    """Collects the blocks of both sides; what was measured when something fails is kept."""

    def __init__(
        self,
        shapes: Sequence[str],
        sides: Mapping[SideName, Side],
        progress: Progress,
        errors: Mapping[SideName, str] | None = None,
    ) -> None:
        self._shapes = tuple(shapes)
        self._sides = sides
        self._progress = progress
        self._blocks: dict[tuple[SideName, str], dict[int, list[Block]]] = {
            (side, shape): {} for side in SIDES for shape in shapes
        }
        self._errors: dict[SideName, str] = dict(errors or {})

    def run(self, rounds: int, samples: int, seed: int) -> None:
        """All rounds, `samples` calls a side and shape in each. A side that fails ends it, with its reason kept."""
        for number, order in enumerate(schedule(rounds, seed)):
            for side in order:
                try:
                    found = self._sides[side].block(number, samples // 2)
                except SideError as error:
                    self._errors[side] = str(error)
                    return
                for shape in self._shapes:
                    self._blocks[side, shape].setdefault(number, []).append(found[shape])
            self._progress.advance(f"round {number + 1} of {rounds}: {' '.join(order)}")

    def evidence(self) -> tuple[ShapeEvidence, ...]:
        """What there is, shape by shape."""
        return tuple(
            ShapeEvidence(shape=shape, base=self._side("base", shape), cand=self._side("cand", shape))
            for shape in self._shapes
        )

    def _side(self, side: SideName, shape: str) -> SideEvidence:
        rounds = self._blocks[side, shape]
        blocks = [block for found in rounds.values() for block in found]
        missing = next((block.peak_missing for block in blocks if block.peak_bytes is None), None)
        return SideEvidence(
            rounds={number: tuple(w for block in found for w in block.wall_ns) for number, found in rounds.items()},
            peak_bytes=tuple(block.peak_bytes for block in blocks if block.peak_bytes is not None),
            peak_missing=missing,
            error=self._errors.get(side),
        )

"""How often the verdict of interleaved rounds is wrong, and what difference it sees, on data whose truth is known.

`python benchmarks/ab_statistics.py` prints, for each kind of disturbance and number of rounds, the share of 1,000
A/A comparisons that are called different, the coverage of the interval, the power at a true difference of 5 %, and
the share called `same`. `--order drawn` is the live schedule of `kdaprof ab` and of a probe (each round A B B A or
B A A B); `alternate` (A B, B A, …) is there to show what the draw is for. Everything is seeded: the same command
prints the same table.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kdaprof.analysis.interleaved import Ratio, compare_interleaved
from kdaprof.probe.ab.blocks import schedule

TRIALS = 1_000
TRUE_DIFFERENCE = 0.05
Rounds = dict[int, list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """What acts on the logarithm of each wall: sizes are standard deviations or amplitudes, 0.01 is about 1 %."""

    name: str
    noise: float = 0.03
    heavy: bool = False
    """Student's t with 2 degrees of freedom instead of a normal distribution: no variance exists."""
    outliers: float = 0.0
    """Share of samples that take about e times as long."""
    block: float = 0.0
    """Level of each block: the host's speed when it was this side's turn."""
    slope: float = 0.0
    walk: float = 0.0
    """Random walk over one block's length."""
    wave: float = 0.0
    """Periodic drift of half a period to four periods over the whole."""
    step: float = 0.0
    """One change of level, at any time."""


DISTURBANCES = (
    Disturbance(name="quiet"),
    Disturbance(name="heavy tails, outliers", heavy=True, outliers=0.05),
    Disturbance(name="level of each block", block=0.012, heavy=True, outliers=0.05),
    Disturbance(name="linear drift", slope=0.15),
    Disturbance(name="random walk", walk=0.012, heavy=True, outliers=0.05),
    Disturbance(name="periodic drift", wave=0.05, heavy=True),
    Disturbance(name="change of level", step=0.2, heavy=True),
    Disturbance(
        name="all of these", heavy=True, outliers=0.05, block=0.006, slope=0.05, walk=0.006, wave=0.03, step=0.05
    ),
)


def draw(kind: Disturbance, size: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    """Log walls [blocks, samples a block] in the order of time."""
    blocks, samples = size
    n = blocks * samples
    when = np.linspace(0.0, 1.0, n)
    logs = kind.noise * (rng.standard_t(2, n) if kind.heavy else rng.standard_normal(n))
    logs += np.where(rng.random(n) < kind.outliers, np.abs(rng.normal(1.0, 0.5, n)), 0.0)
    logs += np.repeat(rng.normal(0.0, kind.block, blocks), samples)
    logs += kind.slope * rng.standard_normal() * when
    logs += np.cumsum(rng.normal(0.0, kind.walk / np.sqrt(samples), n))
    logs += kind.wave * np.sin(2 * np.pi * (rng.uniform(0.5, 4.0) * when + rng.random()))
    logs += np.where(when > rng.random(), rng.normal(0.0, kind.step), 0.0)
    return logs.reshape(size)


def plan_of(order: str, rounds: int, seed: int) -> Sequence[Sequence[str]]:
    """Blocks of each round."""
    if order == "drawn":
        return schedule(rounds, seed)
    return [("base", "cand") if number % 2 == 0 else ("cand", "base") for number in range(rounds)]


def trial(
    kind: Disturbance, rng: np.random.Generator, *, rounds: int, samples: int, ratio: float, order: str = "drawn"
) -> Ratio:
    """One comparison at a true cand / base of `ratio`: `samples` a side and round, in blocks as they are scheduled."""
    plan = plan_of(order, rounds, int(rng.integers(2**31)))
    turns = [(number, side) for number, sides in enumerate(plan) for side in sides]
    per_block = samples * 2 * rounds // len(turns)
    walls = 1e6 * np.exp(draw(kind, (len(turns), per_block), rng))
    sides: dict[str, Rounds] = {"base": {}, "cand": {}}
    for (number, side), block in zip(turns, walls, strict=True):
        scale = ratio if side == "cand" else 1.0
        sides[side].setdefault(number, []).extend((scale * block).tolist())
    return compare_interleaved(sides["base"], sides["cand"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Shares of trials, 0…1."""

    different: float
    covered: float
    same: float


def shares(
    kind: Disturbance,
    *,
    rounds: int,
    ratio: float = 1.0,
    samples: int = 20,
    trials: int = TRIALS,
    order: str = "drawn",
    seed: int = 2026,
) -> Shares:
    """What `trials` comparisons come to."""
    rng = np.random.default_rng([seed, rounds, DISTURBANCES.index(kind), round(1000 * ratio)])
    found = [trial(kind, rng, rounds=rounds, samples=samples, ratio=ratio, order=order) for _ in range(trials)]
    different = sum(one.verdict in ("faster", "slower") for one in found)
    covered = sum(one.interval is not None and one.interval[0] <= ratio <= one.interval[1] for one in found)
    same = sum(one.verdict == "same" for one in found)
    return Shares(different=different / trials, covered=covered / trials, same=same / trials)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="error, coverage and power of interleaved comparisons")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--order", choices=("drawn", "alternate"), default="drawn")
    args = parser.parse_args(argv)
    print(f"{args.trials} trials each, 20 samples a side and round, order {args.order}")
    print(f"{'':24}{'rounds':>7}{'A/A called different':>22}{'coverage':>10}{'same':>8}{'power at 5 %':>14}")
    for kind in DISTURBANCES:
        for rounds in (5, 8, 12):
            null = shares(kind, rounds=rounds, trials=args.trials, order=args.order)
            power = shares(kind, rounds=rounds, ratio=1 - TRUE_DIFFERENCE, trials=args.trials, order=args.order)
            print(
                f"{kind.name:24}{rounds:7}{100 * null.different:20.1f} %{100 * null.covered:8.1f} %"
                f"{100 * null.same:6.1f} %{100 * power.different:12.1f} %"
            )


if __name__ == "__main__":
    main()

# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Is B faster than A?
# Two medians always differ. Whether that may be said depends on how they were taken, in turn or one after the other,
# and on how far the host drifted meanwhile. The answer is `faster`, `slower`, `same`, or **not established**.

# %%
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

import kdaprof
from kdaprof.analysis.compare import NOT_INTERLEAVED, Side, compare_runs
from kdaprof.analysis.interleaved import compare_interleaved
from kdaprof.report import figures

pd.options.display.max_colwidth = 240
reports = next(folder / "reports" for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "reports").is_dir())
run = kdaprof.load(reports / "h200-kda")
samples = run.samples
forward = samples[
    (samples["repeat"] == "unprofiled")
    & (samples["phase"] == "fwd")
    & (samples["mode"] == "eager")
    & (samples["round"] >= 0)
    & samples["steady"].fillna(False)
]


def by_round(path: str, part: slice = slice(None)) -> Mapping[int, Sequence[float]]:
    """Walls of one path by round; `part` takes some of each round."""
    groups = forward[forward["path"] == path].groupby("round")["wall_ns"]
    return {int(number): walls.astype("float64").tolist()[part] for number, walls in groups}


# %% [markdown]
# ## Paths of one run: measured in turn
# In each round every path runs. What the host did in a round falls on both, and leaves the ratio.

# %%
paths = [path for path in forward["path"].unique() if len(by_round(path)) >= 5]
found = {(a, b): compare_interleaved(by_round(a), by_round(b)) for a, b in combinations(paths, 2)}
pd.DataFrame(
    [
        {"base": a, "candidate": b, "ratio": r.value, "95 %": r.interval, "rounds": r.rounds, "verdict": r.verdict}
        for (a, b), r in found.items()
    ]
).round(3)

# %%
figures.ratio_bars(
    [figures.Bar(f"{b} / {a}", r.value, r.interval, r.verdict) for (a, b), r in found.items() if r.interval]
)

# %% [markdown]
# ## A path against itself
# Every second sample against the others of the same rounds. The truth is "same", unless the place in the round
# matters: the first call of a round follows another path, and may find the host's caches cold. So once with it, and
# once without.

# %%
halves = {
    "with the first call": (slice(0, None, 2), slice(1, None, 2)),
    "without": (slice(1, None, 2), slice(2, None, 2)),
}
itself = [
    {"path": path, "of each round": name, "ratio": r.value, "95 %": r.interval, "verdict": r.verdict}
    for path in paths
    for name, (a, b) in halves.items()
    for r in [compare_interleaved(by_round(path, a), by_round(path, b))]
]
pd.DataFrame(itself).round(3)

# %% [markdown]
# ## Why rounds, and not samples
# The width of the 95 % interval of the median, as a share of it: once with all samples taken for independent (a
# bootstrap), once from the medians of rounds. Where the host drifts, the first is too narrow: it says "different" of
# what is the same.

# %%
rng = np.random.default_rng(0)


def bootstrap_width(walls: np.ndarray) -> float:
    """Width of the percentile interval of the median over 2,000 resamples."""
    drawn = np.median(rng.choice(walls, (2000, walls.size)), axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float((high - low) / np.median(walls))


facts = run.facts.set_index(["path", "phase", "mode", "fact"])
widths = []
for path in paths:
    fact = facts.loc[(path, "fwd", "eager", "wall_ns")]
    walls = forward[forward["path"] == path]["wall_ns"].to_numpy(dtype="float64")
    rounds = (fact["ci_high"] - fact["ci_low"]) / fact["value"]
    widths.append({"path": path, "n": walls.size, "over samples": bootstrap_width(walls), "over rounds": rounds})
pd.DataFrame(widths).round(4)

# %% [markdown]
# ## Two runs: not measured in turn
# `kdaprof compare BASE CAND` does this for any two stored runs: what differs between them is named first, no ratio is
# made from a figure that may not be quoted, and the interval is Welch's over the rounds of each. Here the run stands on
# both sides, so that every ratio is 1 and its interval shows what a difference would have to exceed.

# %%
side = Side(raw=run.raw, results=run.results)
comparison = compare_runs(side, side)
pd.DataFrame(
    [
        {"cell": row.cell, "ratio": row.ratio, "95 %": row.interval, "verdict": row.verdict}
        for row in comparison.rows
        if row.ratio is not None
    ]
)

# %%
figures.ratios(comparison)

# %%
NOT_INTERLEAVED

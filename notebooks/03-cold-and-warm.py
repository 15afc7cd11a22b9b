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
# # Cold and warm
# A training step was once published at 1,810 ms. It was step 0; warm, it took 244 ms. Here every sample is kept from
# step 0, change points split the series, and only the steady segment gives figures.

# %%
from pathlib import Path

import pandas as pd

import kdaprof
from kdaprof.report import figures

reports = next(folder / "reports" for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "reports").is_dir())
run = kdaprof.load(reports / "h200-kda")
samples = run.samples
eager = samples[(samples["repeat"] == "unprofiled") & (samples["mode"] == "eager")]
rows = ["path", "phase"]

# %% [markdown]
# ## What step 0 would have claimed
# The first call, the mean over everything, and the median of the steady segment, in milliseconds.

# %%
walls = eager["wall_ns"].astype("float64") / 1e6
by_cell = walls.groupby([eager[row] for row in rows], sort=False)
steady = walls[eager["steady"].fillna(False)]
claims = pd.DataFrame(
    {
        "step 0": by_cell.first(),
        "mean of all": by_cell.mean(),
        "median of all": by_cell.median(),
        "steady median": steady.groupby([eager[row] for row in rows], sort=False).median(),
    }
)
claims["step 0 / steady"] = claims["step 0"] / claims["steady median"]
claims.round(3)

# %% [markdown]
# ## Where the steady segment begins
# A series that never settles is called that, and rule Q01 refuses its figures.

# %%
cells = run.cells
cells[cells["mode"] == "eager"][[*rows, "steady_from", "warmup"]].style.hide(axis="index")

# %%
figures.samples(run)

# %% [markdown]
# ## A cold start is a figure of its own
# Taken in a fresh process with empty Triton and inductor caches: compilation, autotuning and library handles are all in
# it. In seconds.

# %%
facts = run.facts
cold = facts[(facts["fact"] == "cold_ns") & facts["value"].notna()]
(cold.set_index(rows)[["value", "min", "max"]] / 1e9).round(2).join(cold.set_index(rows)[["n", "quotable"]])

# %% [markdown]
# ## Does the host drift while it is warm?
# The median of each round, in milliseconds: samples of one round share the speed of the host in it. That is why an
# interval is made from rounds, and not from samples as if they were independent.

# %%
rounds = eager[eager["steady"].fillna(False) & (eager["round"] >= 0)]
medians = rounds.groupby([*rows, "round"], sort=False)["wall_ns"].median().astype("float64") / 1e6
medians.unstack("round").round(3)

# %% [markdown]
# ## Memory that moved
# A pool that grew while samples were taken compares a cold allocator with a warm one (rule Q14).

# %%
growth = facts[(facts["fact"] == "reserved_growth_bytes") & facts["value"].notna()]
growth[[*rows, "mode", "value", "quotable", "refused_by"]]

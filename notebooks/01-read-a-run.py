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
# # Read a run
# A run is a directory: `run.json` says what was measured and how, `samples.parquet/` holds every sample from step 0,
# and everything else is derived from them whenever the run is opened. Nothing here needs a GPU, torch, or a new
# measurement.
#
# The run below was recorded on an NVIDIA H200 and is committed with this repository.

# %%
from pathlib import Path

import pandas as pd

import kdaprof
from kdaprof.report import figures

pd.options.display.width = 160
pd.options.display.max_colwidth = 240
reports = next(folder / "reports" for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "reports").is_dir())
run = kdaprof.load(reports / "h200-kda")
run.id

# %% [markdown]
# ## What was run
# One row a cell: a workload on one path, in one context, mode and phase, at one shape and dtype. `evidence` says
# whether the path that was asked for is proven to have run: by the dispatcher's record, the kernels seen on the device,
# and counts declared before the run.

# %%
run.cells[["path", "mode", "phase", "status", "evidence", "steady_from", "warmup"]]

# %% [markdown]
# ## Every sample, from step 0
# The first call is cold and is kept; the shaded part is what the derivation leaves out of every figure.

# %%
samples = run.samples
unprofiled = samples[samples["repeat"] == "unprofiled"]
unprofiled.groupby(["path", "phase", "mode"])["wall_ns"].agg(["count", "first", "median", "min", "max"])

# %%
figures.samples(run)

# %% [markdown]
# ## A figure and what stands behind it
# A figure has its interval, the number of samples, and the rules that refuse it. Values are in base units: nanoseconds,
# bytes, fractions. What may not be quoted says why.

# %%
facts = run.facts
walls = facts[facts["fact"] == "wall_ns"]
walls[["path", "phase", "mode", "value", "ci_low", "ci_high", "n", "quotable", "refused_by"]]

# %%
refused = facts[facts["value"].notna() & ~facts["quotable"]]
refused.groupby("refused_by").agg(figures=("fact", "count"), why=("why", "first"))

# %% [markdown]
# ## What it comes to
# The findings, the gravest first: each with its numbers, its threshold and what to do next.

# %%
run.findings[["severity", "id", "text"]]

# %%
figures.ladder(run)

# %% [markdown]
# ## Event by event
# The profiled repeats are stored as events. `kind="cuda"` was recorded with CUDA activity alone, `kind="full"` with CPU
# and CUDA.

# %%
events = run.timeline("fused/plain/eager/fwd", kind="full")
kernels = events[events["kind"] == "kernel"]
busy = (kernels["end_ns"] - kernels["start_ns"]).groupby(kernels["name"], observed=True)
busy.agg(["count", "median"]).sort_values("median", ascending=False)

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
# # Where the step goes
# A call (or a phase of a step) is split into what the GPU did, and what it waited for, class by class. The parts add up
# to the whole. Wall and host come from unprofiled calls; busy and the classes of idle from profiled ones.

# %%
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

import kdaprof
from kdaprof.report.labels import IDLE_CLASSES, label

pd.options.display.max_colwidth = 240
reports = next(folder / "reports" for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "reports").is_dir())
# A whole training step where one was recorded; else the op, forward and backward.
run = kdaprof.load(next(reports / name for name in ("h200-step", "h200-kda") if (reports / name).is_dir()))
cells = run.cells
f"{run.id}: {', '.join(dict.fromkeys(cells['workload']))}, phases {', '.join(dict.fromkeys(cells['phase']))}"

# %% [markdown]
# ## The figures side by side
# In milliseconds; what may not be quoted is left out here, and why stands in the next table.

# %%
facts = run.facts
eager = facts[facts["mode"] == "eager"]
rows = ["path", "phase"]
wanted = ["wall_ns", "host_ns", "gpu_span_ns", "gpu_busy_ns", "pipelined_ns"]
quotable = eager[eager["quotable"] & eager["fact"].isin(wanted)]
(quotable.pivot_table(index=rows, columns="fact", values="value", sort=False) / 1e6).round(3)

# %%
told = eager[eager["fact"].isin(["wall_ns", "gpu_busy_ns", "host_bound"]) & ~eager["quotable"]]
told[[*rows, "fact", "refused_by", "missing", "why"]]

# %% [markdown]
# ## Busy and idle
# `dispatch` is time in which the host was inside an operator, `host, other` in no operator at all (Python, data
# loading), `launch call` the launch itself; `launch latency` and `device wait` are the device's own; `drain` is from
# the last device event to the return of the synchronise.

# %%
parts = ["gpu_busy_ns", *IDLE_CLASSES]
split = eager[eager["fact"].isin(parts)].pivot_table(index=rows, columns="fact", values="value", sort=False)
split = split[split["gpu_busy_ns"] > 0].reindex(columns=parts).dropna(axis="columns", how="all").fillna(0)
shares = split.div(split.sum(axis="columns"), axis="index").rename(columns=label)
shares = shares.loc[:, shares.max() > 0]
(100 * shares).round(1)

# %%
figure = go.Figure(layout={"barmode": "stack", "xaxis": {"tickformat": ".0%"}, "yaxis": {"autorange": "reversed"}})
for name in shares:
    figure.add_bar(y=[" ".join(row) for row in shares.index], x=shares[name], name=name, orientation="h")
figure

# %% [markdown]
# ## Launch by launch
# Many launches of short kernels are what host dispatch looks like from the device. The profiled repeats of the cell
# with the most launches: how long the device waited before each event, and how long the event took.

# %%
launches = eager[(eager["fact"] == "launches") & eager["value"].notna()].sort_values("value")
most = launches.iloc[-1]
events = run.timeline(most["cell"], kind="cuda")
device = events[events["kind"].isin(["kernel", "memcpy", "memset"])].sort_values("start_ns")
reach = device["end_ns"].cummax().shift()
gaps = (device["start_ns"] - reach).clip(lower=0).dropna() / 1e3
lengths = (device["end_ns"] - device["start_ns"]) / 1e3
pd.DataFrame({"gap before, µs": gaps.describe(), "event, µs": lengths.describe()}).round(2).rename_axis(most["cell"])

# %% [markdown]
# ## What to do about it
# Findings about the host, with what a CUDA Graph made of each call where it was captured.

# %%
host = run.findings[run.findings["id"].str.contains("host|graph|sync|queue")]
host[["id", "text", "next"]]

# %% [markdown]
# # Read a run
# A run is a directory: `run.json` says what was measured and how, `samples.parquet/` holds every sample, `facts.json`
# what was derived from them. Nothing here needs a GPU, torch, or a new measurement.

# %%
import json
from pathlib import Path

import pandas as pd

here = Path(__file__).parent if "__file__" in globals() else Path.cwd()
run = here.parent / "reports" / "h200-kda"
samples = pd.concat([pd.read_parquet(part) for part in sorted((run / "samples.parquet").glob("*.parquet"))])
facts = {cell["id"]: cell["facts"] for cell in json.loads((run / "facts.json").read_text())["cells"]}

# %% [markdown]
# ## Every sample of one path, from step 0
# The first call is cold and is kept: nothing measured is thrown away.

# %%
unprofiled = samples[samples.repeat == "unprofiled"].assign(wall_ms=lambda s: s.wall_ns / 1e6)
by_cell = unprofiled.groupby("cell").wall_ms.agg(["count", "first", "median", "min", "max"]).round(3)

# %% [markdown]
# ## The figure and what stands behind it
# A fact has its interval, the number of samples, and the rules that refuse it.

# %%
table = pd.DataFrame(
    [
        {
            "cell": cell,
            "wall_ms": (of["wall_ns"]["value"] or float("nan")) / 1e6,
            "ci95_ms": [round(end / 1e6, 3) for end in of["wall_ns"]["ci95"] or ()],
            "n": of["wall_ns"]["n"],
            "quotable": of["wall_ns"]["quotable"],
            "refused_by": ", ".join(reason["rule"] for reason in of["wall_ns"]["reasons"]),
        }
        for cell, of in facts.items()
    ]
).set_index("cell")

# %%
if __name__ == "__main__":
    with pd.option_context("display.width", 160, "display.max_columns", None, "display.max_colwidth", 60):
        print(by_cell, table, sep="\n\n")  # noqa: T201

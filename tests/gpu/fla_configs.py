"""FLA's kernels without their tuning: each takes the first configuration it lists, by FLA's own table of them.

Tuning takes minutes a workload and finds speed. What these tests ask, the results and the kernels' names, is the same
with any configuration.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

MODULES = ("kda", "gated_delta_rule", "gdn2", "precond_kda", "common")


def _tuners() -> dict[str, Any]:
    """FLA's tuned kernels by name, out of every loaded module of FLA."""
    from fla.ops.utils.cache import CachedAutotuner

    for name in MODULES:
        importlib.import_module(f"fla.ops.{name}")
    found = {}
    for module in [m for name, m in sorted(sys.modules.items()) if name.startswith("fla.")]:
        for member in vars(module).values():
            kernel = member
            while kernel is not None and not isinstance(kernel, CachedAutotuner):
                kernel = getattr(kernel, "fn", None) if type(kernel).__module__.startswith("triton.") else None
            if kernel is not None:
                found[kernel.kernel_name] = kernel
    return found


def take_first_configurations(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Write them to `folder` for this process and its children to find; how many kernels have one."""
    monkeypatch.setenv("FLA_CONFIG_DIR", str(folder))
    monkeypatch.setenv("FLA_CACHE_MODE", "default")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # FLA warns of what else could be installed
        tuners = _tuners()
    from fla.ops.utils import cache

    monkeypatch.setattr(cache, "FLA_CACHE_MODE", cache.FlaCacheMode.DEFAULT)
    folder.mkdir(parents=True, exist_ok=True)
    for name, tuner in tuners.items():
        first = tuner.configs[0]
        taken = {key: getattr(first, key) for key in ("kwargs", "num_warps", "num_stages", "num_ctas", "maxnreg")}
        (folder / f"{name}.json").write_text(json.dumps({"default_config": taken}))
    return len(tuners)

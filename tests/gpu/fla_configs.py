"""FLA's kernels without their tuning: each keeps the first configuration that it lists, in this process.

Tuning takes minutes a workload and finds speed. What these tests ask, the results and the kernels' names, is the same
with any configuration.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from triton.runtime.autotuner import Autotuner

MODULES = ("kda", "gated_delta_rule", "gdn2", "precond_kda")


def _tuners() -> Iterator[Autotuner]:
    """FLA's tuned kernels, out of every loaded module of FLA: those with its own tuner, and those with Triton's."""
    from triton.runtime.autotuner import Autotuner

    for name in MODULES:
        importlib.import_module(f"fla.ops.{name}")
    for module in [m for name, m in sorted(sys.modules.items()) if name.startswith("fla.")]:
        for member in vars(module).values():
            kernel = member
            while type(kernel).__module__.startswith("triton.") and not isinstance(kernel, Autotuner):
                kernel = getattr(kernel, "fn", None)
            if isinstance(kernel, Autotuner):
                yield kernel


def take_first_configurations(monkeypatch: pytest.MonkeyPatch) -> int:
    """Until the test's end, where its profiled repeats run in this process; how many kernels would have been tuned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # FLA warns of what else could be installed
        tuned = {id(kernel): kernel for kernel in _tuners() if len(kernel.configs) > 1}
    for kernel in tuned.values():
        monkeypatch.setattr(kernel, "configs", kernel.configs[:1])
    return len(tuned)

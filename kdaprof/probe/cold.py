"""Cold start: the first call of a cell in a fresh process whose Triton and inductor caches are empty."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.cuda_device import open_device
from kdaprof.instruments.timing import time_call
from kdaprof.probe.child import ChildCell, ChildSpec
from kdaprof.probe.series import Series
from kdaprof.workloads.op import CaseSpec, OpCase


def cold_cell(case: CaseSpec, spec: ChildSpec) -> ChildCell:
    """Time the process's first call. Inputs and the CUDA context exist before; kernels, libraries and caches do not."""
    device, clock = open_device(case.device), MonotonicClock()
    series = Series(case.key, OpCase(case))
    device.synchronize()
    start = clock.now_ns()
    series.case.prepare(0)
    timing = time_call(series.case.run, device, clock)
    # Phase bwd runs its forward in `prepare`: a cold backward includes the forward it cannot do without.
    series.add("cold", 0, start, host_ns=timing.host_ns, wall_ns=clock.now_ns() - start)
    return ChildCell(cell=case.key.id, samples=tuple(series.samples))


@contextmanager
def empty_caches() -> Iterator[dict[str, str]]:
    """Environment variables that point every compile cache at a folder that is empty now and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="kdaprof-cold-") as folder:
        place = Path(folder)
        yield {
            "TRITON_CACHE_DIR": str(place / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"),
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "CUDA_CACHE_PATH": str(place / "cuda"),
        }

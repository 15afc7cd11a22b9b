"""The real seams of a session on this machine."""

from __future__ import annotations

from kdaprof.instruments import environment
from kdaprof.instruments.conditions import BUSY_WINDOW_NS, snapshot
from kdaprof.instruments.nvml import open_nvml
from kdaprof.probe.benches import make_bench
from kdaprof.probe.child import spawn
from kdaprof.probe.lab import Lab
from kdaprof.probe.plan import Plan
from kdaprof.runs.conditions import ConditionsSnapshot
from kdaprof.runs.environment import Environment
from kdaprof.runs.progress import Progress


def real_lab(plan: Plan, progress: Progress) -> Lab:
    """Open the device of `plan` and everything that watches it.

    Errors: UnavailableError when the device is not there.
    """
    bench = make_bench(plan.device, hz=plan.effort.util_hz)

    def look(careful: bool) -> ConditionsSnapshot:
        return snapshot(bench.sensor, bench.clock, busy_window_ns=BUSY_WINDOW_NS if careful else 0)

    def collect() -> Environment:
        on_gpu = bench.device.kind == "cuda"
        return environment.collect(
            argv=plan.command,
            device=bench.device.traits if on_gpu else None,
            device_missing=None if on_gpu else "the run used the CPU",
            nvml=open_nvml(),
        )

    return Lab(
        bench=bench,
        spawn=spawn,
        snapshot=look,
        environment=collect,
        secrets=environment.secrets,
        progress=progress,
    )

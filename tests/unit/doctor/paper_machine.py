"""Machines on paper for the doctor's rules: a quiet H200 as the run in reports/ has it, and whatever a test changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kdaprof.doctor.machine import Card, Machine, PathAnswer
from kdaprof.instruments.conditions import snapshot
from kdaprof.instruments.fakes import FakeClock
from kdaprof.instruments.fakes.sensor import FakeSensor
from kdaprof.instruments.reading import Reading
from kdaprof.runs.environment import Environment, GpuHardware, HostHardware, Variable, Version

H200 = Card(
    name="NVIDIA H200", capability=(9, 0), sm_count=132, total_bytes=150_754_820_096, bandwidth_bytes_per_s=4.917e12
)
VERSIONS = {
    "python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0", "nvidia-ml-py": "13.590.44", "nvtx": "0.2.15",
    "py-spy": "0.4.1", "cuda": "13.0", "driver": "580.95.05", "nvml": "13.580.95",
}  # fmt: skip


def machine(
    *,
    versions: dict[str, str | None] | None = None,
    capability: str = "9.0",
    variables: dict[str, str] | None = None,
    sensor: FakeSensor | None = None,
    **changes: Any,
) -> Machine:
    """A machine that is fit, but for what the test changes; a version of None is not installed."""
    found = {name: version for name, version in (VERSIONS | (versions or {})).items() if version is not None}
    gpu = GpuHardware(H200.name, "GPU-1", "00000000:01:00.0", capability, 132, 62_914_560, H200.total_bytes)
    environment = Environment(
        versions=tuple(Version(name, version, None) for name, version in found.items()),
        variables=tuple(Variable(name, value) for name, value in (variables or {}).items()),
        host=HostHardware(None, "CPU", 16, "Linux", "x86_64", 1 << 37),
        gpu=gpu, gpu_missing=None, torch=None, torch_missing="on paper", argv=(), cwd=None,
        git_commit=None, git_dirty=None, git_missing=None,
    )  # fmt: skip
    seen = snapshot(
        Reading(sensor or FakeSensor()), FakeClock(), family=frozenset, process_name=lambda pid: "python",
        holds_context=False,
    )  # fmt: skip
    quiet = replace(seen, host=replace(seen.host, load1=0.1, cores_total=16, steal=0.0))
    defaults: dict[str, Any] = {
        "cards": (replace(H200, capability=tuple(map(int, capability.split(".")))),),
        "cupti_in_torch": True,
        "nvtx_missing": "no tool is attached that collects NVTX",
        "tools": {"nsys": None, "ncu": None, "py-spy": "/bin/py-spy", "cc": "/bin/cc"},
        "ptrace_scope": 0,
        "paths": (PathAnswer("fused", "float32", None), PathAnswer("fused", "bfloat16", None)),
        "conditions": quiet,
    }
    return Machine(environment=environment, **(defaults | changes))


def without_card(**changes: Any) -> Machine:
    """A laptop: no GPU, no driver."""
    made = machine(versions={"driver": None, "nvml": None, "cuda": None}, cards=(), conditions=None, **changes)
    return replace(made, environment=replace(made.environment, gpu=None, gpu_missing="no card"))

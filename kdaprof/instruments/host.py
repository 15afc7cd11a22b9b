"""The host as its kernel describes it: load, cores we may use, steal, governor, memory, container.

Each reader takes the root of the file system, so that tests give it another machine. A value that is not there
comes back as a `HostValue` with its reason: a laptop without `/proc` is no failure.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class HostValue(Generic[T]):
    """A value, or None and the reason why it is not known."""

    value: T | None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Jiffies since boot over all cores, from the first line of `/proc/stat`."""

    total: int
    steal: int


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def load1(root: Path = ROOT) -> HostValue[float]:
    """Load average over one minute: runnable and uninterruptible tasks, of the whole host even in a container."""
    text = _read(root / "proc/loadavg")
    if not text:
        return HostValue(None, "/proc/loadavg cannot be read")
    return HostValue(float(text.split()[0]))


def cores_total(root: Path = ROOT) -> HostValue[int]:
    """Logical cores that are online."""
    text = _read(root / "proc/cpuinfo")
    count = len(re.findall(r"^processor\s*:", text or "", re.MULTILINE)) or os.cpu_count()
    return HostValue(count) if count else HostValue(None, "the number of cores cannot be read")


def cores_available(root: Path = ROOT, affinity: int | None = None) -> HostValue[int]:
    """Cores that this process may use: the smaller of its CPU affinity and its cgroup's quota, at least 1.

    A quota of 2.5 cores counts as 2: half a core is not a place to run on. `affinity` is for tests.
    """
    if affinity is None:
        affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if not affinity:
        return HostValue(None, "the CPU affinity cannot be read")
    quota = _cgroup_cores(root)
    return HostValue(affinity if quota is None else max(1, min(affinity, int(quota))))


def _cgroup_cores(root: Path) -> float | None:
    """The tightest quota on the way up from our own cgroup; v2 `cpu.max`, else v1 `cpu.cfs_quota_us`."""
    limits: list[float] = []
    own = _read(root / "proc/self/cgroup") or ""
    relative = next((line.split("::", 1)[1] for line in own.splitlines() if line.startswith("0::")), "/")
    base = root / "sys/fs/cgroup"
    directory = base / relative.lstrip("/")
    for folder in (directory, *directory.parents):
        if folder == base or base in folder.parents:
            words = (_read(folder / "cpu.max") or "").split()
            if len(words) == 2 and words[0] != "max" and float(words[1]) > 0:
                limits.append(float(words[0]) / float(words[1]))
    quota, period = (_read(base / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    if quota and period and int(quota) > 0 and int(period) > 0:
        limits.append(int(quota) / int(period))
    return min(limits, default=None)


def cpu_times(root: Path = ROOT) -> HostValue[CpuTimes]:
    """Jiffies now: two readings give the steal of the time between them."""
    text = _read(root / "proc/stat")
    words = text.split("\n", 1)[0].split() if text else []
    if len(words) < 9 or words[0] != "cpu":
        return HostValue(None, "/proc/stat has no steal column")
    # user nice system idle iowait irq softirq steal; guest time is inside user and nice already.
    ticks = [int(word) for word in words[1:9]]
    return HostValue(CpuTimes(total=sum(ticks), steal=ticks[7]))


def steal_fraction(before: HostValue[CpuTimes], after: HostValue[CpuTimes]) -> HostValue[float]:
    """Share of all CPU time between two readings that the hypervisor gave to others, 0…1."""
    if before.value is None or after.value is None:
        return HostValue(None, before.missing or after.missing)
    span = after.value.total - before.value.total
    if span <= 0:
        return HostValue(None, "less than one tick between the two readings of /proc/stat")
    return HostValue(max(0, after.value.steal - before.value.steal) / span)


def governor(root: Path = ROOT) -> HostValue[str]:
    """The frequency governor, or all of them joined by a comma where cores differ."""
    cpus = root / "sys/devices/system/cpu"
    names = {text.strip() for path in sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")) if (text := _read(path))}
    if not names:
        return HostValue(None, "no cpufreq driver (usual in a virtual machine)")
    return HostValue(",".join(sorted(names)))


def memory_bytes(root: Path = ROOT) -> tuple[HostValue[int], HostValue[int]]:
    """Available and total memory in bytes, from `/proc/meminfo`."""
    text = _read(root / "proc/meminfo") or ""

    def field(name: str) -> HostValue[int]:
        match = re.search(rf"^{name}:\s*(\d+) kB", text, re.MULTILINE)
        return HostValue(int(match[1]) * 1024) if match else HostValue(None, f"/proc/meminfo has no {name}")

    return field("MemAvailable"), field("MemTotal")


def memory_pressure(root: Path = ROOT) -> HostValue[float]:
    """Share of the last 10 s in which some task waited for memory, 0…1, from `/proc/pressure/memory` (PSI)."""
    text = _read(root / "proc/pressure/memory")
    match = re.search(r"^some\b.*\bavg10=(\d+(?:\.\d+)?)", text or "", re.MULTILINE)
    return HostValue(float(match[1]) / 100) if match else HostValue(None, "this kernel has no /proc/pressure/memory")


def container(root: Path = ROOT) -> HostValue[str]:
    """A hint at the container runtime, `none seen` where nothing points to one. A hint, not a proof."""
    if (root / ".dockerenv").exists():
        return HostValue("docker")
    if (root / "run/.containerenv").exists():
        return HostValue("podman")
    groups = _read(root / "proc/1/cgroup")
    if groups is None:
        return HostValue(None, "/proc/1/cgroup cannot be read")
    match = re.search(r"kubepods|docker|containerd|lxc|slurm", groups)
    return HostValue(match[0] if match else "none seen")


def cpu_model(root: Path = ROOT) -> str | None:
    """The CPU's name, from `/proc/cpuinfo`."""
    match = re.search(r"^model name\s*:\s*(.+)$", _read(root / "proc/cpuinfo") or "", re.MULTILINE)
    return match[1].strip() if match else None

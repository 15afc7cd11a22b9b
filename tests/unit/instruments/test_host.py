from __future__ import annotations

from pathlib import Path

import pytest

from kdaprof.instruments import host


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_real_machine_answers() -> None:
    load = host.load1().value
    assert load is not None
    assert load >= 0
    available, total = host.cores_available().value, host.cores_total().value
    assert available is not None
    assert total is not None
    assert 1 <= available <= total
    free, memory = host.memory_bytes()
    assert free.value is not None
    assert memory.value is not None
    assert 0 < free.value <= memory.value


def test_an_empty_machine_gives_reasons_and_no_numbers(tmp_path: Path) -> None:
    free, memory = host.memory_bytes(tmp_path)
    for value in (
        host.load1(tmp_path),
        host.cpu_times(tmp_path),
        host.governor(tmp_path),
        host.container(tmp_path),
        free,
        memory,
    ):
        assert value.value is None
        assert value.missing


@pytest.mark.parametrize(
    ("files", "affinity", "cores"),
    [
        ({}, 20, 20),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "250000 100000\n"}, 20, 2),
        # The tighter limit is the parent's.
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/cpu.max": "400000 100000\n",
            },
            20,
            4,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "800000 100000\n"}, 3, 3),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 8, 1),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 8, 8),
    ],
)
def test_cores_we_may_use(tmp_path: Path, files: dict[str, str], affinity: int, cores: int) -> None:
    assert host.cores_available(machine(tmp_path, files), affinity).value == cores


def test_steal_is_the_share_between_two_readings(tmp_path: Path) -> None:
    before = host.cpu_times(machine(tmp_path, {"proc/stat": "cpu  100 0 50 800 0 0 0 50 0 0\n"}))
    after = host.cpu_times(machine(tmp_path, {"proc/stat": "cpu  150 0 50 830 0 0 0 70 0 0\n"}))
    assert host.steal_fraction(before, after).value == pytest.approx(20 / 100)
    same = host.steal_fraction(after, after)
    assert same.value is None
    assert "one tick" in (same.missing or "")


def test_guest_time_is_not_counted_twice(tmp_path: Path) -> None:
    times = host.cpu_times(machine(tmp_path, {"proc/stat": "cpu 10 1 1 1 1 1 1 1 9 1\n"})).value
    assert times == host.CpuTimes(total=17, steal=1)


def test_mixed_governors_are_all_named(tmp_path: Path) -> None:
    cpus = "sys/devices/system/cpu"
    root = machine(
        tmp_path,
        {
            f"{cpus}/cpu0/cpufreq/scaling_governor": "powersave\n",
            f"{cpus}/cpu1/cpufreq/scaling_governor": "performance\n",
        },
    )
    assert host.governor(root).value == "performance,powersave"


@pytest.mark.parametrize(
    ("files", "hint"),
    [
        ({".dockerenv": ""}, "docker"),
        ({"run/.containerenv": ""}, "podman"),
        ({"proc/1/cgroup": "0::/kubepods/pod1\n"}, "kubepods"),
        ({"proc/1/cgroup": "0::/init.scope\n"}, "none seen"),
    ],
)
def test_container_hint(tmp_path: Path, files: dict[str, str], hint: str) -> None:
    assert host.container(machine(tmp_path, files)).value == hint


def test_memory_pressure_is_the_share_of_time_in_which_some_task_waited(tmp_path: Path) -> None:
    assert "no /proc/pressure/memory" in (host.memory_pressure(tmp_path).missing or "")
    file = tmp_path / "proc/pressure/memory"
    file.parent.mkdir(parents=True)
    file.write_text("some avg10=12.50 avg60=1.00 avg300=0.10 total=123\nfull avg10=3.00 avg60=0.00 total=1\n")
    assert host.memory_pressure(tmp_path).value == 0.125

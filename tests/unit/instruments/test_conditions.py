from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from kdaprof.instruments.conditions import name_of_process, own_process_tree, snapshot
from kdaprof.instruments.fakes import FakeClock, FakeSensor, no_sensor
from kdaprof.instruments.reading import Reading
from kdaprof.instruments.sensor import GpuProcess, GpuSensor, ProcessUtilisation, Utilisation
from kdaprof.runs.conditions import LIMITING_REASONS, ConditionsSnapshot, ForeignProcess

OURS = frozenset({100, 101})
NAMES = {100: "python", 101: "python", 555: "train.py"}


def look(sensor: FakeSensor, *, window_ns: int = 0, holds_context: bool = False) -> ConditionsSnapshot:
    reading: Reading[GpuSensor] = Reading(sensor)
    return snapshot(
        reading,
        FakeClock(),
        busy_window_ns=window_ns,
        family=lambda: OURS,
        process_name=NAMES.get,
        holds_context=holds_context,
    )


def with_processes(*processes: GpuProcess) -> FakeSensor:
    sensor = FakeSensor()
    sensor.values["processes"] = processes
    return sensor


def test_our_own_processes_are_exempt_and_a_foreign_one_is_named() -> None:
    sensor = with_processes(GpuProcess(100, 1 << 30), GpuProcess(555, 3 << 30), GpuProcess(101, None))
    sensor.values["process_utilisation"] = (ProcessUtilisation(555, 0.4), ProcessUtilisation(100, 0.1))
    gpu = look(sensor, holds_context=True).gpu
    assert gpu is not None
    assert gpu.foreign == (ForeignProcess(555, "train.py", 3 << 30, 0.4),)


def test_nobody_else_is_an_empty_list_and_not_missing() -> None:
    seen = look(with_processes(GpuProcess(100, 1)), holds_context=True)
    assert seen.gpu is not None
    assert seen.gpu.foreign == ()
    assert seen.reason("gpu.foreign") is None


@pytest.mark.parametrize(
    ("processes", "holds_context"),
    [
        ((GpuProcess(4321, 5 << 30),), False),  # a pid that this namespace does not have
        ((), True),  # we are on the card, and the card's list does not show us
        ((GpuProcess(555, 5 << 30),), True),
    ],
)
def test_pids_of_another_namespace_make_no_claim(processes: tuple[GpuProcess, ...], holds_context: bool) -> None:
    seen = look(with_processes(*processes), holds_context=holds_context)
    assert seen.gpu is not None
    assert seen.gpu.foreign is None
    told = seen.reason("gpu.foreign") or ""
    assert "--pid=host" in told
    assert told.startswith("the card's 1 process ids are" if processes else "the card lists no process")


def test_busy_before_averages_the_second_half_of_the_window_only() -> None:
    # The first readings still hold our own work from before the window.
    sensor = FakeSensor(utilisations=[Utilisation(u, 0) for u in (0.2, 0.2, 0.2, 0.2, 0.7, 0.0)])
    seen = look(sensor, window_ns=1_000_000_000)
    assert seen.gpu is not None
    assert seen.gpu.util_before == pytest.approx((0.2 * 4 + 0.7) / 5)
    assert seen.gpu.busy_window_ns == 1_000_000_000
    assert seen.monotonic_ns == 1_000_000 + 1_000_000_000


def test_a_card_that_was_not_watched_says_so() -> None:
    seen = look(FakeSensor())
    assert seen.gpu is not None
    assert (seen.gpu.util_before, seen.reason("gpu.util_before")) == (None, "not watched")


def test_every_absent_value_has_its_reason() -> None:
    sensor = FakeSensor().fail("not-supported", "not on this card")
    seen = look(sensor, window_ns=1_000_000_000)
    assert seen.gpu is not None
    for name in ("gpu", "host"):
        part = getattr(seen, name)
        for field in part.__dataclass_fields__:
            if getattr(part, field) is None:
                assert seen.reason(f"{name}.{field}"), field
    assert seen.reason("gpu.power_w") == "not on this card"


def test_no_card_is_one_reason_for_all_its_fields() -> None:
    seen = snapshot(no_sensor("no driver"), FakeClock(), busy_window_ns=0)
    assert seen.gpu is None
    assert seen.reason("gpu") == seen.reason("gpu.power_w") == "no driver"
    assert seen.reason("host.load1") is None


def test_throttle_reasons_pass_through_and_idle_is_no_limit() -> None:
    sensor = FakeSensor()
    sensor.values["throttle_reasons"] = ("gpu_idle", "sw_power_cap")
    gpu = look(sensor).gpu
    assert gpu is not None
    assert gpu.throttle_reasons is not None
    assert LIMITING_REASONS.intersection(gpu.throttle_reasons) == {"sw_power_cap"}


def test_a_snapshot_survives_the_way_to_disk_and_back() -> None:
    seen = look(with_processes(GpuProcess(555, None)))
    assert msgspec.json.decode(msgspec.json.encode(seen), type=ConditionsSnapshot) == seen


def test_steal_is_measured_over_the_window(tmp_path: Path) -> None:
    stat = tmp_path / "proc/stat"
    stat.parent.mkdir()
    stat.write_text("cpu 0 0 0 100 0 0 0 0\n")

    class Passing(FakeClock):
        def sleep_ns(self, duration_ns: int) -> None:
            super().sleep_ns(duration_ns)
            stat.write_text("cpu 0 0 0 190 0 0 0 10\n")

    seen = snapshot(no_sensor(), Passing(), busy_window_ns=1_000_000_000, root=tmp_path)
    assert seen.host.steal == pytest.approx(0.1)


def test_real_process_tree_holds_parent_self_and_child() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        tree = own_process_tree()
        assert {os.getpid(), os.getppid(), child.pid} <= tree
        assert name_of_process(child.pid)
    finally:
        child.communicate(b"\n")
    assert name_of_process(max(psutil.pids()) + 100_000) is None

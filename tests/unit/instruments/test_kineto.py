"""Profiled repeats on the CPU, for real: borders, counts, and a profiler that is always left off."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from kdaprof.errors import KdaprofError, UnavailableError, UsageError
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.cupti import conflict, torch_profiler_is_on
from kdaprof.instruments.device import CpuDevice
from kdaprof.instruments.fakes import FakeClock, FakeDevice
from kdaprof.instruments.kineto import KinetoRecording, record


def work() -> torch.Tensor:
    x = torch.ones(64, 64)
    return torch.softmax(x @ x, -1)


def recorded(tmp_path: Path, **options: Any) -> tuple[KinetoRecording, dict[str, Any]]:
    out = tmp_path / "trace.json.gz"
    fn = options.pop("fn", work)
    recording = record(fn, 3, mode="full", device=CpuDevice(), clock=MonotonicClock(), out_path=out, **options)
    return recording, json.loads(gzip.decompress(out.read_bytes()))


def ns(event: dict[str, Any], base: int) -> tuple[int, int]:
    return base + round(event["ts"] * 1000), round(event["dur"] * 1000)


def test_each_repeat_has_its_range_to_the_nanosecond_and_its_operators_inside(tmp_path: Path) -> None:
    recording, trace = recorded(tmp_path)
    base = trace["baseTimeNanoseconds"]
    assert recording.contents.base_unix_ns == base
    ranges = {e["name"]: e for e in trace["traceEvents"] if e.get("cat") == "user_annotation"}
    matmuls = [e for e in trace["traceEvents"] if e.get("name") == "aten::mm"]
    assert sorted(ranges) == [f"kdaprof.repeat#{i}" for i in range(3)]
    # The warm-up was watched, not recorded.
    assert len(matmuls) == 3
    for repeat in recording.repeats:
        # A double holds ts to about 1 ns at this size; the text itself is exact (next test).
        start, duration = ns(ranges[f"kdaprof.repeat#{repeat.index}"], base)
        assert abs(start - repeat.unix_ns) <= 1_000
        assert duration == repeat.wall_ns
        inside = [m for m in matmuls if start <= ns(m, base)[0] and sum(ns(m, base)) <= start + duration]
        assert len(inside) == 1


def test_the_text_of_a_range_is_exact(tmp_path: Path) -> None:
    recording, _ = recorded(tmp_path)
    text = gzip.decompress((tmp_path / "trace.json.gz").read_bytes()).decode()
    base = recording.contents.base_unix_ns
    assert base is not None
    first = recording.repeats[0]
    whole, part = divmod(first.unix_ns - base, 1000)
    assert f'"ts": {whole}.{part:03d}, "dur": {first.wall_ns // 1000}.{first.wall_ns % 1000:03d}' in text


def test_the_file_carries_its_borders_and_clock_pairs_and_not_the_hosts_name(tmp_path: Path) -> None:
    recording, trace = recorded(tmp_path)
    own = trace["kdaprof"]
    assert own["mode"] == "full"
    assert [r["wall_ns"] for r in own["repeats"]] == [r.wall_ns for r in recording.repeats]
    assert own["pairs"][0]["monotonic_ns"] == recording.pairs[0].monotonic_ns
    first, last = recording.pairs
    assert all(first.monotonic_ns < r.t_ns < last.monotonic_ns for r in recording.repeats)
    assert "host_name" not in trace


def test_host_ends_before_wall_and_the_stage_is_in_neither(tmp_path: Path) -> None:
    clock = FakeClock()
    device = FakeDevice(clock, kind="cpu")
    staged: list[int] = []

    def stage(index: int) -> None:
        staged.append(index)
        device.launch(host_ns=7_000, device_ns=50_000)

    recording = record(
        lambda: (work(), device.launch(300, 2_000)),
        3,
        mode="full",
        device=device,
        clock=clock,
        out_path=tmp_path / "t.json",
        stage=stage,
        warmup=1,
    )
    assert staged == [0, 0, 1, 2]
    assert [(r.host_ns, r.wall_ns) for r in recording.repeats] == [(300, 2_300)] * 3


@pytest.mark.parametrize("good_calls", [0, 3])
def test_a_call_that_fails_leaves_the_profiler_off(tmp_path: Path, good_calls: int) -> None:
    calls = 0

    def fails() -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls > good_calls:
            raise ValueError("from the workload")
        return work()

    with pytest.raises(ValueError, match="from the workload"):
        recorded(tmp_path, fn=fails)
    assert not torch_profiler_is_on()
    assert list(tmp_path.iterdir()) == []
    assert len(recorded(tmp_path)[0].repeats) == 3


def test_a_second_profiler_in_the_process_is_found_before_the_run(tmp_path: Path) -> None:
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
        pytest.raises(UnavailableError, match="already recording"),
    ):
        recorded(tmp_path)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    def ask(repeats: int, mode: Any) -> None:
        record(work, repeats, mode=mode, device=CpuDevice(), clock=MonotonicClock(), out_path=tmp_path / "t.json")

    with pytest.raises(UsageError, match="at least one"):
        ask(0, "full")
    with pytest.raises(UsageError, match="use mode full"):
        ask(1, "cuda")


def test_a_device_trace_without_device_events_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kdaprof.instruments import kineto

    # A CUDA device whose trace holds only CPU events: what is left when another subscriber has CUPTI.
    monkeypatch.setattr(kineto, "_activities", lambda mode, device: [torch.profiler.ProfilerActivity.CPU])
    recording = record(work, 1, mode="cuda", device=FakeDevice(), clock=MonotonicClock(), out_path=tmp_path / "t.json")
    assert "another profiler may hold CUPTI" in (recording.missing or "")


def test_an_unwritable_target_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("in the way")
    with pytest.raises((KdaprofError, OSError)):
        record(work, 1, mode="full", device=CpuDevice(), clock=MonotonicClock(), out_path=target / "t.json")
    assert target.read_text() == "in the way"


@pytest.mark.parametrize(
    ("environ", "maps", "names"),
    [
        ({"NSYS_PROFILING_SESSION_ID": "1"}, "", "Nsight Systems"),
        ({"CUDA_INJECTION64_PATH": "/x.so"}, "", "CUDA_INJECTION64_PATH"),
        ({}, "7f00 r-xp /opt/nsight/libToolsInjection64.so", "Nsight Systems"),
        ({}, "7f00 r-xp /opt/ncu/libcuda-injection.so", "Nsight Compute"),
    ],
)
def test_holders_of_cupti_are_named(environ: dict[str, str], maps: str, names: str) -> None:
    found = conflict(uses_cupti=True, environ=environ, maps=maps)
    assert found is not None
    assert names in found
    assert conflict(uses_cupti=False, environ=environ, maps=maps) is None


def test_nobody_holds_cupti() -> None:
    assert conflict(uses_cupti=True, environ={"PATH": "/bin"}, maps="7f00 r-xp /lib/libcuda.so.1") is None

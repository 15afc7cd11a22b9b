"""Nsight Systems exports: a small database of our own, older layouts, damaged ones, and the shared fixture."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from kdaprof.analysis.trace.busy import device_busy
from kdaprof.analysis.trace.links import link
from kdaprof.analysis.trace.report import analyse
from kdaprof.errors import BadFileError
from kdaprof.timeline.columns import Kind, Timeline
from kdaprof.timeline.load import load

SHARED = Path(__file__).parents[3].parent / "shared" / "traces" / "h100-2gpu-nsys.sqlite"

PROCESS = 77
GLOBAL_PID = (1 << 48) | (PROCESS << 24)
THREAD = GLOBAL_PID | 4242
NAMES = {1: "a_kernel(float*)", 2: "a_kernel", 3: "cudaLaunchKernel_v7000", 4: "cudaMemcpyAsync_v3020", 5: "range"}


def export(path: Path, *, full: bool = True) -> Path:
    """A copy device to pageable host of 10 µs after a kernel of 5 µs. Not `full`: as an old or sparse export."""
    with closing(sqlite3.connect(path)) as database:
        run = database.execute
        run("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", NAMES.items())
        extra = ", graphNodeId INTEGER, demangledName INTEGER" if full else ""
        run(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,"
            f" correlationId INTEGER, globalPid INTEGER, shortName INTEGER{extra})"
        )
        row = (10_000, 15_000, 1, 7, 5, GLOBAL_PID, 2)
        full_row = (*row, None, 1)
        run(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * (9 if full else 7))})",
            full_row if full else row,
        )
        run(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,"
            " correlationId INTEGER, nameId INTEGER)"
        )
        run("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (7000, 9000, ?, 5, 3)", (THREAD,))
        if full:
            run(
                "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER,"
                " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, copyKind INTEGER, srcKind INTEGER,"
                " dstKind INTEGER)"
            )
            run("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (20000, 30000, 1, 7, 6, ?, 2, 2, 0)", (GLOBAL_PID,))
            run("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (18000, 31000, ?, 6, 4)", (THREAD,))
            run(
                "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER,"
                " globalTid INTEGER)"
            )
            marks = [
                (6_000, 32_000, 59, None, 5, THREAD),
                (6_500, 9_500, 59, "aten::mul, op_id = 12", None, THREAD),
                (6_600, None, 34, "a mark", None, THREAD),
                (1_000, 40_000, 60, "train step 3", None, THREAD),
            ]
            database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", marks)
            run("CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT)")
            run("INSERT INTO TARGET_INFO_GPU VALUES (1, 'NVIDIA Test')")
            run("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, systemClockNs INTEGER)")
            run("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1000000, 400000)")
        database.commit()
    return path


def named(timeline: Timeline) -> list[tuple[str, str]]:
    return [(Kind(int(timeline.kind[row])).name, timeline.name_of(row)) for row in range(len(timeline))]


def test_kernels_copies_calls_and_ranges(tmp_path: Path) -> None:
    timeline = load(export(tmp_path / "r.sqlite"))
    assert named(timeline) == [
        ("KERNEL", "a_kernel(float*)"),
        ("MEMCPY", "Memcpy DtoH (Device -> Pageable)"),
        ("RUNTIME", "cudaLaunchKernel_v7000"),
        ("RUNTIME", "cudaMemcpyAsync_v3020"),
        ("ANNOTATION", "range"),
        ("CPU_OP", "aten::mul"),
        ("ANNOTATION", "train step 3"),
    ]
    assert timeline.threads[0].pid == PROCESS
    assert timeline.threads[0].tid == 4242
    assert timeline.source.devices[0].name == "NVIDIA Test"
    assert timeline.source.base_ns == 600_000
    links = link(timeline)
    assert links.call_of.tolist()[:2] == [2, 3]
    assert links.synchronises.tolist()[3], "a copy to pageable memory holds the host"
    found = analyse(timeline)
    assert found.devices[0].device == 1
    assert found.devices[0].steps[0].index == 3
    assert (found.devices[0].busy.kernel_busy_ns, found.devices[0].busy_ns) == (5_000, 15_000)


def test_an_export_without_copies_nvtx_and_newer_columns(tmp_path: Path) -> None:
    timeline = load(export(tmp_path / "old.sqlite", full=False))
    assert named(timeline) == [("KERNEL", "a_kernel"), ("RUNTIME", "cudaLaunchKernel_v7000")]
    assert timeline.source.base_ns is None
    assert timeline.source.devices == ()


def test_correlations_count_in_each_process_apart(tmp_path: Path) -> None:
    path = export(tmp_path / "two.sqlite")
    other = (1 << 48) | (78 << 24)
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (50000, 51000, 0, 7, 5, ?, 2, NULL, 1)", (other,)
        )
        database.commit()
    timeline = load(path)
    links = link(timeline)
    assert links.call_of.tolist()[:2] == [3, -1], "the other process has launched nothing that was recorded"


def test_damaged_and_foreign_databases_are_one_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty.sqlite"
    with closing(sqlite3.connect(empty)) as database:
        database.execute("CREATE TABLE something (a INTEGER)")
        database.commit()
    with pytest.raises(BadFileError, match="no events"):
        load(empty)
    whole = export(tmp_path / "whole.sqlite").read_bytes()
    cut = tmp_path / "cut.sqlite"
    for size in (17, 100, 1_000, len(whole) // 2):
        cut.write_bytes(whole[:size])
        with pytest.raises(BadFileError):
            load(cut)


def test_random_damage_is_one_error_or_a_timeline(tmp_path: Path) -> None:
    whole = export(tmp_path / "whole.sqlite").read_bytes()
    random = Random(5)
    path = tmp_path / "damaged.sqlite"
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(random.choice((1, 3, 20))):
            data[random.randrange(100, len(data))] = random.randrange(256)
        path.write_bytes(bytes(data))
        try:
            analyse(load(path))
        except BadFileError:
            refused += 1
    assert 0 < refused < 300


@pytest.mark.skipif(not SHARED.is_file(), reason=f"the shared traces are not at {SHARED.parent}")
def test_kernels_alone_and_with_copies_stand_side_by_side() -> None:
    timeline = load(SHARED)
    expected = {0: (22.385, 962.89, 969.448), 1: (22.444, 962.811, 969.259)}
    for device, (kernels, busy, span) in expected.items():
        found = device_busy(timeline, device)
        assert found is not None
        assert found.kernel_busy_ns / 1e6 == pytest.approx(kernels, abs=0.0005)
        assert found.busy_ns / 1e6 == pytest.approx(busy, abs=0.0005)
        assert found.span_ns / 1e6 == pytest.approx(span, abs=0.0005)
        assert found.events == 1721 + 463
    text = [finding.text for finding in analyse(timeline).findings if finding.id == "copies-keep-the-device-busy"]
    assert len(text) == 2
    assert "2.3 %" in text[0]
    assert "99.3 %" in text[0]

"""Kineto traces as columns: exact times, every layout, every category."""

from __future__ import annotations

import gc
import gzip
import json
import sys
import tracemalloc
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "trace_analysis"))
from paper_trace import PaperTrace

from kdaprof.errors import BadFileError
from kdaprof.timeline import kineto
from kdaprof.timeline.columns import Kind, Thread


def trace() -> PaperTrace:
    made = PaperTrace()
    made.annotation("ProfilerStep#3", 0, 90_000)
    made.op("aten::add", 1_000, 5_001)
    made.launch((2_000, 3_000), (4_000, 5_500))
    made.launch((6_000, 7_000), (8_000, 9_500), api="cudaMemcpyAsync", cat="gpu_memcpy", name="Memcpy HtoD", stream=20)
    made.kernel(10_000, 11_000, None)
    return made


def test_columns_of_a_small_trace(tmp_path: Path) -> None:
    made = trace()
    made.meta = {"baseTimeNanoseconds": 1_700_000_000_000_000_000, "distributedInfo": {"rank": 3, "world_size": 8}}
    timeline = made.timeline(tmp_path)
    assert [Kind(kind).name for kind in timeline.kind.tolist()] == [
        "ANNOTATION", "CPU_OP", "RUNTIME", "KERNEL", "RUNTIME", "MEMCPY", "KERNEL",
    ]  # fmt: skip
    assert timeline.start_ns.tolist() == [0, 1_000, 2_000, 4_000, 6_000, 8_000, 10_000]
    assert timeline.end_ns.tolist() == [90_000, 5_001, 3_000, 5_500, 7_000, 9_500, 11_000]
    assert timeline.correlation.tolist() == [-1, -1, 1, 1, 2, 2, -1]
    assert timeline.stream.tolist() == [-1, -1, -1, 7, -1, 20, 7]
    assert timeline.device.tolist() == [-1, -1, -1, 0, -1, 0, 0]
    assert timeline.thread.tolist() == [0, 0, 0, -1, 0, -1, -1]
    assert timeline.threads == (Thread(pid=100, tid=100),)
    assert (timeline.source.rank, timeline.source.world_size) == (3, 8)
    assert timeline.source.base_ns == 1_700_000_000_000_000_000
    assert timeline.source.complete
    assert timeline.source.counts.kept == timeline.source.counts.read == 7


@pytest.mark.parametrize("chunk", [64, 257, 1000, 1 << 20])
@pytest.mark.parametrize("indent", [None, 0, 1, 2, 4])
def test_every_layout_gives_the_same_columns(tmp_path: Path, indent: int | None, chunk: int) -> None:
    """Pretty, minified, and with names that look like the border between two events."""
    made = trace()
    made.op('odd "},\n  {" name } ] [ { \\" \\\\', 20_000, 21_000)
    made.op("last", 21_000, 22_000)
    document = json.loads(made.text(), parse_float=float)
    path = tmp_path / "layout.json"
    path.write_text(json.dumps(document, indent=indent, separators=(",", ":") if indent is None else None))
    reference = made.timeline(tmp_path)
    timeline = kineto.read(path, chunk_bytes=chunk)
    assert timeline.start_ns.tolist() == reference.start_ns.tolist()
    assert timeline.end_ns.tolist() == reference.end_ns.tolist()
    assert [timeline.name_of(row) for row in range(len(timeline))] == [
        reference.name_of(row) for row in range(len(reference))
    ]
    assert timeline.source.complete
    assert not timeline.source.notes


@pytest.mark.parametrize(
    ("ts", "dur", "start_ns", "end_ns"),
    [
        ("5317093638194.216", "2.390", 5_317_093_638_194_216, 5_317_093_638_196_606),
        ("1676580804590123", "104", 1_676_580_804_590_123_000, 1_676_580_804_590_227_000),
        ("1676580804590123.457", "0.001", 1_676_580_804_590_123_457, 1_676_580_804_590_123_458),
        ("1676580804590123.999", "1.001", 1_676_580_804_590_123_999, 1_676_580_804_590_125_000),
        ("0.001", "0.0004", 1, 1),
        ("12", "3", 12_000, 15_000),
        ("1.5e3", "2e0", 1_500_000, 1_502_000),
    ],
)
def test_times_are_exact_integer_nanoseconds(tmp_path: Path, ts: str, dur: str, start_ns: int, end_ns: int) -> None:
    path = tmp_path / "times.json"
    event = f'{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": {ts}, "dur": {dur}}}'
    path.write_text(f'{{"traceEvents": [{event},\n{event}]}}')
    timeline = kineto.read(path)
    assert timeline.start_ns.tolist() == [start_ns] * 2
    assert timeline.end_ns.tolist() == [end_ns] * 2


def test_a_change_of_the_clock_in_the_middle_stays_exact(tmp_path: Path) -> None:
    """The decoder starts with doubles and must notice when they no longer hold the fraction."""
    path = tmp_path / "mixed.json"
    lines = [
        f'{{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": {ts}, "dur": 1}}'
        for ts in ("8796093022207.999", "8796093022208.001", "8796093022209", "8796093022210.457")
    ]
    path.write_text('{"traceEvents": [\n' + ",\n".join(lines) + "\n]}")
    assert kineto.read(path, chunk_bytes=90).start_ns.tolist() == [
        8_796_093_022_207_999,
        8_796_093_022_208_001,
        8_796_093_022_209_000,
        8_796_093_022_210_457,
    ]


def test_gzip_and_several_members(tmp_path: Path) -> None:
    text = trace().text().encode()
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(text[:100]) + gzip.compress(text[100:]))
    assert len(kineto.read(path)) == 7


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("Kernel", Kind.KERNEL),
        ("kernel", Kind.KERNEL),
        ("concurrent_kernel", Kind.KERNEL),
        ("Memcpy", Kind.MEMCPY),
        ("gpu_memset", Kind.MEMSET),
        ("Memset", Kind.MEMSET),
        ("Runtime", Kind.RUNTIME),
        ("cuda_driver", Kind.DRIVER),
        ("Operator", Kind.CPU_OP),
        ("user_annotation", Kind.ANNOTATION),
        ("gpu_user_annotation", Kind.GPU_ANNOTATION),
        ("overhead", Kind.OVERHEAD),
        ("python_function", Kind.PYTHON),
    ],
)
def test_categories_of_old_and_new_profilers(tmp_path: Path, category: str, kind: Kind) -> None:
    made = PaperTrace()
    made.event(category, "x", 0, 1_000, pid=0, tid="stream 7")
    assert made.timeline(tmp_path).kind.tolist() == [kind]


def test_old_profilers_wrote_annotations_as_operators_and_threads_twice(tmp_path: Path) -> None:
    made = PaperTrace()
    made.event("Operator", "ProfilerStep#5", 0, 9_000, pid=7, tid="7")
    made.event("Operator", "aten::add", 0, 9_000, pid=7, tid=7)
    made.event("Kernel", "k", 0, 9_000, pid=2, tid="stream 13")
    timeline = made.timeline(tmp_path)
    assert timeline.kind.tolist() == [Kind.ANNOTATION, Kind.CPU_OP, Kind.KERNEL]
    assert timeline.thread.tolist() == [0, 0, -1]
    assert (timeline.device.tolist()[2], timeline.stream.tolist()[2]) == (2, 13)


def test_an_operator_with_a_stream_is_no_device_work(tmp_path: Path) -> None:
    made = PaperTrace()
    made.event("cpu_op", "triton_poi_fused", 0, 9_000, pid=1, tid=1, stream=0, device=0)
    timeline = made.timeline(tmp_path)
    assert timeline.devices() == ()
    assert timeline.stream.tolist() == [-1]


def test_collection_of_garbage_is_put_back(tmp_path: Path) -> None:
    assert gc.isenabled()
    trace().timeline(tmp_path)
    assert gc.isenabled()
    with pytest.raises(BadFileError):
        kineto.read(tmp_path / "absent.json")
    assert gc.isenabled()


def test_memory_grows_with_the_columns_not_with_the_text(tmp_path: Path) -> None:
    peaks, sizes = [], []
    for events in (600, 2_400):
        made = PaperTrace()
        for index in range(events):
            made.event("cpu_op", "op", index, index + 1, pid=1, tid=1, junk="x" * 20_000)
        path = made.write(tmp_path / "wide.json")
        del made
        tracemalloc.start()
        try:
            assert len(kineto.read(path)) == events
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        sizes.append(path.stat().st_size)
    assert sizes[1] - sizes[0] > 35_000_000
    assert peaks[1] - peaks[0] < 2_000_000

"""Damaged, odd and malicious traces (CASES 18, 21 to 28, 30): read where possible with a warning, else one line."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

sys.path.append(str(Path(__file__).parents[1] / "unit" / "trace_analysis"))
from paper_trace import PaperTrace

from kdaprof.analysis.trace.busy import device_busy
from kdaprof.analysis.trace.devices import TraceReport
from kdaprof.analysis.trace.report import analyse
from kdaprof.cli.main import main
from kdaprof.errors import BadFileError, Exit
from kdaprof.timeline import kineto
from kdaprof.timeline.columns import Timeline
from kdaprof.timeline.load import load


def good() -> PaperTrace:
    made = PaperTrace()
    made.annotation("ProfilerStep#1", 0, 30_000)
    made.op("aten::mul", 1_000, 4_000)
    made.launch((2_000, 3_000), (4_000, 6_000))
    made.launch((8_000, 9_000), (10_000, 12_000), name="second")
    made.call("cudaDeviceSynchronize", 12_500, 13_000)
    return made


def report(path: Path) -> TraceReport:
    return analyse(load(path))


def kernels(timeline: Timeline) -> list[tuple[int, int]]:
    rows = timeline.device_mask
    return list(zip(timeline.start_ns[rows].tolist(), timeline.end_ns[rows].tolist(), strict=True))


def loaded_or_refused(path: Path) -> Timeline | None:
    """The timeline, or None after a refusal that names the file on one line."""
    try:
        return load(path)
    except BadFileError as error:
        text = str(error)
    assert str(path) in text
    assert "\n" not in text
    return None


# ---------------------------------------------------------------- truncation and damage


@pytest.mark.parametrize("packed", [False, True])
def test_truncation_at_every_byte_is_an_error_or_a_warning_never_a_silent_loss(tmp_path: Path, packed: bool) -> None:
    whole = good().text().encode()
    data = gzip.compress(whole, mtime=0) if packed else whole
    path = tmp_path / "cut.json"
    complete = [(4_000, 6_000), (10_000, 12_000)]
    read = 0
    for size in range(len(data)):
        path.write_bytes(data[:size])
        timeline = loaded_or_refused(path)
        if timeline is None:
            continue
        read += 1
        assert kernels(timeline) == complete[: len(kernels(timeline))]
        assert timeline.source.notes, f"cut at {size} of {len(data)} went unnoticed"
        if len(kernels(timeline)) < 2:
            assert not timeline.source.complete
        analyse(timeline)
    assert read > 50


TOKENS = [
    b"null", b"-1", b"1e400", b"NaN", b'"x"', b"{}", b"[]", b"[1]", b"9" * 25, b"true", b"-0.5", b'"\\ud800"', b"'",
    b"\\", b'"', b"{", b"}", b"[", b"]", b",", b"\x00", b"\xff", b"18446744073709551615", b"9223372036854775807",
    b"4611686018427387904", b"2147483648", b"9200000000000000", b"-9200000000000000",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("minified", [False, True])
def test_random_damage_is_an_error_of_one_line_or_figures_that_add_up(
    tmp_path: Path, seed: int, minified: bool
) -> None:
    whole = good().text().encode()
    base = whole.replace(b"\n  ", b"").replace(b'": ', b'":') if minified else whole
    numbers = [match.span() for match in re.finditer(rb"(?<=[:\[ ])-?\d+(\.\d+)?", base)]
    random = Random(seed)
    path = tmp_path / "damaged.json"
    for _ in range(150):
        data = bytearray(base)
        for begin, end in sorted(random.sample(numbers, random.choice((1, 2, 4))), reverse=True):
            data[begin:end] = random.choice(TOKENS)
        if random.random() < 0.5:
            at = random.randrange(len(data))
            data[at : at + random.randrange(40)] = random.choice(TOKENS)
        path.write_bytes(bytes(data))
        timeline = loaded_or_refused(path)
        if timeline is None:
            continue
        for device in analyse(timeline).devices:
            assert device.idle.total_ns == device.span_ns - device.busy_ns
            assert all(value >= 0 for value in device.idle.by_class().values())


def test_a_flipped_byte_in_gzip_keeps_what_stands_before_it(tmp_path: Path) -> None:
    made = PaperTrace()
    for index in range(20_000):
        made.launch((index * 1_000, index * 1_000 + 300), (index * 1_000 + 400, index * 1_000 + 700 + index % 97))
    data = bytearray(gzip.compress(made.text().encode()))
    data[len(data) // 2] ^= 0xFF
    path = tmp_path / "flipped.json.gz"
    path.write_bytes(bytes(data))
    timeline = load(path)
    assert 1_000 < len(timeline) < 40_000
    assert not timeline.source.complete
    assert any("damaged" in note or "too early" in note for note in timeline.source.notes)
    assert analyse(timeline).quality.verdict == "partial"


# ---------------------------------------------------------------- JSON that is none


def test_a_bare_list_of_events(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text("[" + ",\n".join(good().events) + "]")
    timeline = load(path)
    assert kernels(timeline) == [(4_000, 6_000), (10_000, 12_000)]
    assert any("bare list" in note for note in timeline.source.notes)


def test_a_bare_list_without_its_last_bracket(tmp_path: Path) -> None:
    path = tmp_path / "open.json"
    path.write_text("[" + ",\n".join(good().events) + "\n")
    timeline = load(path)
    assert len(kernels(timeline)) == 2
    assert not timeline.source.complete


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda text: text.replace('"', "'"), id="single-quotes"),
        pytest.param(lambda text: text.replace('"ph":', "ph:").replace('"cat":', "cat:"), id="unquoted-keys"),
        pytest.param(lambda text: text.replace("aten::mul", "C:\\Users\\me\\x.py"), id="windows-backslashes"),
        pytest.param(lambda text: text.replace("aten::mul", "bell\x07 tab\t null\x00"), id="control-characters"),
        pytest.param(lambda text: text.replace("aten::mul", "line\nbreak"), id="raw-newline"),
        pytest.param(lambda text: text.replace('"schemaVersion": 1', '"x": NaN, "y": -Infinity'), id="nan-in-head"),
        pytest.param(lambda text: text.replace('"args": {}', '"args": {"occupancy": NaN}'), id="nan-in-args"),
        pytest.param(lambda text: text.replace('"args": {}', '"args": [1, {"a": 2}]'), id="list-as-args"),
        pytest.param(lambda text: text.replace('"ts": 8.000', '"ts": "8.000"'), id="quoted-time"),
        pytest.param(lambda text: text.replace("}\n  ]", "},\n  ]"), id="trailing-comma"),
        pytest.param(lambda text: "\ufeff" + text, id="byte-order-mark"),
    ],
)
@pytest.mark.parametrize("chunk", [200, 1 << 20])
def test_repairable_json_is_read(tmp_path: Path, spoil: Callable[[str], str], chunk: int) -> None:
    made = good()
    made.meta = {"distributedInfo": {"rank": 2}}
    text = spoil(made.text())
    assert text != made.text()
    path = tmp_path / "odd.json"
    path.write_text(text)
    timeline = kineto.read(path, chunk_bytes=chunk)
    assert kernels(timeline) == [(4_000, 6_000), (10_000, 12_000)]
    assert timeline.source.rank == 2
    assert len(timeline) == 7


def test_bytes_that_are_no_utf8_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "latin.json"
    path.write_bytes(good().text().encode().replace(b"aten::mul", b"caf\xe9"))
    timeline = load(path)
    assert len(timeline) == 7
    assert any(name.startswith("caf") for name in timeline.names)


def test_one_unreadable_event_costs_itself_only(tmp_path: Path) -> None:
    made = good()
    made.events.insert(2, '{"ph": "X", "cat": "cpu_op" ! "name": "broken"}')
    timeline = load(made.write(tmp_path / "one.json"))
    assert len(timeline) == 7
    assert timeline.source.counts.dropped == {"unreadable": 1}
    assert analyse(timeline).quality.verdict != "good"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"{}", "no list of trace events"),
        (b"[]", "no events"),
        (b'{"traceEvents": []}', "no events"),
        (b'{"traceEvents": 5}', "no list of trace events"),
        (b"hello", "not JSON"),
        (b"\x00\x01\x02\x03", "not JSON"),
        (b"PK\x03\x04zip", "zip archive"),
        (b"\x1f\x8b", ""),
        (b"SQLite format 3\x00" + b"\x00" * 200, "SQLite"),
    ],
)
def test_unusable_files_are_one_line_and_exit_1(
    tmp_path: Path, content: bytes, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    assert main(["analyze", str(path)]) == Exit.ERROR
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    assert str(path) in err
    assert says in err
    assert "Traceback" not in err


def test_missing_file_and_folder_without_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(tmp_path / "absent.json")]) == Exit.ERROR
    assert main(["analyze", str(tmp_path)]) == Exit.ERROR
    assert "No such file" in capsys.readouterr().err


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "trace.json"
    os.mkfifo(pipe)
    assert main(["analyze", str(pipe)]) == Exit.ERROR
    assert "a pipe; write it to a file first" in capsys.readouterr().err


def test_a_cut_off_trace_without_device_events_asks_for_a_whole_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = PaperTrace()
    for index in range(50):
        made.op("aten::mul", index * 1_000, index * 1_000 + 500)
    whole = made.write(tmp_path / "whole.json").read_bytes()
    (tmp_path / "cut.json").write_bytes(whole[: len(whole) // 2])
    assert main(["analyze", str(tmp_path / "cut.json")]) == Exit.OK
    assert "take a whole copy" in " ".join(capsys.readouterr().out.split())


def test_deep_nesting_does_not_overflow(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(BadFileError):
        load(path)
    made = good()
    made.events.append(
        '{"ph": "X", "cat": "cpu_op", "name": "n", "ts": 1, "dur": 1, "args": ' + "[" * 5_000 + "]" * 5_000 + "}"
    )
    assert len(kernels(load(made.write(path)))) == 2


# ---------------------------------------------------------------- impossible events


def test_impossible_events_are_kept_out_and_counted(tmp_path: Path) -> None:
    start = 10**15
    made = PaperTrace()
    for index in range(20):
        at = start + index * 10_000
        made.launch((at, at + 1_000), (at + 2_000, at + 5_000))
    made.kernel(start + 300_000, start + 300_000 + 10**18, None, name="centuries")
    made.kernel(start + 310_000, start + 309_000, None, name="negative")
    made.event("kernel", "zero", 0, 1_000, pid=0, tid=7, device=0, stream=7)
    made.kernel(start + 320_000, start + 320_000 + 200 * 10**9, None, name="minutes after the end")
    made.kernel(9 * 10**18, 9 * 10**18 + 1_000, None, name="in 285 years")
    text = made.text().replace('"ts": 0.000', '"ts": 0')
    path = tmp_path / "impossible.json"
    path.write_text(text)
    timeline = load(path)
    assert len(kernels(timeline)) == 20
    assert dict(timeline.source.counts.dropped) == {
        "longer than a day": 1,
        "negative duration": 1,
        "start time 0": 1,
        "ends long after the trace": 1,
        "start time far from the others": 1,
    }
    found = analyse(timeline)
    assert found.devices[0].span_ns == 19 * 10_000 + 3_000
    assert found.quality.dropped == 5
    assert found.quality.verdict == "unfit", "5 of 45 records are impossible"
    assert found.decision.bound == "unknown"


def test_events_without_times_are_counted(tmp_path: Path) -> None:
    made = good()
    made.events.append('{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 1}')
    made.events.append('{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5}')
    made.events.append('{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1e300, "dur": 5}')
    timeline = load(made.write(tmp_path / "times.json"))
    assert len(kernels(timeline)) == 2
    assert timeline.source.counts.dropped_total == 3


def test_a_kernel_that_starts_before_its_launch_is_counted_and_its_gap_is_unclassified(tmp_path: Path) -> None:
    made = good()
    for at in (30_000, 40_000, 50_000):
        made.launch((at, at + 1_000), (at + 1_000, at + 9_000))
    made.launch((25_000, 26_000), (20_000, 21_000))
    found = report(made.write(tmp_path / "early.json"))
    assert found.quality.out_of_order == 1
    assert found.quality.verdict == "partial"
    assert found.devices[0].idle.unclassified == 8_000


def test_clocks_that_disagree_everywhere_refuse_a_verdict(tmp_path: Path) -> None:
    made = PaperTrace()
    for index in range(10):
        made.launch((index * 100_000 + 50_000, index * 100_000 + 51_000), (index * 100_000, index * 100_000 + 1_000))
    found = report(made.write(tmp_path / "clocks.json"))
    assert found.quality.verdict == "unfit"
    assert found.decision.bound == "unknown"


def test_events_lost_at_the_head_and_orphans_are_shown_and_can_block_the_verdict(tmp_path: Path) -> None:
    made = PaperTrace()
    for index in range(5):
        made.kernel(index * 10_000, index * 10_000 + 2_000, 1_000 + index)
    made.launch((60_000, 61_000), (62_000, 63_000))
    found = report(made.write(tmp_path / "head.json"))
    assert (found.quality.orphans, found.quality.orphans_at_head) == (5, 5)
    assert found.quality.verdict == "partial"
    assert found.decision.bound == "unknown"
    assert "no launch record" in found.decision.why
    assert any("head" in note for note in found.quality.notes)


def test_overlap_on_one_stream_is_counted_and_not_added_twice(tmp_path: Path) -> None:
    made = PaperTrace()
    made.launch((0, 1_000), (2_000, 20_000))
    made.launch((1_000, 2_000), (10_000, 30_000))
    found = report(made.write(tmp_path / "overlap.json"))
    assert found.quality.overlapping == 1
    assert found.devices[0].busy_ns == 28_000


# ---------------------------------------------------------------- what other tools get wrong


def test_annotations_and_wrappers_are_no_device_time(tmp_path: Path) -> None:
    made = good()
    made.event("gpu_user_annotation", "ProfilerStep#1", 0, 10**9, pid=0, tid=7, device=0, stream=7)
    made.event("cpu_op", "triton_kernel", 0, 10**9, pid=100, tid=100, stream=0)
    made.event("cuda_sync", "Stream Wait Event", 0, 10**8, pid=0, tid=7, device=0, stream=7)
    span = device_busy(load(made.write(tmp_path / "wrap.json")))
    assert span is not None
    assert (span.busy_ns, span.span_ns) == (4_000, 8_000)


def test_a_replay_is_one_launch_and_hundreds_of_events(tmp_path: Path) -> None:
    made = PaperTrace()
    graph = made.call("cudaGraphLaunch", 0, 10_000)
    for index in range(300):
        made.kernel(20_000 + index * 2_000, 20_000 + index * 2_000 + 1_900, graph)
    found = report(made.write(tmp_path / "graph.json"))
    device = found.devices[0]
    assert sum(row.calls for row in device.launches) == 1
    assert device.busy.events == 300
    assert device.busy_ns == 300 * 1_900
    assert device.idle.graph_gap == device.idle.total_ns == 299 * 100
    assert found.decision.bound == "gpu"
    assert not any(finding.id == "many-tiny-kernels" for finding in found.findings)
    assert device.counterfactual is None


def test_a_graph_instantiated_in_every_step_is_a_finding(tmp_path: Path) -> None:
    made = PaperTrace()
    for step in range(4):
        at = step * 1_000_000
        made.annotation(f"ProfilerStep#{step}", at, at + 900_000)
        made.call("cudaGraphInstantiate", at + 1_000, at + 500_000)
        made.launch((at + 600_000, at + 601_000), (at + 602_000, at + 650_000), api="cudaGraphLaunch")
    found = report(made.write(tmp_path / "instantiate.json"))
    (finding,) = [f for f in found.findings if f.id == "graph-instantiated-repeatedly"]
    assert finding.severity == "error"
    assert finding.evidence["instantiations"] == 4
    once = good()
    once.call("cudaGraphInstantiate", 13_000, 14_000)
    assert not any(f.id == "graph-instantiated-repeatedly" for f in report(once.write(tmp_path / "once.json")).findings)


@pytest.mark.parametrize(
    "api",
    [
        "cuLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "hipLaunchKernel",
        "hipExtModuleLaunchKernel", "hipGraphLaunch", "cudaGraphLaunch", "cudaMemsetAsync", "hipMemcpyWithStream",
        "cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "hipExtLaunchMultiKernelMultiDevice",
    ],
)  # fmt: skip
def test_every_launch_api_counts(tmp_path: Path, api: str) -> None:
    made = PaperTrace()
    made.launch((0, 1_000), (2_000, 3_000), api=api)
    assert sum(row.calls for row in report(made.write(tmp_path / "api.json")).devices[0].launches) == 1


@pytest.mark.parametrize("api", ["cudaOccupancyMaxActiveBlocksPerMultiprocessor", "cudaEventQuery", "cudaMalloc"])
def test_other_calls_are_no_launches(tmp_path: Path, api: str) -> None:
    made = good()
    made.call(api, 14_000, 15_000)
    assert sum(row.calls for row in report(made.write(tmp_path / "api.json")).devices[0].launches) == 2


def test_the_last_step_counts_and_partial_ones_are_marked(tmp_path: Path) -> None:
    made = PaperTrace()
    for step in range(3):
        at = step * 100_000
        made.annotation(f"ProfilerStep#{step + 7}", at, at + 100_000)
        if step != 1:
            made.launch((at + 1_000, at + 2_000), (at + 3_000, at + 50_000))
    made.event("Trace", "PyTorch Profiler (0)", 0, 250_000, pid="Spans", tid="PyTorch Profiler")
    steps = report(made.write(tmp_path / "steps.json")).devices[0].steps
    assert [(step.index, step.partial, step.busy_ns) for step in steps] == [
        (7, False, 47_000),
        (8, True, 0),
        (9, True, 47_000),
    ]


def test_no_device_events_say_so_and_leave_the_host_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = PaperTrace()
    made.op("aten::add", 0, 5_000_000)
    path = made.write(tmp_path / "cpu.json")
    assert main(["analyze", str(path)]) == Exit.OK
    out = capsys.readouterr().out
    assert "no device event" in out
    assert main(["analyze", str(path), "--json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert document["devices"] == []
    assert document["verdict"]["bound"] == "unknown"
    assert document["quality"]["verdict"] == "unfit"
    assert document["files"][0]["host_span_ns"] == 5_000_000


# ---------------------------------------------------------------- ranks


def ranked(folder: Path, name: str, rank: int | None, world: int | None = None) -> Path:
    made = good()
    made.meta = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": world}}
    return made.write(folder / name)


def test_missing_and_doubled_ranks_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranked(tmp_path, "a.json", 0, 4)
    ranked(tmp_path, "b.json", 3, 4)
    assert main(["analyze", str(tmp_path), "--jobs", "1"]) == Exit.ERROR
    assert "ranks 1, 2 missing of 4" in capsys.readouterr().err
    ranked(tmp_path, "c.json", 1, 4)
    ranked(tmp_path, "d.json", 3, 4)
    ranked(tmp_path, "e.json", 2, 4)
    assert main(["analyze", str(tmp_path), "--jobs", "1"]) == Exit.ERROR
    err = capsys.readouterr().err
    assert "rank 3 twice: b.json, d.json" in err
    assert err.count("\n") == 1


def test_the_rank_may_stand_in_the_file_name_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranked(tmp_path, "job-rank0.json", None)
    ranked(tmp_path, "job-rank1.json", None)
    assert main(["analyze", str(tmp_path), "--jobs", "1", "--json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert [row["rank"] for row in document["ranks"]] == [0, 1]
    ranked(tmp_path, "other.json", None)
    assert main(["analyze", str(tmp_path), "--jobs", "1"]) == Exit.ERROR
    assert "no rank in other.json" in capsys.readouterr().err

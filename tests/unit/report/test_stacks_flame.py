"""The flame graph of stacks: boxes as wide as the time, folded and named so that it can be read."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from kdaprof.analysis.stacks_holds import StopClock
from kdaprof.analysis.stacks_trace import Frame, Stretch, ThreadStacks
from kdaprof.cli.stacks_run import write_recording
from kdaprof.instruments.stacks import Recording
from kdaprof.report.stacks_flame import flame_graph
from kdaprof.report.stacks_tree import shortened
from kdaprof.runs.stacks import Holds, StacksRecord

MS = 1_000_000
TRAIN = Frame("<module>", "/home/ann/train.py", 9)
FIND = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1176)
EXEC = Frame("_call_with_frames_removed", "<frozen importlib._bootstrap>", 241)
TORCH = Frame("<module>", "/venv/torch/__init__.py", 400)
LAUNCH = Frame("cudaLaunchKernel", "/usr/lib/libcudart.so.12", 0)
DRIVER, DEEPER = (Frame(name, "/usr/lib/libcuda.so.570", 0) for name in ("0x7f11", "0x7f22"))


def thread(*stacks: tuple[int, list[Frame]]) -> ThreadStacks:
    """One thread with these stacks, each for so many ms."""
    at, stretches = 0, []
    for ms, frames in stacks:
        stretches.append(Stretch(at * MS, (at + ms) * MS, tuple(frames)))
        at += ms
    return ThreadStacks(7, "MainThread", tuple(stretches))


def boxes(svg: str) -> list[tuple[int, str, float, str]]:
    """Row, label, part of the whole and colour of each box."""
    groups = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}g")
    return [
        (int(g.get("data-row", "")), g.get("data-label", ""), float(g.get("data-wide", "")), g[1].get("fill", ""))
        for g in groups
    ]


def test_a_box_is_as_wide_as_its_time_and_the_longest_stands_first() -> None:
    nap, work = Frame("nap", "/x/train.py", 4), Frame("work", "/x/train.py", 7)
    svg = flame_graph([thread((30, [TRAIN, nap]), (70, [TRAIN, work]))])
    found = [(row, label, wide) for row, label, wide, _ in boxes(svg)]
    assert found == [
        (0, "MainThread 7", 1), (1, "ann/train.py", 1), (2, "work", 0.7), (3, "line 7", 0.7), (2, "nap", 0.3),
        (3, "line 4", 0.3)]  # fmt: skip
    widths = [float(rect.get("width", "nan")) for rect in ElementTree.fromstring(svg).iterfind(".//{*}g/{*}rect")]
    assert widths[4] / widths[0] == pytest.approx(0.3, abs=0.01)
    assert boxes(flame_graph(())) == []


def test_frames_of_the_import_system_are_folded_and_modules_named_by_their_file() -> None:
    found = boxes(flame_graph([thread((60, [TRAIN, FIND, EXEC, TORCH, FIND, EXEC]), (40, [TRAIN, FIND, EXEC]))]))
    assert [(row, label, wide) for row, label, wide, _ in found][2:] == [
        (2, "torch/__init__.py", 0.6), (3, "(importing)", 0.6), (2, "(importing)", 0.4)]  # fmt: skip
    assert {colour for row, _, _, colour in found if row > 1} == {"#868e96"}  # import, as in the table of layers


def test_code_without_symbols_is_one_box_with_its_library_and_keeps_its_layer() -> None:
    (*_, launch, driver) = boxes(flame_graph([thread((50, [TRAIN, LAUNCH, DRIVER]), (50, [TRAIN, LAUNCH, DEEPER]))]))
    assert launch[:3] == (2, "cudaLaunchKernel", 1)
    assert driver[:3] == (3, "(libcuda.so.570)", 1)
    assert launch[3] == driver[3] == "#1c7ed6"


def test_own_time_is_told_by_line_where_there_is_room() -> None:
    lines = [(4, [Frame("work", "/x/train.py", 7)]), (1, [Frame("work", "/x/train.py", 8)])]
    assert [label for _, label, _, _ in boxes(flame_graph([thread(*lines)]))][2:] == ["line 7", "line 8"]
    rest = (400, [Frame("other", "", 0)])
    assert [label for _, label, _, _ in boxes(flame_graph([thread(*lines, rest)]))] == ["MainThread 7", "other", "work"]


def test_time_in_which_py_spy_stopped_the_process_has_no_width() -> None:
    stops = StopClock(np.array([10, 50]) * MS, np.array([0, 40]) * MS)  # stopped from 10 to 50 ms
    svg = flame_graph([thread((60, [Frame("a", "", 0)]), (40, [Frame("b", "", 0)]))], stops)
    assert {label: wide for _, label, wide, _ in boxes(svg)} == {
        "MainThread 7": 1, "a": pytest.approx(1 / 3), "b": pytest.approx(2 / 3)}  # fmt: skip
    assert "60.0 ms of threads" in svg


def test_the_script_has_the_measures_of_the_picture() -> None:
    script = ElementTree.fromstring(flame_graph([thread((1, [TRAIN]))])).find("{*}script")
    assert script is not None
    assert script.text is not None
    assert "10 + left * 1180" in script.text
    assert not {"LEFT", "PLOT", "CHARACTER"} & set(script.text.replace(")", " ").split())


def test_a_recording_s_picture_leaves_its_stops_out(tmp_path: Path) -> None:
    events = [
        {"name": "nap", "ph": ph, "pid": 7, "tid": 7, "ts": ts, "args": {"filename": "x.py", "line": 1}}
        for ph, ts in (("B", 0), ("E", 100_000))
    ]
    record = StacksRecord(
        tool="k", command=("k",), complete=True, pid=7, rate_hz=100, native=True, started_unix_ns=1,
        started_monotonic_ns=0, ended_monotonic_ns=100 * MS, anchor_ns=0, anchor_uncertainty_ns=0, samples=10, errors=0,
        spy_cpu_ns=1, own_cpu_ns=1,
    )  # fmt: skip
    holds = Holds(start_ns=np.array([10 * MS]), end_ns=np.array([50 * MS]), looks=100)
    taken = Recording(record=record, trace=json.dumps(events).encode(), threads=(), holds=holds, interrupted=False)
    write_recording(taken, tmp_path)
    assert "Host stacks, 60.0 ms of threads" in (tmp_path / "stacks.svg").read_text()


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("work", 4, "work"),
        ("working", 4, "wor…"),
        ("working", 2, ""),
        ("at::native::(anonymous namespace)::fill", 60, "at::native::(anonymous namespace)::fill"),
        ("at::_ops::add_Tensor::call", 12, "call"),
        ("c10::impl::wrap_kernel<std::tuple<a::b>, c::d>::call(int, e::f)", 12, "call"),
    ],
)
def test_of_a_cpp_name_the_last_part_is_kept(text: str, room: int, shown: str) -> None:
    assert shortened(text, room) == shown

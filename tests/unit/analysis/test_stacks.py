"""Stacks by layer and by phase: py-spy's trace, the rules, the kernel's counters, the document and its pictures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kdaprof.analysis.stacks import thread_time
from kdaprof.analysis.stacks_anonymous import anonymous_file, anonymous_trace
from kdaprof.analysis.stacks_document import judged, stacks_document, stacks_schema, stacks_view
from kdaprof.analysis.stacks_layers import LAYERS, layer_of
from kdaprof.analysis.stacks_speedscope import speedscope
from kdaprof.analysis.stacks_trace import Frame, last_ns, read_stacks
from kdaprof.errors import BadFileError
from kdaprof.report.stacks import markdown, terminal_lines
from kdaprof.runs.environment import Secrets
from kdaprof.runs.stacks import HOLDS_FILE, Holds, NoStacks, StacksRecord, ThreadTicks
from kdaprof.runs.stacks_file import read_holds, write_holds

MS = 1_000_000
TORCH = "/venv/lib/python3.12/site-packages/torch"
CPU = f"{TORCH}/lib/libtorch_cpu.so"
MAIN = "thread (7): MainThread"


def trace(*stacks: tuple[int, list[tuple[str, str, int]]], end_us: int) -> bytes:
    """What py-spy writes for these stacks (µs, frames outermost first) of thread 7."""
    events: list[dict[str, object]] = []
    before: list[tuple[str, str, int]] = []
    for ts, frames in [*stacks, (end_us, [])]:
        now = [(MAIN, "", 0), *frames] if frames else []
        same = 0
        while same < min(len(before), len(now)) and before[same] == now[same]:
            same += 1
        for ph, part in (("E", before[same:][::-1]), ("B", now[same:])):
            for name, file, line in part:
                args = {"filename": file, "line": line}
                events.append({"args": args, "cat": "py-spy", "name": name, "ph": ph, "pid": 7, "tid": 99, "ts": ts})
        before = now
    return json.dumps(events).encode()


NAP, WORK = ("nap", "/x/train.py", 4), ("work", "/x/train.py", 7)
BACKWARD = ("_engine_run_backward", f"{TORCH}/autograd/graph.py", 979)
MIX = trace((1000, [NAP]), (31_000, [WORK]), (61_000, [WORK, BACKWARD]), end_us=101_000)


def ticks(*rows: tuple[int, int, int], tid: int = 7, name: str = "python") -> ThreadTicks:
    table = np.array(rows, np.int64) * MS
    return ThreadTicks(tid=tid, name=name, t_ns=table[:, 0], run_ns=table[:, 1], delay_ns=table[:, 2])


# The thread sleeps for 30 ms, then runs; for the last 20 ms it has a core for half of the time only.
COUNTED = ticks((0, 5, 1), (1, 5, 1), (31, 5, 1), (81, 55, 1), (101, 65, 11), (140, 65, 11))


def record(**changes: object) -> StacksRecord:
    fields: dict[str, object] = {
        "tool": "kdaprof 0.1.0", "command": ("kdaprof", "stacks"), "complete": True, "pid": 7, "rate_hz": 100,
        "native": False, "started_unix_ns": 1, "started_monotonic_ns": 0, "ended_monotonic_ns": 200 * MS,
        "anchor_ns": 0, "anchor_uncertainty_ns": 3 * MS, "samples": 98, "errors": 2, "spy_cpu_ns": MS, "own_cpu_ns": MS,
    }  # fmt: skip
    return StacksRecord(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_stack_stands_from_its_event_to_the_next_on_the_monotonic_clock() -> None:
    (thread,) = read_stacks(MIX, 10 * MS)
    assert (thread.tid, thread.name) == (7, "MainThread")
    spans = [(s.start_ns / MS, s.end_ns / MS, s.frames[-1].name) for s in thread.stretches]
    assert spans == [(11, 41, "nap"), (41, 71, "work"), (71, 111, "_engine_run_backward")]
    assert last_ns(MIX) == 101 * MS


def test_a_broken_or_empty_trace_is_one_line_or_none() -> None:
    assert last_ns(b"[]") is None
    assert last_ns(b"[{") is None
    assert read_stacks(b"[]", 0) == ()
    with pytest.raises(BadFileError, match="record again"):
        read_stacks(MIX[:200], 0)


def test_counters_tell_running_from_waiting_and_from_no_core() -> None:
    (thread,) = read_stacks(MIX, 0)
    found = thread_time(thread, COUNTED)
    layers = {layer: ns / MS for layer, ns in found.layers.items() if ns}
    assert layers == pytest.approx({"waiting": 30, "python": 30, "autograd": 30, "no_core": 10})
    assert found.observed_ns == 100 * MS
    assert [(hot.frame.name, hot.ns / MS) for hot in found.hottest] == [
        ("_engine_run_backward", 40), ("nap", 30), ("work", 30)]  # fmt: skip


def test_a_thread_that_ended_is_not_seen_to_the_end_of_the_trace() -> None:
    (thread,) = read_stacks(MIX, 0)
    found = thread_time(thread, ticks((0, 0, 0), (51, 20, 0)))
    assert found.observed_ns == 50 * MS


def test_phases_take_their_own_part_and_a_whole_step_holds_its_phases() -> None:
    (thread,) = read_stacks(MIX, 0)
    steps = [(0, 50 * MS, "fwd"), (50 * MS, 100 * MS, "bwd"), (0, 100 * MS, "step"), (400 * MS, 500 * MS, "late")]
    phases = {p.name: p for p in thread_time(thread, COUNTED, intervals=steps).phases}
    ms = {name: {k: v / MS for k, v in p.layers.items() if v} for name, p in phases.items()}
    assert ms["fwd"] == pytest.approx({"waiting": 30, "python": 19})
    assert ms["bwd"] == pytest.approx({"python": 11, "autograd": 20 + 9.5, "no_core": 9.5})
    assert ms["step"] == pytest.approx({"waiting": 30, "python": 30, "autograd": 29.5, "no_core": 9.5})
    assert (phases["step"].span_ns, ms["late"]) == (100 * MS, {})


def test_a_phase_too_short_to_tell_from_its_neighbours_is_not_to_be_quoted() -> None:
    # Read every 5 ms, on one clock to within 3 ms: 2 ms of "fwd" in steps of 20 ms are not told from the other 18 ms.
    often = ticks(*((t, t // 2, 0) for t in range(0, 105, 5)))
    short = [(t * MS, (t + 2) * MS, "fwd") for t in range(1, 101, 20)]
    whole = [(t * MS, (t + 2) * MS, "step") for t in range(1, 101, 2)]  # back to back: no border between
    view = stacks_view(record(), MIX, (often,), intervals=[*short, *whole])
    (thread,) = stacks_document(view)["threads"]
    said = {phase["name"]: phase["layers"]["waiting"] for phase in thread["phases"]}
    assert {name: fact["quotable"] for name, fact in said.items()} == {"fwd": False, "step": True}
    assert said["fwd"]["detail"] == "its calls last 2.00 ms, and shares are told to within 8.00 ms"
    text = "\n".join(terminal_lines(view))
    assert "the calls of fwd are short beside the 8.00 ms" in text
    alone = stacks_view(record(), MIX, (often,), intervals=whole)
    assert "short beside" not in "\n".join(terminal_lines(alone))


CALL = [
    Frame("work", "/x/train.py", 7),
    Frame("torch::autograd::THPVariable_add", f"{TORCH}/lib/libtorch_python.so", 0),
]
DISPATCH = [*CALL, Frame("at::_ops::add_Tensor::call", CPU, 0)]
KERNEL = [*DISPATCH, Frame("at::native::add", CPU, 0)]
CUDA = f"{TORCH}/lib/libtorch_cuda.so"
RT, DRIVER, LIBC = "/usr/lib/libcudart.so.12", "/usr/lib/libcuda.so.570.1", "/usr/lib/libc.so.6"
JIT = Frame("JITFunction.run", "/venv/triton/runtime/jit.py", 700)


@pytest.mark.parametrize(
    ("layer", "frames"),
    [
        ("python", [Frame("work", "/x/train.py", 7)]),
        ("python", CALL),
        ("autograd", [*CALL, Frame("torch::autograd::VariableType::(anonymous namespace)::add_Tensor", CPU, 0)]),
        ("autograd", [Frame("backward", f"{TORCH}/autograd/__init__.py", 395)]),
        ("dispatcher", DISPATCH),
        ("dispatcher", [*DISPATCH, Frame("c10::impl::wrap_kernel_functor_unboxed_<x>::call", CPU, 0)]),
        ("aten", KERNEL),
        ("aten", [*KERNEL, Frame("0x7f00", "/usr/lib/ld-linux.so.2", 0)]),
        ("allocator", [*KERNEL, Frame("c10::cuda::CUDACachingAllocator::Native::malloc", "/t/libc10_cuda.so", 0)]),
        ("allocator", [*KERNEL, Frame("free", LIBC, 0)]),
        ("allocator", [*KERNEL, Frame("cudaMalloc", RT, 0), Frame("0x7f11", DRIVER, 0)]),
        ("cuda_launch", [*KERNEL, Frame("cudaLaunchKernel", RT, 0), Frame("0x7f11", DRIVER, 0)]),
        ("cuda_launch", [JIT, Frame("launch", "/c/__triton_launcher.so", 0), Frame("0x7f11", DRIVER, 0)]),
        ("sync", [*KERNEL, Frame("cudaStreamSynchronize", RT, 0), Frame("0x7f11", DRIVER, 0), Frame("poll", LIBC, 0)]),
        ("sync", [Frame("work", "/x/train.py", 7), Frame("synchronize", f"{TORCH}/cuda/__init__.py", 1000)]),
        ("triton_launcher", [Frame("work", "/x/train.py", 7), JIT]),
        ("compile", [JIT, Frame("compile", "/venv/triton/compiler/compiler.py", 9), Frame("run", "/x/y.py", 1)]),
        ("import", [Frame("_find_and_load", "<frozen importlib._bootstrap>", 1), Frame("<module>", "/x/y.py", 1)]),
        ("waiting", [Frame("nap", "/x/y.py", 1), Frame("time_sleep", "/p/libpython3.12.so.1.0", 0),
                     Frame("clock_nanosleep", LIBC, 0)]),
        ("waiting", [Frame("torch::autograd::ReadyQueue::pop", CPU, 0), Frame("pthread_cond_wait", LIBC, 0)]),
        ("unknown", [Frame("0x7f00", LIBC, 0)]),
        ("unknown", []),
    ],
)  # fmt: skip
def test_a_stack_is_in_the_layer_of_its_innermost_telling_frame(layer: str, frames: list[Frame]) -> None:
    assert layer_of(frames) == layer


def test_waiting_inside_a_synchronisation_waits_for_the_device() -> None:
    sync = trace((0, [WORK, ("synchronize", f"{TORCH}/cuda/__init__.py", 1000)]), end_us=40_000)
    (thread,) = read_stacks(sync, 0)
    found = thread_time(thread, ticks((0, 0, 0), (40, 10, 0)))
    assert {k: v / MS for k, v in found.layers.items() if v} == {"sync": 40}


def test_the_document_has_every_layer_and_says_why_one_is_missing() -> None:
    other = ticks((0, 0, 0), (100, 40, 0), tid=9, name="pt_autograd_0")
    view = stacks_view(record(), MIX, (COUNTED, other), intervals=[(0, 50 * MS, "fwd")])
    document = json.loads(json.dumps(stacks_document(view)))
    jsonschema.validate(document, stacks_schema())
    (thread,) = document["threads"]
    assert set(thread["layers"]) == set(LAYERS)
    assert thread["layers"]["waiting"]["value"] == pytest.approx(0.3)
    assert thread["layers"]["aten"]["value"] is None
    assert "--native" in thread["layers"]["aten"]["detail"]
    assert thread["phases"][0]["layers"]["waiting"]["value"] == pytest.approx(30 / 49)
    assert document["other_threads"] == [{"tid": 9, "name": "pt_autograd_0", "run_ns": 40 * MS}]
    text = "\n".join(terminal_lines(view))
    assert "MainThread (7, the main one)" in text
    assert "2 of 100 samples failed" in text
    assert "pt_autograd_0 40.0 ms" in text
    assert "to within 3.00 ms" in text
    page = markdown(view)
    assert "| waiting | 30 % |" in page
    assert "Lines with most time, waiting included:\n\n- 40 % `_engine_run_backward (" in page
    assert not any(line.strip() == "-" for line in page.splitlines())


def test_without_counters_or_natively_what_cannot_be_told_is_missing() -> None:
    (bare,) = stacks_document(stacks_view(record(), MIX, ()))["threads"]
    assert "schedstat" in bare["layers"]["waiting"]["detail"]
    (native,) = stacks_document(stacks_view(record(native=True), MIX, (COUNTED,)))["threads"]
    assert native["layers"]["waiting"]["value"] == 0  # nothing in this trace sleeps by its symbols
    seldom = Holds(start_ns=NEVER, end_ns=NEVER, looks=3)
    assert stacks_document(stacks_view(record(native=True), MIX, (COUNTED,), seldom))["threads"] == [native]
    assert "stops the process" in native["layers"]["no_core"]["detail"]
    assert native["layers"]["aten"]["value"] == 0


NEVER = np.zeros(0, np.int64)


def holds(*rows: tuple[int, int]) -> Holds:
    table = np.array(rows, np.int64)
    return Holds(start_ns=table[:, 0] * MS, end_ns=table[:, 1] * MS, looks=200)


def test_stops_of_native_stacks_are_nobody_s_time() -> None:
    # A cycle of 100 ms: asleep to 30, then at work; stopped for 2 ms in the sleep and three times for 10 ms at work.
    # py-spy stamps the first stack of the work only at 41, when the stop that began at 31 is over.
    nap = ("clock_nanosleep", LIBC, 0)
    mix = trace((0, [NAP, nap]), (41_000, [WORK, BACKWARD]), (71_000, [WORK]), end_us=100_000)
    stopped = holds((10, 12), (31, 41), (50, 60), (80, 90))
    counted = ticks((0, 0, 0), (30, 0, 0), (31, 1, 0), (41, 1, 0), (50, 8, 2), (60, 8, 2), (80, 28, 2), (90, 28, 2),
                    (100, 38, 2))  # fmt: skip
    view = stacks_view(record(native=True, ended_monotonic_ns=100 * MS), mix, (counted,), stopped)
    (thread,) = view.threads
    found = {layer: ns / MS for layer, ns in thread.layers.items() if ns}
    assert found == pytest.approx({"waiting": 28, "autograd": 1 + 7 + 11, "python": 9 + 10, "no_core": 2})
    assert thread.observed_ns == (100 - 32) * MS
    assert view.verdict == "good"
    assert view.held.value == pytest.approx(0.32)
    assert view.unseen.missing == "not-supported"  # a recording of before does not say
    assert "stopped for each, 32 % of the time, which is left out" in "\n".join(terminal_lines(view))


def test_stops_come_back_from_their_file_and_from_one_of_before(tmp_path: Path) -> None:
    stopped = replace(holds((10, 12), (31, 41)), unseen_ns=7)
    write_holds(tmp_path, stopped)
    stored = pq.read_table(tmp_path / HOLDS_FILE)
    assert stored.column_names == ["start_ns", "end_ns"]
    # Files of before have a column that nobody reads.
    older = stored.append_column("asleep", pa.array([True, False]))
    for table in (stored, older):
        pq.write_table(table, tmp_path / HOLDS_FILE)
        found = read_holds(tmp_path)
        assert found is not None
        assert (found.start_ns.tolist(), found.end_ns.tolist()) == ([10 * MS, 31 * MS], [12 * MS, 41 * MS])
        assert (found.looks, found.unseen_ns) == (200, 7)


@pytest.mark.parametrize(("unseen", "verdict"), [(4, "good"), (6, "poor")])
def test_time_in_which_a_stop_could_hide_is_judged(unseen: int, verdict: str) -> None:
    looked = replace(holds((10, 12)), unseen_ns=unseen * MS)
    view = stacks_view(record(native=True, ended_monotonic_ns=100 * MS), MIX, (COUNTED,), looked)
    assert view.verdict == verdict
    assert view.unseen.value == pytest.approx(unseen / 100)
    assert ("nobody looked" in judged(view)) is (verdict == "poor")
    (thread,) = stacks_document(view)["threads"]
    assert thread["layers"]["waiting"]["quotable"] is (verdict == "good")


@pytest.mark.parametrize(("errors", "verdict"), [(0, "good"), (4, "good"), (10, "poor"), (26_649, "unusable")])
def test_the_share_of_failed_samples_is_judged(errors: int, verdict: str) -> None:
    view = stacks_view(record(errors=errors), MIX, (COUNTED,))
    assert view.verdict == verdict
    (thread,) = stacks_document(view)["threads"]
    assert thread["layers"]["waiting"]["quotable"] is (verdict == "good")
    assert f"{errors} of {98 + errors} samples failed" in judged(view)


@pytest.mark.parametrize("errors", [10, 26_649])  # poor, unusable
def test_failed_samples_never_call_for_what_was_done(errors: int) -> None:
    assert "--native" in judged(stacks_view(record(errors=errors), MIX, (COUNTED,)))
    said = judged(stacks_view(record(errors=errors, native=True), MIX, (COUNTED,)))
    assert "a quiet machine" in said
    assert "--native" not in said


@pytest.mark.parametrize(("delay", "native", "verdict"), [(2, True, "good"), (20, True, "poor"), (20, False, "good")])
def test_native_stacks_without_their_stops_and_a_core_are_not_to_be_quoted(
    delay: int, native: bool, verdict: str
) -> None:
    crowded = ticks((0, 0, 0), (100, 50, delay))
    view = stacks_view(record(native=native), MIX, (crowded,))
    assert view.verdict == verdict
    assert ("had no core" in judged(view)) is (verdict == "poor")


def test_no_stacks_is_a_document_with_the_way_out() -> None:
    missing = NoStacks(kind="refused", text="py-spy may not look", next="docker run --cap-add=SYS_PTRACE")
    gone = record(missing=missing, complete=False, anchor_ns=None, samples=None, errors=None, spy_cpu_ns=None)
    view = stacks_view(gone, None, (COUNTED,))
    document = stacks_document(view)
    jsonschema.validate(json.loads(json.dumps(document)), stacks_schema())
    assert document["threads"] == []
    assert "what to do: docker run --cap-add=SYS_PTRACE" in terminal_lines(view)
    assert "stacks.svg" not in markdown(view)
    assert "![Flame graph](stacks.svg)" in markdown(stacks_view(record(), MIX, (COUNTED,)))


def test_speedscope_holds_every_stack_with_its_time() -> None:
    found = json.loads(json.dumps(speedscope(read_stacks(MIX, 0), name="x", tool="kdaprof")))
    (profile,) = found["profiles"]
    assert profile["endValue"] - profile["startValue"] == sum(profile["weights"]) == 100 * MS
    names = [[found["shared"]["frames"][i]["name"] for i in sample] for sample in profile["samples"]]
    assert names == [["nap"], ["work"], ["work", "_engine_run_backward"]]


def test_speedscope_keeps_later_stacks_at_their_times_where_a_thread_had_none_for_a_while() -> None:
    gone = trace((0, [NAP]), (30_000, []), (50_000, [WORK]), end_us=100_000)
    (profile,) = speedscope(read_stacks(gone, 0), name="x", tool="kdaprof")["profiles"]
    assert profile["samples"] == [[0], [], [1]]
    assert profile["weights"] == [30 * MS, 20 * MS, 50 * MS]
    assert sum(profile["weights"]) == profile["endValue"] - profile["startValue"]


@pytest.mark.parametrize(
    ("file", "left"),
    [
        (f"{TORCH}/autograd/graph.py", "torch/autograd/graph.py"),
        ("/home/ann/.local/lib/python3.12/queue.py", "lib/python3.12/queue.py"),
        ("/home/ann/.triton/cache/AB/__triton_launcher.cpython-312-x86_64-linux-gnu.so",
         "…/__triton_launcher.cpython-312-x86_64-linux-gnu.so"),
        ("/home/ann/venv/bin/python3.12", "…/python3.12"),
        ("train.py", "train.py"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
    ],
)  # fmt: skip
def test_an_anonymous_file_keeps_what_the_layers_are_told_by(file: str, left: str) -> None:
    assert anonymous_file(file) == left
    frames = [Frame("work", "/x/train.py", 7), Frame("f", file, 1)]
    assert layer_of([Frame(f.name, anonymous_file(f.file), f.line) for f in frames]) == layer_of(frames)


def test_an_anonymous_trace_keeps_its_stacks_and_loses_its_user() -> None:
    secrets = Secrets(cwd="/home/ann/work", home="/home/ann", hostname="box", user="ann")
    mine = trace((0, [("of ann on box", "/home/ann/work/x.py", 3)]), end_us=1000)
    (thread,) = read_stacks(anonymous_trace(mine, secrets), 0)
    assert thread.stretches[0].frames == (Frame("of <user> on <host>", "…/x.py", 3),)
    assert anonymous_trace(b"[{", secrets) == b"[{"

"""`kdaprof.StepProfiler` around real training loops on the CPU: wrappers, ends of every kind, what is stored."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import kdaprof
from kdaprof import StepProfiler
from kdaprof.analysis.derive import derive
from kdaprof.analysis.loop_cost import STORE_COST
from kdaprof.analysis.recompute import load_raw
from kdaprof.cli.main import main
from kdaprof.errors import UsageError
from kdaprof.instruments.cupti import torch_profiler_is_on
from kdaprof.integrations.steps import WindowPlan
from kdaprof.integrations.steps import run as run_module
from kdaprof.integrations.steps.lab import open_loop_lab
from kdaprof.kda import kda
from kdaprof.report.loop import loop_text
from kdaprof.runs.atomic import TargetError
from kdaprof.runs.document import run_document, run_schema
from kdaprof.runs.history import read_history
from kdaprof.runs.samples import Sample
from kdaprof.runs.store import RunWriter
from kdaprof.runs.units import format_ns

B, T = 2, 16
NO_WINDOWS = WindowPlan(most=0)


class Layer(nn.Module):
    """A projection, our op, and a way out."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(16, 4 * 16)
        self.out = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v, g = (part.unsqueeze(2) for part in self.into(x).chunk(4, -1))
        o, _ = kda(q, k, v, -g.square(), torch.sigmoid(q[..., 0]), chunk=16, path="tensor")
        return self.out(o.squeeze(2))


def profiler(out: Path, **options: object) -> StepProfiler:
    given = {"shape": {"B": B, "T": T}, "windows": NO_WINDOWS, "environ": {}} | options
    return StepProfiler(out, **given)  # type: ignore[arg-type]


def one_step(prof: StepProfiler, model: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer) -> None:
    with prof.step(tokens=B * T):
        with prof.phase("fwd"):
            loss = model(torch.randn(B, T, 16)).square().mean()
        with prof.phase("bwd"):
            loss.backward()
        with prof.phase("opt"):
            optimizer.step()
            optimizer.zero_grad()


def train(out: Path, model: nn.Module, steps: int = 6, call: Callable[[Tensor], Tensor] | None = None) -> StepProfiler:
    optimizer = torch.optim.AdamW(model.parameters())
    with profiler(out) as prof:
        for _ in range(steps):
            one_step(prof, call or model, optimizer)
    assert prof.notes == ()
    return prof


def shown(out: Path) -> str:
    """What a terminal shows of the run."""
    raw = load_raw(out)
    return loop_text(raw.record, derive(raw))


def stored(out: Path) -> dict[str, tuple[Sample, ...]]:
    """Samples by phase."""
    return {cell.split("/")[4]: rows for cell, rows in load_raw(out).samples.items()}


def whole_and_added_up(out: Path, steps: int) -> None:
    rows = stored(out)
    walls = {phase: {row.index: row.wall_ns or 0 for row in found} for phase, found in rows.items()}
    assert list(walls["step"]) == list(range(steps))
    for number, wall in walls["step"].items():
        assert sum(of[number] for phase, of in walls.items() if phase != "step") == wall
        assert all(walls[phase][number] > 0 for phase in ("fwd", "bwd", "opt"))


# ---------------------------------------------------------------- wrappers


def test_a_plain_loop(tmp_path: Path) -> None:
    prof = train(tmp_path / "run", Layer())
    whole_and_added_up(tmp_path / "run", 6)
    raw = load_raw(tmp_path / "run")
    step = next(cell for cell in raw.record.cells if cell.key.phase == "step")
    # The path is the one that the gate took; forward and backward were counted apart.
    assert step.id == "step/tensor/plain/eager/step/B2-T16/float32"
    assert step.observed is not None
    assert step.observed.gate is not None
    assert (step.observed.gate.forward, step.observed.gate.backward) == ({"tensor": 6}, {"tensor": 6})
    assert step.observed.tokens == B * T
    assert "own cost: " in prof.summary()
    assert raw.record.complete


def test_autocast(tmp_path: Path) -> None:
    def call(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).float()

    model = Layer()
    train(tmp_path / "run", model, call=call)
    whole_and_added_up(tmp_path / "run", 6)


def test_gradient_accumulation(tmp_path: Path) -> None:
    model = Layer()
    optimizer = torch.optim.AdamW(model.parameters())
    with profiler(tmp_path / "run") as prof:
        for _ in range(5):
            with prof.step(tokens=3 * B * T):
                for _ in range(3):
                    with prof.phase("fwd"):
                        loss = model(torch.randn(B, T, 16)).square().mean() / 3
                    with prof.phase("bwd"):
                        loss.backward()
                with prof.phase("opt"):
                    optimizer.step()
                    optimizer.zero_grad()
    whole_and_added_up(tmp_path / "run", 5)
    assert [row.calls for row in stored(tmp_path / "run")["bwd"]] == [3] * 5


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(tmp_path: Path, reentrant: bool) -> None:
    def call(x: Tensor) -> Tensor:
        found: Tensor = checkpoint(model, x.requires_grad_(), use_reentrant=reentrant)
        return found

    model = Layer()
    train(tmp_path / "run", model, call=call)
    whole_and_added_up(tmp_path / "run", 6)
    gate = load_raw(tmp_path / "run").record.cells[0].observed
    assert gate is not None
    assert gate.gate is not None
    # Each forward runs twice, once inside the backward.
    assert (gate.gate.forward, gate.gate.backward) == ({"tensor": 12}, {"tensor": 6})


def test_torch_compile(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    train(tmp_path / "run", model, call=torch.compile(model, backend="aot_eager"))
    whole_and_added_up(tmp_path / "run", 6)
    rows = stored(tmp_path / "run")["fwd"]
    assert (rows[0].wall_ns or 0) > 10 * (rows[-1].wall_ns or 0)  # compiling is in step 0, and step 0 is kept


def test_the_op_inside_a_compiled_region_is_named_by_its_tracing(tmp_path: Path) -> None:
    torch.compiler.reset()  # traced anew: another test may have compiled the same code
    model, lines = Layer(), list[str]()
    optimizer = torch.optim.AdamW(model.parameters())
    with profiler(tmp_path / "run", live=lines.append, live_seconds=0) as prof:
        for _ in range(4):
            one_step(prof, torch.compile(model, backend="aot_eager"), optimizer)
    whole_and_added_up(tmp_path / "run", 4)
    assert [line.split(" · ")[-1] for line in lines] == ["kda tensor=traced"] * 4
    raw = load_raw(tmp_path / "run")
    step = next(cell for cell in raw.record.cells if cell.key.phase == "step")
    assert step.id == "step/tensor/plain/eager/step/B2-T16/float32"
    assert step.observed is not None
    assert step.observed.gate is not None
    assert (step.observed.gate.traced, step.observed.gate.forward) == (True, {})
    (proof,) = [cell.evidence for cell in derive(raw).cells if cell.id == step.id]
    assert (proof.verdict, proof.witnesses[0].detail) == ("gate-only", "chose tensor when the call was traced")
    # A path traced before the loop is not the loop's: the op was not called in this one.
    train(tmp_path / "other", nn.Sequential(nn.Linear(16, 16), nn.Tanh()), steps=2)
    assert {cell.id.split("/")[1] for cell in load_raw(tmp_path / "other").record.cells} == {"own"}


def test_a_path_traced_against_the_named_one_is_contradicted(tmp_path: Path) -> None:
    traced: dict[str, int] = {}

    def seen() -> Mapping[str, int]:
        return traced

    lab = replace(open_loop_lab("cpu"), traced=seen)
    model = nn.Linear(16, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    with profiler(tmp_path / "run", lab=lab, path="fused") as prof:
        traced["tensor"] = 1
        one_step(prof, model, optimizer)
    verdicts = {cell.evidence.verdict for cell in derive(load_raw(tmp_path / "run")).cells}
    assert verdicts == {"contradicted"}


def test_ddp(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    try:
        train(tmp_path / "run", DistributedDataParallel(Layer()))
    finally:
        dist.destroy_process_group()
    whole_and_added_up(tmp_path / "run", 6)


# ---------------------------------------------------------------- ends


def test_break_and_a_second_close(tmp_path: Path) -> None:
    model = Layer()
    optimizer = torch.optim.AdamW(model.parameters())
    with profiler(tmp_path / "run") as prof:
        for number in range(9):
            if number == 3:
                break
            one_step(prof, model, optimizer)
    prof.close()
    whole_and_added_up(tmp_path / "run", 3)
    assert load_raw(tmp_path / "run").record.complete


@pytest.mark.parametrize("error", [ValueError("bad batch"), KeyboardInterrupt()])
def test_an_exception_passes_and_leaves_a_partial_run(tmp_path: Path, error: BaseException) -> None:
    model = Layer()
    optimizer = torch.optim.AdamW(model.parameters())

    def loop() -> None:
        with profiler(tmp_path / "run") as prof:
            for _ in range(5):
                one_step(prof, model, optimizer)
            with prof.step(), prof.phase("fwd"):
                raise error

    with pytest.raises(type(error)):
        loop()
    whole_and_added_up(tmp_path / "run", 5)
    record = load_raw(tmp_path / "run").record
    assert not record.complete
    assert record.notes == (f"the loop was ended by {type(error).__name__} in step 5, phase fwd",)
    assert "Partial run" in (tmp_path / "run" / "report.md").read_text()
    text = shown(tmp_path / "run")
    assert text.count(f"Partial run: it ended before its plan did\n  {record.notes[0]}\n") == 1


FORGETFUL = """
import sys
from kdaprof import StepProfiler
prof = StepProfiler(sys.argv[1], shape={"B": 1}, device="cpu")
for _ in range(9):
    with prof.step(), prof.phase("fwd"):
        pass
"""
ENDLESS = """
import sys, time
from kdaprof import StepProfiler
from kdaprof.integrations.steps import WindowPlan, profiler
profiler.FLUSH_NS = 50_000_000
plan = WindowPlan(most=0)
with StepProfiler(sys.argv[1], shape={"B": 1}, device="cpu", windows=plan, live=print, live_seconds=0.3) as prof:
    while True:
        with prof.step(), prof.phase("fwd"):
            time.sleep(0.005)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_a_kill(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-u", "-c", ENDLESS, str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line.startswith("step "), line
        child.send_signal(number)
        _, errors = child.communicate(timeout=60)
    raw = load_raw(out)
    assert not raw.record.complete
    assert all(len(rows) > 5 for rows in raw.samples.values())
    if number is signal.SIGINT:
        assert "KeyboardInterrupt" in errors  # the user's own, passed on
        assert raw.record.notes[0].startswith("the loop was ended by KeyboardInterrupt")
        assert (out / "report.md").exists()
    assert derive(raw).cells


def test_a_process_that_forgets_to_close(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", FORGETFUL, str(tmp_path / "run")], check=True, capture_output=True, timeout=60
    )
    record = load_raw(tmp_path / "run").record
    assert (record.complete, record.notes) == (False, ("the process ended before the profiler was closed",))


# ---------------------------------------------------------------- what is stored, and when it cannot be


def test_the_run_is_a_run_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    train(out, Layer(), steps=30)
    raw = load_raw(out)
    document = run_document(raw.record, derive(raw), out)
    jsonschema.validate(document, run_schema())
    assert main(["report", str(out), "--check"]) == 0
    capsys.readouterr()
    assert main(["report", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(document))


def test_a_real_window_on_the_cpu(tmp_path: Path) -> None:
    model = Layer()
    optimizer = torch.optim.AdamW(model.parameters())
    with profiler(tmp_path / "run", windows=WindowPlan(first=3, every=50, steps=2)) as prof:
        for _ in range(8):
            one_step(prof, model, optimizer)
    assert prof.notes == ()
    (file,) = (tmp_path / "run").glob("timeline-*.parquet")
    assert main(["analyze", str(file), "--json"]) == 0
    assert [row.repeat for row in stored(tmp_path / "run")["step"]] == ["unprofiled"] * 3 + ["profiled-full"] * 2 + [
        "unprofiled"
    ] * 3


def test_a_loop_that_ends_inside_a_window_leaves_no_profiler_on(tmp_path: Path) -> None:
    with profiler(tmp_path / "run", windows=WindowPlan(first=3, every=50, steps=9)) as prof:
        for _ in range(5):
            with prof.step(), prof.phase("fwd"):
                pass
        assert torch_profiler_is_on()
    assert not torch_profiler_is_on()
    assert prof.notes == ()
    assert len(stored(tmp_path / "run")["step"]) == 5


def test_a_long_loop_is_stored_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "PART_STEPS", 10)
    with profiler(tmp_path / "run") as prof:
        for number in range(35):
            with prof.step(), prof.phase("fwd"):
                pass
            if number % 5 == 4:
                prof._recorder.read()
                prof._run.flush()
    files = sorted(path.name for path in (tmp_path / "run" / "samples.parquet").glob("*_fwd_*"))
    assert len(files) == 4
    assert [row.index for row in stored(tmp_path / "run")["fwd"]] == list(range(35))


def test_a_step_that_is_dropped_or_outlived_by_its_profiler_ends_quietly(tmp_path: Path) -> None:
    with profiler(tmp_path / "run") as prof:
        with prof.step(), prof.phase("fwd"):
            pass
        with prof.step(), prof.phase("fwd"):
            prof.abandon()
        with prof.step(), prof.phase("fwd"):
            prof.close()
    assert len(stored(tmp_path / "run")["fwd"]) == 1
    assert prof.notes == ()


def test_a_slow_disk_holds_no_step_up_and_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_go_on, put_part = threading.Event(), threading.Event(), RunWriter.put_part

    def slow(*arguments: Any) -> None:
        begun.set()
        assert may_go_on.wait(60)
        put_part(*arguments)

    with profiler(tmp_path / "run") as prof:
        monkeypatch.setattr(RunWriter, "put_part", slow)
        for _ in range(30):  # each asks for a write; the loop reaches its end while the first still waits
            with prof.step(), prof.phase("fwd"):
                pass
            prof._recorder.read()
            prof._run.flush_behind()
        assert begun.wait(60)
        may_go_on.set()
    assert [row.index for row in stored(tmp_path / "run")["fwd"]] == list(range(30))
    assert prof.notes == ()


def test_a_write_that_fails_behind_the_loop_is_a_note_and_its_steps_go_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, put_part = [1], RunWriter.put_part

    def full_once(*arguments: Any) -> None:
        if left:
            left.pop()
            raise TargetError("samples: cannot write (No space left on device); free space")
        put_part(*arguments)

    with profiler(tmp_path / "run") as prof:
        monkeypatch.setattr(RunWriter, "put_part", full_once)
        for _ in range(5):
            with prof.step(), prof.phase("fwd"):
                pass
            prof._recorder.read()
            prof._run.flush_behind()
    (note,) = prof.notes
    assert note.startswith("samples could not be stored: TargetError: samples: cannot write (No space left")
    assert load_raw(tmp_path / "run").record.complete
    assert [row.index for row in stored(tmp_path / "run")["fwd"]] == list(range(5))


def test_the_cost_of_storing_in_the_loop_is_told_with_the_others(tmp_path: Path) -> None:
    with profiler(tmp_path / "run") as prof:
        for index in range(40):
            with prof.step(), prof.phase("fwd"):
                pass
            if index == 29:
                prof._run.flush_behind()
    (cost,) = (cost for cost in load_raw(tmp_path / "run").record.overhead if cost.name == STORE_COST)
    assert cost.ns > 0
    assert cost.n == 40
    assert " to store it, " in prof.summary().splitlines()[-1]


def test_a_first_step_that_is_stored_alone_does_not_pass_its_cost_for_every_step_s(tmp_path: Path) -> None:
    with profiler(tmp_path / "run") as prof:
        for index in range(40):
            with prof.step(), prof.phase("fwd"):
                pass
            if index == 0:  # as behind a step that compiled for more than half a minute
                prof._recorder.read()
                prof._run.flush()
    raw = load_raw(tmp_path / "run")
    (cost,) = (cost for cost in raw.record.overhead if cost.name == STORE_COST)
    assert cost.n == 40
    (finding,) = (one for one in derive(raw).findings if one.id == "watching-costs")
    assert f"storing it {format_ns(cost.ns)}" in finding.text


def test_storing_after_the_loop_costs_no_step(tmp_path: Path) -> None:
    with profiler(tmp_path / "run") as prof:
        for _ in range(40):
            with prof.step(), prof.phase("fwd"):
                pass
    assert STORE_COST not in {cost.name for cost in load_raw(tmp_path / "run").record.overhead}
    assert "to store it" not in prof.summary()


def test_a_full_disk_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise TargetError("samples: cannot write (No space left on device); free space")

    with profiler(tmp_path / "run") as prof:
        monkeypatch.setattr(prof._run.writer.__class__, "put_part", full)
        with prof.step(), prof.phase("fwd"):
            pass
    assert prof.notes[0].startswith("the run could not be closed: TargetError: samples: cannot write (No space left")
    assert prof.notes[0][:60] in prof.summary()  # the record on the disk holds no note of it


def test_windows_that_find_no_room_are_one_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, timeline: object) -> None:
        raise TargetError(f"{path.name}: cannot write (No space left on device); free space")

    monkeypatch.setattr("kdaprof.timeline.parquet.write", full)
    with profiler(tmp_path / "run", windows=WindowPlan(first=1, every=3, steps=1, most=3)) as prof:
        for _ in range(9):
            with prof.step(), prof.phase("fwd"):
                pass
    (note,) = prof.notes
    assert note.startswith("a profiled window was lost: TargetError: timeline-")
    assert "-000001.parquet: cannot write (No space left" in note


def test_the_live_line_at_any_cadence(tmp_path: Path) -> None:
    lines: list[str] = []
    model = Layer()
    optimizer = torch.optim.AdamW(model.parameters())
    with profiler(tmp_path / "run", live=lines.append, live_seconds=0.0) as prof:
        for _ in range(3):
            one_step(prof, model, optimizer)
        time.sleep(0.01)
        assert prof.line() == "no step yet"
    assert [line.split(" · ")[0] for line in lines] == ["step 0", "step 1", "step 2"]
    assert " ms (fwd " in lines[0]
    assert "tokens/s" in lines[1]
    assert all(line.endswith("kda tensor=1/1") for line in lines)


def test_a_live_line_that_cannot_be_shown_is_one_note(tmp_path: Path) -> None:
    def broken(_: str) -> None:
        raise BrokenPipeError("nobody reads")

    with profiler(tmp_path / "run", live=broken, live_seconds=0.0) as prof:
        for _ in range(3):
            with prof.step(), prof.phase("fwd"):
                pass
    assert prof.notes == ("the live line could not be shown: BrokenPipeError: nobody reads",)


def test_faults_before_the_loop(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="shape is empty"):
        StepProfiler(tmp_path / "run", shape={}, environ={})
    for wrong, says in (
        ({"shape": {"B": -1}}, "shape has B=-1"),
        ({"shape": {"B": 2.5}}, "sizes are whole numbers"),
        ({"shape": {"B": "8"}}, "sizes are whole numbers"),
        ({"shape": {"B/T": 1}}, "shape has B/T=1"),
        ({"dtype": "bf16"}, "dtype 'bf16' is unknown"),
        ({"live_seconds": -1}, "live_seconds=-1: seconds between two lines"),
        ({"live_seconds": float("nan")}, "live_seconds=nan: seconds between two lines"),
        ({"path": "a/b"}, "path 'a/b': one word"),
    ):
        with pytest.raises(UsageError, match=says):
            profiler(tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="all ranks must name the same directory"):
        StepProfiler(shape={"B": 1}, environ={"RANK": "0", "WORLD_SIZE": "2"})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"^out=.*: not empty; choose another or pass force=True"):
        profiler(tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("told", ["default", "error"])
def test_steps_after_the_close_are_said_once_and_change_nothing(
    tmp_path: Path, told: Literal["default", "error"]
) -> None:
    model = Layer()
    optimizer = torch.optim.AdamW(model.parameters())
    prof = profiler(tmp_path / "run")
    for _ in range(3):
        one_step(prof, model, optimizer)
    prof.close()
    stored = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert prof.notes == ()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter(told)  # a loop under -W error goes on, too
        for _ in range(2):
            one_step(prof, model, optimizer)
        prof.begin_step()
        prof.begin_phase("fwd")
        prof.end_phase()
        prof.end_step()
    assert [warning.filename for warning in seen] == [__file__] * (told == "default")
    assert len(prof.notes) == 1
    assert prof.notes[0].startswith("steps were taken after the profiler was closed")
    assert "steps were taken after" in prof.summary()
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == stored


def test_a_loop_without_a_step_says_so(tmp_path: Path) -> None:
    with profiler(tmp_path / "run") as prof:
        pass
    assert prof.notes == ("no step came to its end: put `with prof.step():` around each step of the loop",)
    assert prof.notes[0][:24] in prof.summary()


def test_anonymous(tmp_path: Path) -> None:
    with profiler(tmp_path / "run", anonymous=True) as prof, prof.step(), prof.phase("fwd"):
        pass
    text = (tmp_path / "run" / "run.json").read_text()
    assert str(Path.home()) not in text
    assert str(Path.cwd()) not in text


# ---------------------------------------------------------------- the history


def recorded(store: Path) -> set[tuple[str, bool]]:
    return {(entry.stamp.run, entry.stamp.complete) for entry in read_history(store)}


def short_loop(out: Path, **options: object) -> StepProfiler:
    with profiler(out, **options) as prof:
        for _ in range(3):
            with prof.step(), prof.phase("fwd"):
                pass
    return prof


def test_a_closed_run_stands_in_the_history_of_its_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.kdaprof]\nstore = "kept"\n')
    short_loop(tmp_path / "one")
    short_loop(tmp_path / "two", store=tmp_path / "elsewhere")
    short_loop(tmp_path / "three", history=False)
    with pytest.raises(ValueError, match="stop"), profiler(tmp_path / "four") as prof, prof.step(), prof.phase("fwd"):
        raise ValueError("stop")
    assert recorded(tmp_path / "kept") >= {("one", True)}
    assert recorded(tmp_path / "elsewhere") == {("two", True)}
    assert {run for run, _ in recorded(tmp_path / "kept")} <= {"one", "four"}


def test_a_history_that_cannot_be_written_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    prof = short_loop(tmp_path / "run", store=tmp_path / "file")
    assert len(prof.notes) == 1
    assert prof.notes[0].startswith("the run was not recorded in the history: UsageError")
    assert (tmp_path / "run" / "report.md").exists()


def test_the_public_name_is_lazy() -> None:
    assert kdaprof.StepProfiler is StepProfiler
    code = "import kdaprof, sys; assert 'torch' not in sys.modules and 'kdaprof.integrations' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert resources.files("kdaprof.runs").joinpath("schemas/ranks-1.json").is_file()

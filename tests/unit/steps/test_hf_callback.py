"""The callback on a real `Trainer` with a tiny model on the CPU: forward and backward by hooks, and what wraps them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import PreTrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments
from transformers.modeling_outputs import CausalLMOutput

from kdaprof.analysis.recompute import load_raw
from kdaprof.errors import UsageError
from kdaprof.integrations.hf import StepProfilerCallback
from kdaprof.integrations.steps import WindowPlan
from kdaprof.kda import kda
from kdaprof.runs.samples import Sample

VOCABULARY, WIDTH, LENGTH = 32, 16, 16


class TinyConfig(PreTrainedConfig):
    model_type = "tiny-kda"


class TinyModel(PreTrainedModel):
    """An embedding, our op, a head: a language model with nothing left out but size."""

    config_class = TinyConfig
    supports_gradient_checkpointing = False

    def __init__(self, config: TinyConfig) -> None:
        super().__init__(config)
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.into = nn.Linear(WIDTH, 4 * WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.post_init()

    def forward(self, input_ids: Tensor, labels: Tensor | None = None, **_: Any) -> CausalLMOutput:
        q, k, v, g = (part.unsqueeze(2) for part in self.into(self.embed(input_ids)).chunk(4, -1))
        o, _ = kda(q, k, v, -g.square(), torch.sigmoid(q[..., 0]), chunk=16, path="tensor")
        logits = self.head(o.squeeze(2))
        loss = None if labels is None else nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return CausalLMOutput(loss=loss, logits=logits)


class Words(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        words = torch.arange(index, index + LENGTH) % VOCABULARY
        return {"input_ids": words, "labels": words}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rank of a job, and no bars."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def train(tmp_path: Path, *others: TrainerCallback, model: Any = None, **options: Any) -> StepProfilerCallback:
    callback = StepProfilerCallback(windows=WindowPlan(first=3, every=50, steps=2))
    given: dict[str, Any] = {
        "output_dir": str(tmp_path / "out"),
        "use_cpu": True,
        "per_device_train_batch_size": 4,
        "max_steps": 6,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        "dataloader_pin_memory": False,
    }
    trainer = Trainer(
        model or TinyModel(TinyConfig()),
        TrainingArguments(**(given | options)),
        train_dataset=Words(),
        eval_dataset=Words(),
        callbacks=[callback, *others],
    )
    trainer.train()
    return callback


def stored(callback: StepProfilerCallback) -> dict[str, tuple[Sample, ...]]:
    assert callback.run is not None
    return {cell.split("/")[4]: rows for cell, rows in load_raw(callback.run).samples.items()}


def test_every_step_has_its_phases_and_they_add_up(tmp_path: Path) -> None:
    callback = train(tmp_path)
    rows = stored(callback)
    assert set(rows) == {"fwd", "bwd", "opt", "other", "step"}
    walls = {phase: {row.index: row.wall_ns or 0 for row in found} for phase, found in rows.items()}
    assert list(walls["step"]) == list(range(6))
    for number, wall in walls["step"].items():
        assert sum(of[number] for phase, of in walls.items() if phase != "step") == wall
    # A backward that ended with its first hook would take microseconds; the best of six steps, for a busy machine.
    assert max(walls["bwd"].values()) > 0.1 * min(walls["fwd"].values())
    record = load_raw(tmp_path / "out" / "kdaprof").record
    assert record.complete
    step = next(cell for cell in record.cells if cell.key.phase == "step")
    assert step.id == "step/tensor/plain/eager/step/B4/float32"
    assert step.observed is not None
    assert step.observed.tokens == 4 * LENGTH
    assert step.observed.gate is not None
    assert (step.observed.gate.forward, step.observed.gate.backward) == ({"tensor": 6}, {"tensor": 6})
    assert [row.repeat for row in rows["step"]].count("profiled-full") == 2
    assert "own cost" in callback.summary()


def test_the_backward_lies_between_its_phases_borders(tmp_path: Path) -> None:
    """Each gradient is made while `bwd` is open, the last one too."""
    seen: list[str | None] = []
    model = TinyModel(TinyConfig())
    callback: StepProfilerCallback

    class Late(TrainerCallback):
        def on_train_begin(self, *_: Any, **kwargs: Any) -> None:
            # The embedding's gradient is the last of the backward.
            kwargs["model"].embed.weight.register_hook(lambda _: seen.append(phase_now()))

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            seen.append(f"before {phase_now()}")

    def phase_now() -> str | None:
        (found,) = [cb._phase for cb in handlers if isinstance(cb, StepProfilerCallback)]
        return found

    handlers: list[Any] = []

    class Remember(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            handlers.append(callback)

    callback = StepProfilerCallback(windows=WindowPlan(most=0))
    arguments = TrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, max_steps=2, report_to=[], disable_tqdm=True, save_strategy="no"
    )
    Trainer(model, arguments, train_dataset=Words(), callbacks=[Remember(), Late(), callback]).train()
    assert seen == ["bwd", "before None"] * 2


def test_gradient_accumulation_and_evaluation(tmp_path: Path) -> None:
    callback = train(tmp_path, gradient_accumulation_steps=3, max_steps=4, eval_strategy="steps", eval_steps=2)
    rows = stored(callback)
    assert [row.calls for row in rows["fwd"]] == [3] * 4  # evaluation's forwards are not among them
    assert [row.calls for row in rows["bwd"]] == [3] * 4
    assert [row.calls for row in rows["opt"]] == [1] * 4
    cell = load_raw(tmp_path / "out" / "kdaprof").record.cells[0]
    assert dict(cell.key.shape) == {"B": 4, "accum": 3}


def test_autocast(tmp_path: Path) -> None:
    callback = train(tmp_path, bf16=True, max_steps=3)
    assert {len(rows) for rows in stored(callback).values()} == {3}
    cell = load_raw(tmp_path / "out" / "kdaprof").record.cells[0]
    assert (cell.key.context, cell.key.dtype) == ("autocast", "bfloat16")


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, VOCABULARY)

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.embed(input_ids)
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def test_torch_compile_and_a_plain_module(tmp_path: Path) -> None:
    callback = train(tmp_path, model=Linear(), torch_compile=True, torch_compile_backend="eager", max_steps=4)
    rows = stored(callback)
    assert [row.calls for row in rows["fwd"]] == [1] * 4
    assert [row.calls for row in rows["bwd"]] == [1] * 4


def test_an_exception_leaves_a_partial_run_and_no_hooks_behind(tmp_path: Path) -> None:
    class Bad(TrainerCallback):
        def on_optimizer_step(self, *_: Any, **__: Any) -> None:
            raise FloatingPointError("loss is NaN")

    model = TinyModel(TinyConfig())
    with pytest.raises(FloatingPointError):
        train(tmp_path, Bad(), model=model)
    out = tmp_path / "out" / "kdaprof"
    assert not load_raw(out).record.complete
    # Training again into the same directory is refused before it begins.
    with pytest.raises(UsageError, match="not empty"):
        train(tmp_path, model=model)


def test_a_summary_before_training_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"summary\(\) follows train\(\)"):
        StepProfilerCallback(tmp_path / "run").summary()


def test_importing_kdaprof_does_not_import_transformers() -> None:
    code = "import kdaprof, kdaprof.integrations, sys; assert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

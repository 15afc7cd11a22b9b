"""A Hugging Face `TrainerCallback` that watches `Trainer`'s loop. Importing this module imports transformers.

    from kdaprof.integrations.hf import StepProfilerCallback

    trainer = Trainer(model, args, train_dataset=data, callbacks=[StepProfilerCallback("runs/mine", live=print)])
    trainer.train()

A callback alone sees steps and the optimiser. Forward and backward come from hooks: the model's forward hooks, a hook
on the gradient of its loss (the backward begins), and a callback of the autograd engine (it has ended).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from kdaprof.errors import UsageError
from kdaprof.integrations.steps import StepProfiler, WindowPlan

_TOKEN_INPUTS = ("input_ids", "inputs_embeds", "decoder_input_ids")


class StepProfilerCallback(TrainerCallback):
    """Phases `fwd`, `bwd`, `opt` of every optimiser step; with gradient accumulation `fwd` and `bwd` are entered often.

    `out`: the run directory, by default `kdaprof` in the trainer's output directory. `shape` names what a step works
    on, by default the batch on one device and the accumulation. Other options as in `StepProfiler`.

    After training `run` is where the run lies. Evaluation between steps is not watched. A `train()` that an exception
    ends leaves a partial run, closed when the next one begins or the process ends.

    Errors: UsageError or TargetError when training begins and the directory cannot take a run.
    """

    def __init__(
        self,
        out: str | Path | None = None,
        *,
        shape: Mapping[str, int] | None = None,
        path: str | None = None,
        live: Callable[[str], None] | None = None,
        live_seconds: float = 10.0,
        windows: WindowPlan | None = None,
        force: bool = False,
        anonymous: bool = False,
        history: bool = True,
        store: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._out = out
        self._shape = shape
        self._options: dict[str, Any] = {
            "path": path,
            "live": live,
            "live_seconds": live_seconds,
            "windows": windows,
            "force": force,
            "anonymous": anonymous,
            "history": history,
            "store": store,
            "environ": environ,
        }
        self._prof: StepProfiler | None = None
        self._handles: list[Any] = []
        self._phase: str | None = None
        self._tokens: int | None = None
        self.run: Path | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the run and put the hooks on the model."""
        self._close("training was started again before it had ended")
        model: nn.Module = kwargs["model"]
        self._prof = StepProfiler(
            self._out if self._out is not None else Path(args.output_dir or ".") / "kdaprof",
            shape=self._shape or _shape(args),
            dtype=_dtype(args, model),
            context="autocast" if args.bf16 or args.fp16 else "plain",
            device=str(args.device) if args.device.type == "cuda" else "cpu",
            **self._options,
        )
        self.run = self._prof.path
        begin, end = self._forward_begins, self._forward_ends
        if args.torch_compile:
            # Traced into the compiled region, a hook would run once, or break the graph in the wrong place.
            begin, end = _untraced(begin), _untraced(end)
        self._handles = [
            model.register_forward_pre_hook(begin, with_kwargs=True),
            model.register_forward_hook(end, always_call=True),
        ]

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """A step begins with its first batch; the batches are already loaded."""
        if self._prof is not None:
            self._prof.abandon()  # one that an exception left open, when training went on
            self._phase = self._tokens = None
            self._prof.begin_step()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The optimiser begins."""
        self._enter("opt")

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The optimiser has ended."""
        self._leave("opt")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The step ends, before anything is logged, saved or evaluated."""
        if self._prof is not None and self._prof.in_step:
            self._leave(self._phase)
            self._prof.end_step(self._tokens)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the run and take the hooks off."""
        self._close(None)

    def summary(self) -> str:
        """The tables of the finished run. UsageError before training has ended."""
        if self._prof is None:
            raise UsageError("training has not begun, so that there is nothing to sum up: summary() follows train()")
        return self._prof.summary()

    def _close(self, why: str | None) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._prof is not None:
            self._prof.close(why)

    def _forward_begins(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        if not module.training or self._prof is None or not self._prof.in_step:
            return
        self._enter("fwd")
        tokens = _tokens(args, kwargs)
        if tokens is not None:
            self._tokens = (self._tokens or 0) + tokens

    def _forward_ends(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._phase != "fwd":
            return
        self._leave("fwd")
        loss = _loss(output)
        if loss is not None:
            loss.register_hook(self._backward_begins)  # type: ignore[no-untyped-call]

    def _backward_begins(self, gradient: torch.Tensor) -> None:
        if self._prof is None or not self._prof.in_step:
            return
        self._enter("bwd")
        _at_end_of_backward(lambda: _at_end_of_backward(lambda: self._leave("bwd")))

    def _enter(self, phase: str) -> None:
        if self._prof is not None and self._prof.in_step:
            self._leave(self._phase)  # one that nothing has ended: the next phase does
            self._prof.begin_phase(phase)
            self._phase = phase

    def _leave(self, phase: str | None) -> None:
        if phase is not None and self._phase == phase and self._prof is not None and self._prof.in_step:
            self._prof.end_phase()
            self._phase = None


def _untraced(hook: Any) -> Any:
    return torch.compiler.disable(hook)  # type: ignore[no-untyped-call]


def _at_end_of_backward(do: Callable[[], None]) -> None:
    """Run `do` when the backward pass that runs now has ended, behind whatever others have asked for until now.

    DDP waits for its all-reduces in such a callback, which it asks for later than a hook of the loss: so the phase is
    ended by a callback that is asked for in a callback.
    """
    torch.autograd.Variable._execution_engine.queue_callback(do)


def _shape(args: TrainingArguments) -> dict[str, int]:
    accumulation = args.gradient_accumulation_steps
    return {"B": args.per_device_train_batch_size} | ({"accum": accumulation} if accumulation > 1 else {})


def _dtype(args: TrainingArguments, model: nn.Module) -> str:
    if args.bf16 or args.fp16:
        return "bfloat16" if args.bf16 else "float16"
    first = next(model.parameters(), None)
    return "float32" if first is None else str(first.dtype).removeprefix("torch.")


def _tokens(args: Any, kwargs: Mapping[str, Any]) -> int | None:
    """Tokens of one forward: batch × length of the first input that has both; None where there is none."""
    given = [kwargs.get(name) for name in _TOKEN_INPUTS]
    for value in (*given, *(args if isinstance(args, tuple) else ())):
        if isinstance(value, torch.Tensor) and value.dim() >= 2:
            return int(value.shape[0] * value.shape[1])
    return None


def _loss(output: Any) -> torch.Tensor | None:
    """The tensor whose gradient comes first: the loss that the model gives, else its first output with a gradient."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple) else (output,)
    for value in (loss, *values):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return value
    return None

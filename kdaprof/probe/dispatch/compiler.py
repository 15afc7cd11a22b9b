"""The rows of torch.compile: does it take the op whole, where does it break, and does it use CUDA Graphs?"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from kdaprof.instruments.device import Device
from kdaprof.probe.dispatch.matrix import BASE, CHUNK, one_line
from kdaprof.runs.cells import make_shape
from kdaprof.runs.dispatch import DispatchRow
from kdaprof.runs.record import Refusal
from kdaprof.workloads.inputs import InputSpec, make_inputs
from kdaprof.workloads.op import op_of

WHOLE = "one graph"
GRAPHED = "CUDA graph"
_PATHS = ("auto", "tensor")
# Where inductor says why it skips CUDA Graphs: torch 2.11 among its hints, 2.13 in a log of their own.
_LOGS = ("__perf_hints", "__cudagraphs")


def compiler_rows(device: Device, *, dtypes: Sequence[str]) -> Iterator[DispatchRow]:
    """For paths `auto` and `tensor`: graph breaks, and (on a GPU) whether `reduce-overhead` captures the region."""
    name = "cpu" if device.index is None else f"cuda:{device.index}"
    shape = make_shape("kda", (*BASE, CHUNK))
    for path in _PATHS:
        for dtype in dtypes:
            row = DispatchRow(
                op="compile", context=f"{path} fullgraph", dtype=dtype, shape=dict(shape), status="ok", chosen=None
            )
            spec = InputSpec(shape=shape, dtype=dtype, device=name, seed=0, requires_grad=False)
            inputs = make_inputs(spec, 0).tensors()
            yield graph_breaks(row, op_of(path, CHUNK), inputs)
            graphed = replace(row, context=f"{path} reduce-overhead")
            if device.kind != "cuda":
                yield replace(graphed, status="unavailable", detail="no CUDA device: there is nothing to capture")
            else:
                yield graph_skips(graphed, op_of(path, CHUNK), inputs)


def graph_breaks(row: DispatchRow, op: Callable[..., object], inputs: Sequence[torch.Tensor]) -> DispatchRow:
    """How many graphs torch.compile makes of `op`, and the reason of each break. Runs no code generation."""
    torch._dynamo.reset()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch._dynamo.explain(op)(*inputs)
    except Exception as error:  # the tracer lets any error of the traced code through
        return replace(row, status="failed", detail=f"{type(error).__name__}: {one_line(error)}")
    finally:
        torch._dynamo.reset()
    graphs = found.graph_count
    breaks = tuple(dict.fromkeys(_reason(one) for one in found.break_reasons))
    refused = tuple(Refusal(path=WHOLE, reason=reason) for reason in breaks)
    if graphs == 1 and not breaks:
        return replace(row, chosen=WHOLE, ran=(f"{found.op_count} operators",))
    return replace(row, chosen=f"{graphs} graphs" if graphs else "eager", refused=refused)


def graph_skips(row: DispatchRow, op: Callable[..., object], inputs: Sequence[torch.Tensor]) -> DispatchRow:
    """Whether `torch.compile(mode="reduce-overhead")` captures `op` into CUDA Graphs, or why not."""
    from torch._dynamo.utils import counters  # noqa: PLC0415

    torch._dynamo.reset()
    before = counters["inductor"]["cudagraph_skips"]
    try:
        with SkipReasons() as said, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = torch.compile(op, mode="reduce-overhead", dynamic=False)
            for _ in range(3):
                with torch.no_grad():
                    compiled(*inputs)
    except Exception as error:  # a missing compiler, or an error of the traced code
        return replace(row, status="failed", detail=f"{type(error).__name__}: {one_line(error)}")
    finally:
        torch._dynamo.reset()
    skips = counters["inductor"]["cudagraph_skips"] - before
    if not skips:
        return replace(row, chosen=GRAPHED)
    reasons = tuple(dict.fromkeys(_first(text) for text in said.texts if "skipping cudagraph" in text.lower()))
    refused = tuple(Refusal(path=GRAPHED, reason=text) for text in reasons or ("torch gave no reason",))
    return replace(row, chosen="no CUDA graph", refused=refused)


class SkipReasons(logging.Handler):
    """Keeps what inductor says while it is entered, as why it skips CUDA Graphs; the logs are put back."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []
        self._loggers: list[tuple[logging.Logger, int, bool]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self.texts.append(record.getMessage())

    def __enter__(self) -> SkipReasons:
        import torch._inductor.compile_fx  # noqa: PLC0415  makes the loggers
        import torch._inductor.cudagraph_utils  # noqa: F401, PLC0415

        for name in list(logging.root.manager.loggerDict):
            if name.startswith("torch._inductor") and name.endswith(_LOGS):
                logger = logging.getLogger(name)
                self._loggers.append((logger, logger.level, logger.propagate))
                logger.addHandler(self)
                logger.setLevel(logging.DEBUG)
                logger.propagate = False
        return self

    def __exit__(self, *_error: object) -> None:
        for logger, level, propagate in self._loggers:
            logger.removeHandler(self)
            logger.setLevel(level)
            logger.propagate = propagate


def _reason(found: object) -> str:
    return _first(str(getattr(found, "reason", found)))


def _first(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else "torch gave no reason"

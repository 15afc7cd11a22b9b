"""The rows of a gated-delta layer of `transformers`: fast path or torch loop, by the functions that really ran.

The layer is Qwen3-Next's, small and randomly initialised: nothing is downloaded.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kdaprof.instruments.device import Device
from kdaprof.probe.dispatch.matrix import one_line
from kdaprof.probe.dispatch.peers import package_missing
from kdaprof.probe.dispatch.seen import functions_seen
from kdaprof.runs.dispatch import DispatchRow
from kdaprof.runs.record import Refusal

TOKENS = 24
_WIDTH, _HEADS, _HEAD_WIDTH = 64, 2, 16
TORCH_LOOP = "torch loop"


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the layer: words of its functions' names, the package of its fast path, and what is needed of that."""

    words: str
    package: str
    needed: str


_PARTS = {
    "delta-rule": _Part("gated_delta_rule", "fla", "fla.ops.gated_delta_rule.chunk_gated_delta_rule"),
    "conv": _Part("causal_conv1d", "causal_conv1d", "causal_conv1d.causal_conv1d_fn"),
}


def layer_rows(device: Device, *, dtypes: Sequence[str]) -> Iterator[DispatchRow]:
    """A row a part, a dtype and a way to call: whole sequences, and one token with a cache."""
    with _quietly():  # packages warn when they are imported
        missing = package_missing(
            "transformers", "transformers.models.qwen3_next.modeling_qwen3_next.Qwen3NextGatedDeltaNet"
        )
    for dtype in dtypes:
        if missing is not None:
            yield _row("layer", "prefill", dtype, 1, missing)
            continue
        yield from _called(device, dtype)


def _called(device: Device, dtype: str) -> Iterator[DispatchRow]:
    name = "cpu" if device.index is None else f"cuda:{device.index}"
    try:
        with _quietly():
            layer, cache = _layer(name, dtype)
    except Exception as error:  # what another's package raises is not ours to know
        yield _row("layer", "prefill", dtype, 1, f"{type(error).__name__}: {one_line(error)}")
        return
    keyword = "cache" if "cache" in inspect.signature(layer.forward).parameters else "cache_params"
    for context, tokens, arguments in (
        ("prefill", TOKENS, {}),
        ("prefill-cache", TOKENS, {keyword: cache}),
        ("decode", 1, {keyword: cache}),
    ):
        x = torch.randn(1, tokens, _WIDTH, device=name, dtype=getattr(torch, dtype))
        yield from _rows(context, dtype, tokens, device, functools.partial(layer, x, **arguments))


def _rows(context: str, dtype: str, tokens: int, device: Device, call: Callable[[], object]) -> Iterator[DispatchRow]:
    words = tuple(part.words for part in _PARTS.values())
    failed = None
    with functions_seen(lambda name: any(word in name for word in words)) as seen, _quietly(), torch.no_grad():
        try:
            call()
        except Exception as error:  # what another's package raises is not ours to know
            failed = f"{type(error).__name__}: {one_line(error)}"
    last = next(reversed(seen), "")
    for part_name, part in _PARTS.items():
        row = _row(f"layer {part_name}", context, dtype, tokens, None)
        ran = tuple(name for name in seen if part.words in name.rpartition(".")[2])
        if not ran:
            yield replace(row, detail=failed or "no function of this part ran")
            continue
        fast = any(name.partition(".")[0] == part.package for name in ran)
        if failed is not None and last in ran:  # a part that was through before keeps its answer
            yield _broken(replace(row, ran=ran), part if fast else None, device, failed)
            continue
        chosen, other = (part.package, TORCH_LOOP) if fast else (TORCH_LOOP, part.package)
        reason = f"transformers prefers {part.package}" if fast else _why_slow(part, device)
        yield replace(row, status="ok", chosen=chosen, refused=(Refusal(path=other, reason=reason),), ran=ran)


def _broken(row: DispatchRow, taken: _Part | None, device: Device, failed: str) -> DispatchRow:
    """The row of the part in which the call ended; `taken` where that was its fast path."""
    if taken is not None and device.kind != "cuda":
        return replace(row, detail=f"transformers calls {taken.package}, which needs a GPU ({failed})")
    return replace(row, status="failed", detail=failed)


def _why_slow(part: _Part, device: Device) -> str:
    missing = package_missing(part.package, part.needed)
    if missing is not None:
        return missing
    if device.kind != "cuda":
        return f"{part.package} needs a GPU"
    return f"{part.package} can be imported, and transformers did not call it: the version it asks for is another"


def _layer(device: str, dtype: str) -> tuple[Any, Any]:
    """The layer in eval mode, and an empty cache for it."""
    models = importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next")
    config = importlib.import_module("transformers").Qwen3NextConfig(
        hidden_size=_WIDTH,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
        linear_num_value_heads=_HEADS,
        linear_num_key_heads=_HEADS,
        linear_key_head_dim=_HEAD_WIDTH,
        linear_value_head_dim=_HEAD_WIDTH,
        num_attention_heads=_HEADS,
        num_key_value_heads=_HEADS,
        head_dim=_HEAD_WIDTH,
        vocab_size=32,
        intermediate_size=_WIDTH,
        num_experts=2,
        num_experts_per_tok=1,
    )
    torch.manual_seed(0)
    layer = models.Qwen3NextGatedDeltaNet(config, 0).to(device=device, dtype=getattr(torch, dtype)).eval()
    cache = importlib.import_module("transformers.cache_utils").DynamicCache(config=config)
    return layer, cache


def _row(op: str, context: str, dtype: str, tokens: int, detail: str | None) -> DispatchRow:
    shape = {"B": 1, "T": tokens, "H": _HEADS, "K": _HEAD_WIDTH, "V": _HEAD_WIDTH}
    return DispatchRow(
        op=op, context=context, dtype=dtype, shape=shape, status="unavailable", chosen=None, detail=detail
    )


class _quietly:
    """transformers says that it falls back by its log; the table says it instead."""

    def __enter__(self) -> None:
        self._log = logging.getLogger("transformers")
        self._level = self._log.level
        self._log.setLevel(logging.ERROR)
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, *error: object) -> None:
        self._warnings.__exit__(*error)  # type: ignore[arg-type]
        self._log.setLevel(self._level)

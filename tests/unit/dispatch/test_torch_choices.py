"""What torch and transformers choose: attention backends, graph breaks, CUDA-graph skips, the gated-delta layer."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from kdaprof.instruments.device import CpuDevice
from kdaprof.probe.dispatch import layer
from kdaprof.probe.dispatch.attention import CONTEXTS, attention_rows
from kdaprof.probe.dispatch.compiler import SkipReasons, compiler_rows, graph_breaks
from kdaprof.probe.dispatch.layer import TORCH_LOOP, layer_rows
from kdaprof.probe.dispatch.peers import package_missing, peer_rows
from kdaprof.runs.dispatch import DispatchRow

ROW = DispatchRow(op="compile", context="x", dtype="float32", shape={"B": 1}, status="ok", chosen=None)


def test_the_operator_that_ran_names_the_attention_backend() -> None:
    (row,) = attention_rows(CpuDevice(), dtypes=("float32",), contexts=("plain",))
    assert row.chosen == "flash"
    assert any("flash_attention" in name for name in row.ran)
    refused = {refusal.path: refusal.reason for refusal in row.refused}
    assert refused["cudnn"].startswith("No ")
    assert refused["math"] == "torch prefers flash"
    with sdpa_kernel([SDPBackend.MATH]):
        (row,) = attention_rows(CpuDevice(), dtypes=("float32",), contexts=("plain",))
    assert row.chosen == "math"


def test_attention_is_looked_at_by_mask_and_gradients() -> None:
    rows = list(attention_rows(CpuDevice(), dtypes=("float32", "bfloat16")))
    assert len({row.key for row in rows}) == len(rows) == 2 * len(CONTEXTS)
    with sdpa_kernel([SDPBackend.MATH]):
        assert {row.chosen for row in attention_rows(CpuDevice(), dtypes=("float32",))} == {"math"}


def test_the_op_is_one_graph_and_a_print_breaks_one() -> None:
    x = torch.ones(3)
    whole = graph_breaks(ROW, lambda x: x * 2 + 1, (x,))
    assert (whole.chosen, whole.refused) == ("one graph", ())

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    row = graph_breaks(ROW, broken, (x,))
    assert row.chosen == "2 graphs"
    assert row.refused[0].path == "one graph"
    assert "graph_break" in row.refused[0].reason
    rows = list(compiler_rows(CpuDevice(), dtypes=("float32",)))
    assert [row.chosen for row in rows if "fullgraph" in row.context] == ["one graph", "one graph"]
    assert all("nothing to capture" in (row.detail or "") for row in rows if "reduce-overhead" in row.context)


def test_torch_s_reason_for_skipping_cuda_graphs_is_kept() -> None:
    """The real function of torch says it, with the log switched off as by default; only a GPU makes it speak itself."""
    from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter

    with SkipReasons() as said:
        log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to mutated inputs (1 instances)")
    log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to something later")
    assert said.texts == ["skipping cudagraphs due to mutated inputs (1 instances)"]


def test_a_missing_package_a_broken_one_and_an_old_one_have_their_real_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert package_missing("no_such_peer", "no_such_peer.ops.f") == "package no_such_peer is not installed"
    (tmp_path / "broken_peer.py").write_text("raise OSError('libcudart.so.12: cannot open shared object file')")
    (tmp_path / "old_peer.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "libcudart.so.12" in (package_missing("broken_peer", "broken_peer.f") or "")
    assert "another version" in (package_missing("old_peer", "old_peer.f") or "")
    assert package_missing("json", "json.loads") is None
    (tmp_path / "cloned_peer" / "docs").mkdir(parents=True)  # a folder is no package, though Python imports it
    assert package_missing("cloned_peer", "cloned_peer.ops.f") == "package cloned_peer is not installed"


def test_a_peer_that_cannot_run_here_is_a_row_with_the_reason() -> None:
    (row,) = peer_rows(CpuDevice(), dtypes=("bfloat16",), contexts=("plain",))
    assert (row.status, row.chosen) == ("unavailable", None)
    assert row.detail in ("package fla is not installed", "fla's Triton kernels need a GPU")


def test_a_layer_whose_fast_path_is_called_where_it_cannot_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLA installed on a machine without a GPU: transformers calls it all the same, behind the part that is through."""
    code = {"__name__": "fla.ops.gated_delta_rule"}
    exec("def chunk_gated_delta_rule():\n    raise RuntimeError('0 active drivers')", code)
    conv = {"__name__": "transformers.models.qwen3_next"}
    exec("def torch_causal_conv1d():\n    pass", conv)

    class Card(CpuDevice):
        kind = "cuda"  # type: ignore[assignment]

    def call() -> None:
        conv["torch_causal_conv1d"]()  # type: ignore[operator]
        code["chunk_gated_delta_rule"]()  # type: ignore[operator]

    monkeypatch.setattr(layer, "package_missing", lambda *_: "package causal_conv1d is not installed")
    for device, status, says in (
        (CpuDevice(), "unavailable", "transformers calls fla, which needs a GPU (RuntimeError: 0 active drivers)"),
        (Card(), "failed", "RuntimeError: 0 active drivers"),
    ):
        rule, before = layer._rows("prefill", "float32", 24, device, call)
        assert (rule.status, rule.chosen, rule.detail) == (status, None, says)
        assert (before.status, before.chosen) == ("ok", TORCH_LOOP)


@pytest.mark.skipif(find_spec("fla") is not None, reason="fla is installed: the layer takes it")
def test_the_gated_delta_layer_says_which_way_it_really_went() -> None:
    pytest.importorskip("transformers")
    rows = {(row.op, row.context): row for row in layer_rows(CpuDevice(), dtypes=("float32",))}
    assert {context for _, context in rows} == {"prefill", "prefill-cache", "decode"}
    prefill, decode = rows["layer delta-rule", "prefill"], rows["layer delta-rule", "decode"]
    assert prefill.chosen == decode.chosen == TORCH_LOOP
    assert [r.path for r in prefill.refused] == ["fla"]
    assert prefill.refused[0].reason == "package fla is not installed"
    assert any("chunk_gated_delta_rule" in name for name in prefill.ran)
    assert any("recurrent_gated_delta_rule" in name for name in decode.ran)

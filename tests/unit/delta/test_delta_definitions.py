"""KDA's relatives by definition: against formulas written out by head, against KDA, each path against them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from torch import Tensor

from kdaprof.errors import UnavailableError, UsageError
from kdaprof.kda import counters, kda, record, reset_counters
from kdaprof.probe.check import TOLERANCE, compare, reference
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.workloads.delta.call import delta_inputs, delta_op
from kdaprof.workloads.delta.facts import DELTA, set_bytes, work
from kdaprof.workloads.delta.reference import recurrence
from kdaprof.workloads.inputs import InputSpec
from kdaprof.workloads.op import CaseSpec, OpCase
from kdaprof.workloads.tensors import NamedInputs

SIZES = (2, 21, 2, 8, 12)
"""B, T, H, K, V: a whole chunk and a short one."""
Array = np.ndarray


def made(workload: str, *, dtype: str = "float64", grad: bool = False) -> NamedInputs:
    shape = make_shape(workload, (*SIZES, 16))
    return delta_inputs(workload, InputSpec(shape=shape, dtype=dtype, device="cpu", seed=3, requires_grad=grad), 0)


def key(workload: str, path: str, phase: str = "fwdbwd", context: str = "plain") -> CellKey:
    return CellKey(workload, path, context, "eager", phase, make_shape(workload, (*SIZES, 16)), "float32")


def case(workload: str, path: str, phase: str = "fwdbwd", context: str = "plain") -> OpCase:
    return OpCase(CaseSpec(key=key(workload, path, phase, context), device="cpu", seed=3, input_sets=1))


# ---------------------------------------------------------------- the formulas, a head and a token at a time


def gdn_head(q: Array, k: Array, v: Array, g: Array, beta: Array) -> Array:
    state = np.zeros((q.shape[1], v.shape[1]))
    out = []
    for t in range(len(q)):
        state = (np.eye(len(k[t])) - beta[t] * np.outer(k[t], k[t])) @ (np.exp(g[t]) * state)
        state = state + beta[t] * np.outer(k[t], v[t])
        out.append(state.T @ q[t] / np.sqrt(q.shape[1]))
    return np.array(out)


def gdn2_head(q: Array, k: Array, v: Array, g: Array, b: Array, w: Array) -> Array:
    state = np.zeros((q.shape[1], v.shape[1]))
    out = []
    for t in range(len(q)):
        state = (np.eye(len(k[t])) - np.outer(k[t], b[t] * k[t])) @ np.diag(np.exp(g[t])) @ state
        state = state + np.outer(k[t], w[t] * v[t])
        out.append(state.T @ q[t] / np.sqrt(q.shape[1]))
    return np.array(out)


def precond_head(
    q: Array, k: Array, v: Array, g: Array, g_atk: Array, beta_atk: Array, beta: Array
) -> Array:  # fmt: skip
    q, k = (x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    state, moment = np.zeros((q.shape[1], v.shape[1])), np.zeros(q.shape[1])
    out = []
    for t in range(len(q)):
        moment = np.exp(g_atk[t]) * moment + beta_atk[t] * k[t] ** 2
        far = np.log(moment + 1e-6) + 0.2
        written = k[t] * 1.5 ** -(far / (1 + abs(far)))
        state = (np.eye(len(k[t])) - beta[t] * np.outer(written, k[t])) @ np.diag(np.exp(g[t])) @ state
        state = state + beta[t] * np.outer(written, v[t])
        out.append(state.T @ q[t] / np.sqrt(q.shape[1]))
    return np.array(out)


FORMULAS: dict[str, Callable[..., Array]] = {"gdn": gdn_head, "gdn2": gdn2_head, "precond_kda": precond_head}


@pytest.mark.parametrize("workload", DELTA)
def test_the_recurrence_is_the_formula(workload: str) -> None:
    args = made(workload).tensors()
    o = recurrence(workload, *args).numpy()
    for batch in range(SIZES[0]):
        for head in range(SIZES[2]):
            want = FORMULAS[workload](*(x.numpy()[batch, :, head] for x in args))
            np.testing.assert_allclose(o[batch, :, head], want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("workload", DELTA)
def test_its_gradients_are_those_of_finite_differences(workload: str) -> None:
    shape = make_shape(workload, (1, 3, 1, 2, 2, 16))
    spec = InputSpec(shape=shape, dtype="float64", device="cpu", seed=1, requires_grad=True)
    args = delta_inputs(workload, spec, 0).tensors()
    assert torch.autograd.gradcheck(lambda *x: recurrence(workload, *x), args)


def test_with_one_gate_a_head_they_are_kda() -> None:
    q, k, v, g, beta = made("gdn").tensors()
    want, _ = kda(q, k, v, g[..., None].expand_as(k), beta, path="reference")
    assert torch.equal(recurrence("gdn", q, k, v, g, beta), want)
    gates = (beta[..., None].expand_as(k), beta[..., None].expand_as(v))
    per_channel = g[..., None].expand_as(k)
    torch.testing.assert_close(recurrence("gdn2", q, k, v, per_channel, *gates), want, rtol=1e-13, atol=1e-14)


def test_an_op_without_a_definition_is_refused() -> None:
    with pytest.raises(UsageError, match="no recurrence here; known: gdn, gdn2, precond_kda"):
        recurrence("rwkv7", *made("gdn").tensors())


# ---------------------------------------------------------------- paths

INTERPRETED = ("fused",)
OURS = [(w, p) for w, op in DELTA.items() for p in op.paths if p not in (*INTERPRETED, "fla", "compiled")]


@pytest.mark.parametrize(("workload", "path"), OURS)
def test_every_path_keeps_to_the_recurrence_and_is_counted(workload: str, path: str) -> None:
    reset_counters()
    cell = case(workload, path)
    cell.prepare(0)
    with record() as seen:
        cell.run()
    check = compare(
        cell.outputs(),
        reference(cell.current, backward=True),
        against="float64 recurrence",
        tolerance=TOLERANCE["float32"],
    )
    assert check.passed, check
    assert [row.name for row in check.tensors] == ["o", *(f"d{name}" for name in cell.current.names)]
    assert (seen.paths("fwd"), seen.paths("bwd")) == ((path,), (path,))
    assert (counters()[path].fwd, counters()[path].bwd) == (1, 1)


@pytest.mark.parametrize("context", ["no_grad", "checkpoint", "vmap", "non-contiguous"])
def test_the_recurrence_as_a_path_can_be_wrapped(context: str) -> None:
    cell = case("precond_kda", "reference", "fwd" if context == "no_grad" else "fwdbwd", context)
    cell.prepare(0)
    cell.run()
    wanted = reference(cell.current, backward=context != "no_grad")
    assert compare(cell.outputs(), wanted, against="", tolerance=TOLERANCE["float32"]).passed


@pytest.mark.parametrize(("workload", "path"), [("gdn2", "fused"), ("precond_kda", "tensor"), ("gdn", "flashkda")])
def test_a_path_that_does_not_compute_the_op_says_so(workload: str, path: str) -> None:
    with pytest.raises(UnavailableError, match=f"path '{path}' does not compute {workload}"):
        delta_op(key(workload, path), "cpu", trains=False)


@pytest.mark.parametrize("workload", DELTA)
def test_inputs_lie_at_kda_s_operating_point(workload: str) -> None:
    inputs = made(workload, dtype="float32")
    named = inputs.named
    ones = torch.ones(SIZES[:3])
    torch.testing.assert_close(named["q"].norm(dim=-1), ones)
    torch.testing.assert_close(named["k"].norm(dim=-1), ones)
    for name, x in named.items():
        if name.startswith("g"):
            assert x.max() <= 0
            assert -0.1 < float(x.mean()) < -0.03
        elif name.startswith("b") or name == "w":
            assert 0 <= float(x.min()) <= float(x.max()) <= 1
    every: list[Tensor] = [*inputs.tensors(), inputs.do]
    assert set_bytes(key(workload, "reference")) == sum(x.numel() * x.element_size() for x in every)


@pytest.mark.parametrize("workload", DELTA)
def test_a_call_must_move_its_inputs_its_output_and_every_gradient(workload: str) -> None:
    cell = case(workload, "reference")
    cell.prepare(0)
    cell.run()

    def size(tensors: Iterable[Tensor]) -> int:
        return sum(x.numel() * x.element_size() for x in tensors)

    made_by_it = cell.outputs()
    inputs, o = size(cell.current.tensors()), size([made_by_it.pop("o")])
    moved = {phase: work(key(workload, "reference", phase)) for phase in ("fwd", "bwd", "fwdbwd")}
    assert moved["fwd"].bytes_compulsory == inputs + o
    assert moved["bwd"].bytes_compulsory == inputs + size([cell.current.do]) + size(made_by_it.values())
    assert moved["fwdbwd"].bytes_compulsory == moved["fwd"].bytes_compulsory + moved["bwd"].bytes_compulsory
    assert moved["fwdbwd"].flops == moved["fwd"].flops + moved["bwd"].flops


def test_a_floor_is_that_of_the_path_s_instruction() -> None:
    shape = make_shape("gdn", (10, 512, 12, 64, 64, 16))
    found = work(CellKey("gdn", "fla", "plain", "eager", "fwd", shape, "float32"))
    assert (found.flops, found.rate) == (2_154_823_680, "matmul_tf32")
    assert found.bytes_compulsory == 4 * 15_728_640 + 2 * 245_760  # q, k, v, o; g, beta
    assert work(CellKey("gdn", "fused", "plain", "eager", "fwd", shape, "float32")).rate == "matmul_tf32x3"

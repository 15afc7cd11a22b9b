"""Inputs: the same in every process, at the operating point, in as many sets as it takes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from kdaprof.kda.values import validate
from kdaprof.workloads.inputs import DECAY, GATE, InputSpec, OpInputs, make_inputs, sets_to_exceed

SHAPE = (("B", 2), ("T", 24), ("H", 3), ("K", 16), ("V", 32), ("C", 16))
SPEC = InputSpec(shape=SHAPE, dtype="float32", device="cpu", seed=7, requires_grad=True)
MIB = 1 << 20


def everything(x: OpInputs) -> tuple[torch.Tensor, ...]:
    return (*x.tensors(), x.do)


def digest(x: OpInputs) -> str:
    whole = hashlib.sha256()
    for tensor in everything(x):
        whole.update(tensor.detach().numpy().tobytes())
    return whole.hexdigest()


def test_shapes_dtype_and_gradients() -> None:
    x = make_inputs(SPEC, 0)
    keys, values = (2, 24, 3, 16), (2, 24, 3, 32)
    assert [tuple(t.shape) for t in everything(x)] == [keys, keys, values, keys, (2, 24, 3), values]
    assert all(t.dtype is torch.float32 and t.is_contiguous() and t.is_leaf for t in everything(x))
    assert [t.requires_grad for t in everything(x)] == [True] * 5 + [False]
    assert x.tensors() == (x.q, x.k, x.v, x.g, x.beta)
    assert x.nbytes == 4 * 2 * 24 * 3 * (3 * 16 + 2 * 32 + 1)


def test_without_gradients_none_asks_for_one() -> None:
    assert not any(t.requires_grad for t in everything(make_inputs(replace(SPEC, requires_grad=False), 0)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_every_dtype_has_the_same_values_rounded(dtype: str) -> None:
    exact = make_inputs(SPEC, 1)
    for a, b in zip(everything(make_inputs(replace(SPEC, dtype=dtype), 1)), everything(exact), strict=True):
        assert a.dtype is getattr(torch, dtype)
        assert torch.equal(a, b.to(a.dtype))


def test_another_process_makes_the_same_inputs() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import torch; torch.manual_seed(99); torch.randn(3)\n"
        "from test_workload_inputs import SPEC, digest, make_inputs\n"
        "print(digest(make_inputs(SPEC, 2)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(__import__("pathlib").Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == digest(make_inputs(SPEC, 2))


def test_making_inputs_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    want = torch.randn(4)
    torch.manual_seed(3)
    make_inputs(SPEC, 0)
    assert torch.equal(torch.randn(4), want)


def test_sets_and_seeds_differ() -> None:
    made = {digest(make_inputs(replace(SPEC, seed=seed), index)) for seed in (0, 1, 2) for index in range(4)}
    assert len(made) == 12


def test_the_largest_seed_works() -> None:
    assert make_inputs(replace(SPEC, seed=2**32 - 1), 7).q.isfinite().all()


def test_the_operating_point_is_that_of_a_model_at_initialisation() -> None:
    big = (("B", 4), ("T", 256), ("H", 4), ("K", 32), ("V", 32), ("C", 16))
    x = make_inputs(InputSpec(shape=big, dtype="float32", device="cpu", seed=0, requires_grad=False), 0)
    for unit in (x.q, x.k):
        torch.testing.assert_close(unit.norm(dim=-1), torch.ones(4, 256, 4))
    assert float(x.g.max()) <= 0
    assert float(x.g.mean()) == pytest.approx(-DECAY, rel=0.01)
    assert pytest.approx(0.054) == DECAY
    assert 0 <= float(x.beta.min()) <= float(x.beta.max()) <= 1
    assert float(x.beta.mean()) == pytest.approx(GATE, rel=0.01)
    assert float(x.g.std()) > 0
    assert float(x.beta.std()) > 0
    # In a chunk of 16 the decays add up to less than fp16 can hold the exponential of.
    assert float(-x.g.sum(1).min()) / 256 * 16 < 11
    validate(*x.tensors())


def test_sets_to_exceed_evicts_and_is_bounded() -> None:
    assert sets_to_exceed(None, MIB) == 1
    assert sets_to_exceed(0, MIB) == 1
    assert sets_to_exceed(50 * MIB, 0) == 1
    assert sets_to_exceed(50 * MIB, 1000 * MIB) == 2
    assert sets_to_exceed(50 * MIB, 50 * MIB) == 2
    assert sets_to_exceed(50 * MIB, 30 * MIB) == 4
    assert sets_to_exceed(50 * MIB, 1) == 8
    assert sets_to_exceed(50 * MIB, 1, most=3) == 3


@pytest.mark.parametrize("megabytes", range(13, 101, 7))
def test_between_two_uses_of_a_set_the_others_fill_the_cache(megabytes: int) -> None:
    cache, size = 50 * MIB, megabytes * MIB
    assert (sets_to_exceed(cache, size) - 1) * size >= cache or sets_to_exceed(cache, size) == 8

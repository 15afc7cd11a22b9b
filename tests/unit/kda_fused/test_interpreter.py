"""The kernels' arithmetic, checked without a GPU in Triton's interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.interpreter

LIMITS = {"float32": (1e-6, 1e-5), "bfloat16": (1e-2, 1e-2), "float16": (1e-2, 1e-2)}
COMPARED = (
    "tail", "k wider", "v wider", "short", "one token", "wide", "no states", "strong", "range", "mixed", "equal keys",
    "bfloat16", "float16", "at home", "padded", "whole, not at home", "operator",
)  # fmt: skip


def interpreted(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One of the scripts beside this file, in a process of its own."""
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    done = interpreted("interpreted_cases.py")
    found = {line["case"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, f"after {list(found)}:\n{done.stderr[-4000:]}"
    return found


@pytest.mark.parametrize("case", COMPARED)
def test_agrees_with_the_float64_recurrence(results: dict[str, dict[str, Any]], case: str) -> None:
    outputs, gradients = LIMITS.get(case, LIMITS["float32"])
    errors = results[case]["errors"]
    assert results[case]["finite"]
    assert all(errors[name] <= outputs for name in ("o", "ht") if name in errors), errors
    assert all(value <= gradients for name, value in errors.items() if name.startswith("d")), errors
    assert len(errors) == (6 if case in {"no states", "padded"} else 8)


@pytest.mark.parametrize("case", COMPARED)
def test_results_have_their_inputs_dtypes(results: dict[str, dict[str, Any]], case: str) -> None:
    assert results[case]["dtypes"] == results[case]["want_dtypes"]


def test_no_kernel_reads_or_writes_beside_its_tensors() -> None:
    done = interpreted("guarded_cases.py")
    assert done.returncode == 0, f"after {done.stdout}:\n{done.stderr[-4000:]}"
    assert len(done.stdout.splitlines()) == 12
    overrun = interpreted("guarded_cases.py", "overrun")
    assert (overrun.returncode, overrun.stdout) == (-signal.SIGSEGV, "within 0.0\n")


def test_later_tokens_change_no_bit_of_earlier_outputs(results: dict[str, dict[str, Any]]) -> None:
    assert results["causality"]["leaks"] == []


def test_views_give_the_same_bits(results: dict[str, dict[str, Any]]) -> None:
    assert results["views"]["equal"]
    assert not results["views"]["contiguous"]


@pytest.mark.parametrize("axis", ["B", "T"])
def test_empty_batches_need_no_launch(results: dict[str, dict[str, Any]], axis: str) -> None:
    got = results["empty"][axis]
    batch = 0 if axis == "B" else 2
    assert got["shapes"] == [[batch, 20 if axis == "B" else 0, 2, 32], [batch, 2, 16, 32]]
    assert got["state_kept"]
    assert got["zero"]
    assert got["dh0"]
    assert got["zero_state"]


def test_gradient_of_the_final_state_alone(results: dict[str, dict[str, Any]]) -> None:
    assert results["partial"]["error"] <= 1e-5


def test_a_second_derivative_is_refused(results: dict[str, dict[str, Any]]) -> None:
    assert "once_differentiable" in results["partial"]["second"]


def test_a_call_without_gradients_gives_the_same_bits_and_no_graph(results: dict[str, dict[str, Any]]) -> None:
    got = results["undifferentiated"]
    assert got["same"] == {"constants": True, "no_grad": True}
    assert got["graphs"] == {"constants": False, "no_grad": False}
    assert got["through h0"] == [True, True]


def test_derivatives_that_the_kernels_do_not_have_are_refused(results: dict[str, dict[str, Any]]) -> None:
    refused = results["undifferentiated"]["refused"]
    assert "forward mode AD" in refused["dual"]
    assert "functorch" in refused["vmap"]


def test_operators_pass_torchs_own_check(results: dict[str, dict[str, Any]]) -> None:
    assert results["opcheck"]["passed"]


def test_the_first_calls_check_tells_right_from_wrong(results: dict[str, dict[str, Any]]) -> None:
    assert results["self check"]["passed"]
    assert results["self check"]["failed"].startswith("wrong result: dq is ")

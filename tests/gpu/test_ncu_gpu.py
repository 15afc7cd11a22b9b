"""Nsight Compute on a real card: our ranges select the forward's and the backward's kernels, and no others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kdaprof.analysis.ncu_document import ncu_schema
from kdaprof.errors import Exit
from kdaprof.instruments.nsight.tool import find_tool

pytestmark = pytest.mark.gpu

FORWARD = {"kdaprof_kda_fwd_prepare", "kdaprof_kda_fwd_recur"}
BACKWARD = {"kdaprof_kda_bwd_recur", "kdaprof_kda_bwd_state", "kdaprof_kda_bwd_pairs"}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if find_tool("ncu") is None:
        pytest.skip("Nsight Compute (ncu) is not installed here")
    out = tmp_path_factory.mktemp("ncu") / "out"
    command = [sys.executable, "-m", "kdaprof", "ncu", "--path", "fused", "--out", str(out), "--json"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    if done.returncode == Exit.UNFIT:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(document, ncu_schema())
    return document


def names(document: dict[str, Any], phase: str) -> set[str]:
    return {row["name"] for row in document["kernels"] if row["phase"] == phase}


def test_the_ranges_select_forward_and_backward_kernels(counted: dict[str, Any]) -> None:
    assert names(counted, "fwd") == FORWARD
    assert names(counted, "bwd") >= BACKWARD  # launched from autograd's own thread
    assert not any("fwd" in name for name in names(counted, "bwd"))


def test_measured_bytes_are_near_the_model_s(counted: dict[str, Any]) -> None:
    for phase in counted["phases"]:
        assert phase["calls"] == 1
        assert phase["path_bytes"] is not None
        # Writes may stay in the L2 (50 MB on an H200), blocks may be read again; a factor of 2 would be another way
        # of computing than the one that is listed.
        assert 0.5 < phase["of_path"] < 2.0, phase


def test_registers_and_occupancy_are_there(counted: dict[str, Any]) -> None:
    for row in counted["kernels"]:
        assert row["registers"] > 0, row
        assert 0 < row["occupancy"] <= 1.01, row
        assert row["spills"] is not None, row

"""The watch on a real card: real NVML, GPM, the driver's buffer; busy and idle told apart; the lock; its own cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from kdaprof.analysis.util_document import gpu_util_schema
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.cuda_device import CudaDevice
from kdaprof.instruments.lock import card_lock
from kdaprof.instruments.nvml import open_gpu

pytestmark = pytest.mark.gpu

COMMAND = [sys.executable, "-m", "kdaprof"]
BUSY = """
import time, torch
x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
until = time.monotonic() + 6
while time.monotonic() < until:
    for _ in range(20):
        y = x @ x
    torch.cuda.synchronize()
"""


@pytest.fixture(autouse=True)
def _nvml() -> None:
    reading = open_gpu(CudaDevice(0).traits)
    if reading.value is None:
        pytest.skip(f"no NVML: {reading.reason}")
    reading.value.nvml.close()


def watched(folder: Path, *flags: str) -> dict[str, Any]:
    done = subprocess.run(
        [*COMMAND, "gpu-util", "--json", "--out", str(folder / "out"), *flags],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    jsonschema.Draft202012Validator(gpu_util_schema()).validate(document)
    return document


def test_a_busy_card_reads_busy_and_its_matmuls_use_the_tensor_cores(tmp_path: Path) -> None:
    document = watched(tmp_path, "--hz", "10", "--", sys.executable, "-c", BUSY)
    facts = document["gpus"][0]["facts"]
    assert facts["util_mean"]["max"] > 0.9
    assert facts["power_w"]["max"] > 1.3 * facts["power_w"]["min"]
    assert facts["energy_j"]["value"] > 0
    assert facts["mem_used_bytes"]["max"] > 2 * 8192 * 8192 * 2
    if facts["gpm_sm"]["missing"] is None:
        assert facts["gpm_sm"]["max"] > 0.5
        assert facts["gpm_tensor"]["max"] > 0.2
    assert document["child"]["exit"] == 0
    assert document["complete"]


def test_two_samples_a_second_cost_at_most_0_2_percent_of_a_core(tmp_path: Path) -> None:
    document = watched(tmp_path, "--hz", "2", "--duration", "45")
    assert document["samples_taken"] == document["samples_due"] == 91
    assert document["own_cost"]["value"] <= 0.002


def test_a_hundred_samples_a_second_are_taken(tmp_path: Path) -> None:
    document = watched(tmp_path, "--hz", "100", "--duration", "2")
    assert document["samples_taken"] >= 0.97 * document["samples_due"]
    facts = document["gpus"][0]["facts"]
    # NVML's window is 1/6 s at least: most of 100 readings a second are repeats, and are not counted.
    assert facts["util_mean"]["n"] < document["samples_taken"] / 4


def test_by_uuid_it_is_the_same_card_as_torchs(tmp_path: Path) -> None:
    uuid = CudaDevice(0).traits.uuid
    document = watched(tmp_path, "--hz", "10", "--duration", "0.5", "--gpus", f"GPU-{uuid}")
    assert [card["uuid"] for card in document["gpus"]] == [f"GPU-{uuid}"]
    assert document["gpus"][0]["name"] == torch.cuda.get_device_name(0)


def test_a_probe_is_refused_while_another_measures_on_the_card(tmp_path: Path) -> None:
    card = CudaDevice(0).traits.pci_bus_id
    assert card is not None
    command = [
        *COMMAND,
        "probe",
        "--path",
        "tensor",
        "--phases",
        "fwd",
        "--modes",
        "eager",
        "--out",
        str(tmp_path / "r"),
    ]
    # A child of ours would share the lock: it must not know of us.
    environment = {**os.environ, "KDAPROF_LOCK_DIR": str(tmp_path)}
    with card_lock(card, wait_s=0, clock=MonotonicClock(), command="the first", directory=tmp_path):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 5
    assert "the first" in done.stderr
    assert not (tmp_path / "r").exists()

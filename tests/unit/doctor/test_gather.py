"""The real machine, looked at: what every machine has, and files of /proc as another machine has them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kdaprof.doctor import gather as module
from kdaprof.doctor.gather import attention_reason, gather
from kdaprof.instruments.fakes.nvml import FakeCard, FakePynvml
from kdaprof.instruments.nvml import open_nvml
from kdaprof.kda.decision import PATHS


def test_this_machine() -> None:
    found = gather(argv=("kdaprof", "doctor"), watch=False)
    assert found.version("python") == sys.version.split()[0]
    assert found.tools["py-spy"] is not None
    assert {answer.path for answer in found.paths} == set(PATHS)
    assert next(a for a in found.paths if a.path == "tensor").refusal is None
    assert found.conditions is not None
    assert found.cupti_in_torch is not None


def test_without_torch_every_path_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.find_spec
    monkeypatch.setattr(module, "find_spec", lambda name: None if name in ("torch", "triton") else real(name))
    found = gather(argv=(), watch=False)
    assert found.cupti_in_torch is None
    assert {answer.refusal for answer in found.paths} == {
        "torch is not installed, or cannot be imported (pip install 'kdaprof[torch]')"
    }


def test_proc_says_what_is_allowed(tmp_path: Path) -> None:
    for name, text in {
        "proc/sys/kernel/yama/ptrace_scope": "2\n",
        "proc/self/status": "Name:\tx\nCapEff:\t0000000000200000\n",
        "proc/driver/nvidia/params": "RmProfilingAdminOnly: 1\n",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = gather(argv=(), root=tmp_path, watch=False)
    assert (found.ptrace_scope, found.ptrace_capability, found.is_admin) == (2, False, True)
    assert found.counters_restricted is True


def test_a_lost_card_among_others_is_named_and_the_rest_goes_on() -> None:
    nvml = open_nvml(
        lambda: FakePynvml([FakeCard("GPU-a", "00000000:01:00.0"), FakeCard("GPU-b", "00000000:02:00.0", lost=True)])
    )
    cards, lost = module._cards(nvml, None)
    assert [card.name for card in cards] == ["Fake GPU"]
    assert cards[0].bandwidth_bytes_per_s is None  # this NVML has no bus width: missing, not 0
    assert len(lost) == 1
    assert "GPU is lost" in lost[0]


@pytest.mark.parametrize(
    ("warned", "error", "reason"),
    [
        (
            [
                "Memory efficient kernel not used because:",
                "Flash attention kernel not used because:",
                "Expected query, key and value to all be of dtype: {Half, BFloat16}. Got Query dtype: float "
                "(Triggered internally at /pytorch/aten/src/ATen/native/transformers/cuda/sdp_utils.cpp:99.)",
            ],
            "No available kernel. Aborting execution.",
            "Expected query, key and value to all be of dtype: {Half, BFloat16}. Got Query dtype: float",
        ),
        ([], "No available kernel. Aborting execution.\nmore", "No available kernel. Aborting execution"),
    ],
)
def test_the_reason_of_an_attention_backend(warned: list[str], error: str, reason: str) -> None:
    assert attention_reason(warned, error) == reason

"""The doctor on a real card: NVML and torch agree on it, attention is tried, ceilings lie below what memory can."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from kdaprof.doctor.examine import examine
from kdaprof.doctor.gather import gather
from kdaprof.doctor.machine import Machine

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def here() -> Machine:
    return gather(argv=("kdaprof", "doctor", "--measure"), measure=nullcontext)


def test_the_card_gives_its_own_account(here: Machine) -> None:
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    assert here.capability == (properties.major, properties.minor)
    card = here.cards[0]
    assert card.sm_count == properties.multi_processor_count
    assert card.capability == here.capability
    assert card.total_bytes is not None
    if card.bandwidth_bytes_per_s is None:
        pytest.skip("this NVML gives no memory clock or bus width")
    assert 1e11 < card.bandwidth_bytes_per_s < 2e13


def test_the_measured_copy_rate_is_below_what_the_memory_can_move(here: Machine) -> None:
    copy = next(c.value for c in here.ceilings if c.name == "copy")
    bandwidth = here.cards[0].bandwidth_bytes_per_s
    if bandwidth is None:
        pytest.skip("this NVML gives no memory clock or bus width")
    assert 0.4 * bandwidth < copy < 1.02 * bandwidth


def test_attention_was_tried_with_a_reason_for_each_refusal(here: Machine) -> None:
    answers = {(a.backend, a.dtype): a.refusal for a in here.attention}
    assert len(answers) == 12
    assert answers["math", "float32"] is None
    # float32 has no flash kernel on any card: the reason is torch's own, not "No available kernel".
    assert "float" in (answers["flash", "float32"] or "").lower()


def test_our_paths_can_run_and_the_machine_has_no_fault_of_its_own(here: Machine) -> None:
    checks = {check.id: check for check in examine(here)}
    assert checks["path-fused"].status == "ok"
    assert checks["torch-driver"].status == "ok"
    assert "card" not in checks
    assert checks["card-0"].status == "ok"

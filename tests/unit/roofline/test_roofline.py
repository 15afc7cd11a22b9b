"""The roofline on paper: the field report's own verdict, the one that compulsory bytes give, and the serial chain."""

from __future__ import annotations

import pytest

from kdaprof.analysis.roofline import BASES, Basis, bases_of, field_basis, roof, serial_of
from kdaprof.analysis.roofline_measured import Call, beaten, stand
from kdaprof.errors import UsageError
from kdaprof.kda.cost import OpSize
from kdaprof.runs.facts import Fact, Reason
from kdaprof.runs.record import Ceiling

PRODUCTION = OpSize(10, 512, 12, 64, 64, 16)


def ceilings(copy: float, rate: float, provenance: str = "declared") -> tuple[Ceiling, ...]:
    names = ("matmul_float16", "matmul_float32", "matmul_tf32x3")
    rates = [Ceiling(name=name, value=rate, unit="FLOP/s", provenance=provenance) for name in names]  # type: ignore[arg-type]
    return (Ceiling(name="copy", value=copy, unit="B/s", provenance=provenance), *rates)  # type: ignore[arg-type]


REPORTED = ceilings(1792e9, 43.7e12)


def basis(name: str, path: str = "fused", phase: str = "fwd", size: OpSize = PRODUCTION) -> Basis:
    (found,) = bases_of(size, "float32", paths=(path,), phases=(phase,), names=(name,))
    return found


def test_the_field_reports_bytes_give_its_verdict_from_its_tensors() -> None:
    listed = field_basis(PRODUCTION, "float32")
    assert listed.tensors is not None
    assert listed.bytes == 2 * sum(t.moved_bytes for t in listed.tensors) == 692_060_160
    row = roof(listed, REPORTED, serial_of(PRODUCTION, None))
    assert row.floor.value == pytest.approx(386_194, abs=1)
    assert row.bound == "memory"
    assert listed.intensity == pytest.approx(3.11, abs=0.01)
    assert row.balance == pytest.approx(24.4, abs=0.05)
    half = field_basis(OpSize(5, 512, 12, 64, 64, 16), "float32")
    assert half.bytes == 692_060_160 // 2


def test_compulsory_bytes_turn_the_verdict_round() -> None:
    row = roof(basis("compulsory"), REPORTED, serial_of(PRODUCTION, None))
    assert row.bound == "compute"
    assert row.floor.value == pytest.approx(2_154_823_680 / 43.7e12 * 1e9, abs=1)
    assert row.memory_ns is not None
    assert row.memory_ns < float(row.floor.value or 0)


def test_declared_ceilings_may_not_be_quoted_and_measured_ones_may() -> None:
    serial = serial_of(PRODUCTION, 132)
    declared = roof(basis("compulsory"), REPORTED, serial)
    assert [reason.rule for reason in declared.floor.reasons] == ["Q11"]
    assert declared.floor.provenance == "declared"
    measured = roof(basis("compulsory"), ceilings(4e12, 50e12, "measured"), serial)
    assert measured.floor.quotable
    assert measured.serial.quotable


def test_without_ceilings_the_floor_is_missing_with_the_reason() -> None:
    row = roof(basis("compulsory"), (), serial_of(PRODUCTION, None), why_none="no card here")
    assert (row.floor.value, row.floor.detail, row.bound) == (None, "no card here", None)
    assert row.basis.bytes == 78_888_960
    one = roof(basis("compulsory"), REPORTED[:1], serial_of(PRODUCTION, None))
    assert "matmul_tf32x3" in (one.floor.detail or "")


def test_a_path_without_a_listing_says_why() -> None:
    row = roof(basis("path", "compiled"), REPORTED, serial_of(PRODUCTION, None))
    assert row.basis.bytes is None
    assert "inductor" in (row.floor.detail or "")
    assert row.compute_ns is not None
    with pytest.raises(UsageError, match="--bytes"):
        bases_of(PRODUCTION, "float32", paths=("fused",), phases=("fwd",), names=("guess",))
    assert field_basis(PRODUCTION, "bfloat16").bytes is None
    assert len(bases_of(PRODUCTION, "float32", paths=("fused", "tensor"), phases=("fwd", "bwd"), names=BASES)) == 9


def test_the_serial_chain_against_the_card() -> None:
    rate = Ceiling(name="matmul_tf32x3", value=170e12, unit="FLOP/s", provenance="measured")
    serial = serial_of(PRODUCTION, 170)
    assert (serial.chain.programs, serial.chain.steps, serial.waves) == (120, 32, 1)
    assert serial.flops_per_step == 3 * 131_072
    assert serial.busy_share == pytest.approx(120 / 170)
    assert serial.ns(rate) == pytest.approx(32 * 393_216 / 1e12 * 1e9)
    # Blocks of the value channels shorten the chain's steps and fill the card: 480 programs are 3 on the fullest.
    blocked = serial_of(PRODUCTION, 170, v_block=16)
    assert (blocked.chain.programs, blocked.waves, blocked.busy_share) == (480, 3, 1.0)
    assert blocked.ns(rate) == pytest.approx(0.75 * (serial.ns(rate) or 0))
    assert serial_of(PRODUCTION, None).ns(rate) is None


def test_a_call_faster_than_its_floor_is_a_finding_about_the_floor() -> None:
    row = roof(basis("compulsory"), ceilings(4e12, 50e12, "measured"), serial_of(PRODUCTION, 132))
    floor = float(row.floor.value or 0)
    wall = Fact(value=2 * floor, unit="ns", n=5)
    slow = Call(id="a", wall=wall, busy=Fact(value=2 * floor, unit="ns", n=5), evicts=True)
    (one,) = stand([row], {("fused", "fwd"): slow}, "run")
    assert one.share.value == pytest.approx(0.5)
    assert one.share.quotable
    assert beaten([one]) == ()
    fast = Call(id="a", wall=wall, busy=Fact(value=floor / 2, unit="ns", n=5), evicts=True)
    (one,) = stand([row], {("fused", "fwd"): fast}, "run")
    assert [reason.rule for reason in one.share.reasons] == ["Q10"]
    (finding,) = beaten([one])
    assert finding.id == "faster-than-floor"
    assert finding.cell == "a"
    cached = Call(id="a", wall=wall, busy=fast.busy, evicts=False)
    assert beaten(stand([row], {("fused", "fwd"): cached}, "run")) == ()


def test_a_path_whose_bytes_were_listed_otherwise_when_it_ran_says_so() -> None:
    wall = Fact(value=1e6, unit="ns", n=5)

    def then(name: str, listed: int | None) -> int | None:
        row = roof(basis(name), REPORTED, serial_of(PRODUCTION, None))
        call = Call(id="a", wall=wall, busy=wall, evicts=True, path_bytes=listed)
        return stand([row], {("fused", "fwd"): call}, "run")[0].bytes_when_run

    assert then("path", 1_000) == 1_000
    assert then("path", basis("path").bytes) is None
    assert then("path", None) is None
    assert then("compulsory", 1_000) is None


def test_a_share_inherits_what_refuses_its_parts() -> None:
    row = roof(basis("compulsory"), REPORTED, serial_of(PRODUCTION, None))
    busy = Fact(value=1e6, unit="ns", n=5).refuse(Reason("Q07", "moving clocks"))
    (one,) = stand([row], {("fused", "fwd"): Call(id="a", wall=busy, busy=busy, evicts=True)}, "run")
    assert {reason.rule for reason in one.share.reasons} == {"Q07", "Q11"}
    (alone,) = stand([row], {}, None)
    assert alone.share.value is None
    assert "--run" in (alone.share.detail or "")


def test_launch_costs_are_the_card_s_alone() -> None:
    from kdaprof.instruments.clock import MonotonicClock
    from kdaprof.instruments.device import CpuDevice
    from kdaprof.probe.launch_costs import measure_launch_costs

    assert measure_launch_costs(CpuDevice(), MonotonicClock()) == ()

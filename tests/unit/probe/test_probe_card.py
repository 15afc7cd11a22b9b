"""Power and temperature beside the samples of a product; nothing of it where no card is read."""

from __future__ import annotations

from dataclasses import replace

from probe_parts import QUICK, Scene, cpu_bench, spec

from kdaprof.instruments.card import CardReadings
from kdaprof.instruments.fakes.sensor import FakeSensor
from kdaprof.instruments.reading import Reading
from kdaprof.probe.declared import observed_before
from kdaprof.probe.group import GroupMeasurement, GroupOutcome
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.workloads.op import CaseSpec


def measured(*specs: CaseSpec, sensor: FakeSensor) -> GroupOutcome:
    bench = replace(cpu_bench(), sensor=Reading(sensor))
    before = {one.key.id: observed_before(one, bench, cache="warm") for one in specs}
    return GroupMeasurement(specs, before, bench, QUICK, lambda *_: None).run()


def product(path: str, dtype: str) -> CaseSpec:
    key = CellKey("gemm", path, "plain", "eager", "fwd", make_shape("gemm", (16, 16, 16)), dtype)
    return CaseSpec(key=key, device="cpu", seed=0, input_sets=1)


def test_each_sample_of_a_round_has_its_readings() -> None:
    outcome = measured(product("fp32", "float32"), product("bf16", "bfloat16"), sensor=FakeSensor())
    rounds = {s.t_ns for rows in outcome.samples.values() for s in rows if s.repeat == "unprofiled" and s.round >= 0}
    for field, value in (("power_w", 120.0), ("temperature_c", 40.0)):
        rows = [row for row in outcome.util if row.field == field]
        assert {row.t_ns for row in rows} == rounds
        assert {row.value for row in rows} == {value}
    assert len(rounds) == 2 * QUICK.rounds * QUICK.samples


def test_a_field_that_fails_is_missing_with_its_reason() -> None:
    card = CardReadings(FakeSensor().fail("not-supported", "no such field", "power_w"))
    card.read(7)
    assert [(row.field, row.value, row.missing) for row in card.rows] == [
        ("power_w", None, "no such field"),
        ("temperature_c", 40.0, None),
    ]


def test_an_op_has_no_such_readings() -> None:
    assert measured(spec("tensor"), sensor=FakeSensor()).util == ()
    assert Scene().bench.beside is None

from __future__ import annotations

import pytest

from kdaprof.analysis.floor import Floor, compulsory_floor, floor_of, intensity
from kdaprof.runs.record import Ceiling, Work


def ceiling(name: str, value: float, provenance: str = "measured") -> Ceiling:
    unit = "B/s" if name == "copy" else "FLOP/s"
    return Ceiling(name=name, value=value, unit=unit, provenance=provenance)  # type: ignore[arg-type]


COPY, RATE = ceiling("copy", 1792e9), ceiling("matmul_float16", 43.7e12)
FLOPS = 2_154_823_680
WORK = Work(flops=FLOPS, bytes_compulsory=78_888_960, bytes_path=692_060_160, rate="matmul_float16")


def test_the_field_reports_basis_is_memory_bound_at_0_386_ms() -> None:
    floor = floor_of(FLOPS, 692_060_160, RATE, COPY)
    assert floor.bound == "memory"
    assert floor.ns / 1e6 == pytest.approx(0.386, abs=0.0005)
    assert intensity(FLOPS, 692_060_160) == pytest.approx(3.1, abs=0.05)
    assert pytest.approx(24.4, abs=0.05) == RATE.value / COPY.value


def test_the_compulsory_basis_of_the_same_call_is_compute_bound() -> None:
    floor = compulsory_floor(WORK, [COPY, RATE])
    assert isinstance(floor, Floor)
    assert floor.bound == "compute"
    assert floor.ns == pytest.approx(FLOPS / 43.7e12 * 1e9)
    assert floor.memory_ns == pytest.approx(78_888_960 / 1792e9 * 1e9)


def test_a_ceiling_that_was_not_measured_is_named() -> None:
    assert compulsory_floor(WORK, [COPY]) == "no ceiling matmul_float16 in this run"
    assert "no ceiling copy" in str(compulsory_floor(WORK, []))
    assert "matmul_float16" in str(compulsory_floor(WORK, [COPY, ceiling("matmul_float16", 0.0)]))


def test_only_the_ceiling_that_binds_makes_a_floor_declared() -> None:
    declared = ceiling("copy", 1792e9, "declared")
    assert floor_of(FLOPS, 692_060_160, RATE, declared).provenance == "declared"
    assert floor_of(FLOPS, 78_888_960, RATE, declared).provenance == "derived"


def test_intensity_of_nothing_moved_is_missing() -> None:
    assert intensity(5, 0) is None

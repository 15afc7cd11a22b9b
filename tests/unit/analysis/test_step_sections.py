"""What a report says of a step's memory and of its first step."""

from __future__ import annotations

from dataclasses import replace

import scenes
from scenes import MS, SECOND, figure

from kdaprof.analysis.derive import derive
from kdaprof.report.markdown import render
from kdaprof.report.step_cold import against
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.compiles import CompileEvent, SlowStep
from kdaprof.runs.facts import Reason
from kdaprof.runs.memory import AllocationSite, Pool, StepMemory

MIB = 1 << 20
KEY = CellKey("step", "fused", "plain", "eager", "step", make_shape("step", (8, 512, 4)), "float32")
MEMORY = StepMemory(
    allocs=(200,) * 8,
    held_bytes=tuple(range(100 * MIB, 180 * MIB, 10 * MIB)),
    reserved_bytes=tuple(range(400 * MIB, 480 * MIB, 10 * MIB)),
    peak_bytes=300 * MIB,
    pool=Pool(reserved_bytes=400 * MIB, free_bytes=100 * MIB, largest_free_bytes=60 * MIB, segments=9),
    sites=(AllocationSite(where="kda/fused.py:12 in forward", size_bytes=12 * MIB, count=32),),
    warm_wall_ns=(50 * MS, 51 * MS),
    emptied_wall_ns=(90 * MS, 91 * MS),
)


def text_of(**seen: object) -> str:
    raw = scenes.raw(scenes.scene(cell_key=KEY, **seen))
    return render(raw.record, derive(raw))


def test_memory_is_told_with_its_pool_and_sites() -> None:
    text = text_of(memory=MEMORY)
    assert "## The step's memory" in text
    row = next(line for line in text.splitlines() if "| 200 |" in " ".join(line.split()))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:] == ["200", "315 MB", "493 MB", "10.5 MB", "10 %", "50.5 ms", "90.5 ms"]
    assert "kda/fused.py:12 in forward" in text
    assert "reserved memory grows by 10.5 MB a step and is never reused" in text


def test_pools_whose_samples_overlap_are_not_ordered() -> None:
    text = text_of(memory=replace(MEMORY, emptied_wall_ns=(50 * MS, 91 * MS)))
    assert "(no order)" in text


def test_a_run_without_recorded_memory_has_no_such_section() -> None:
    assert "The step's memory" not in text_of()


# ---------------------------------------------------------------- cold and warm

COLD = SlowStep(
    fresh=True,
    index=0,
    start_ns=0,
    wall_ns=4 * SECOND,
    events=(
        CompileEvent(cause="triton", name="kda_fwd", start_ns=MS, ns=3 * SECOND),
        CompileEvent(cause="library", name="cuBLAS handle", start_ns=0, ns=MS),
    ),
    driver_allocs=7,
    reserved_growth_bytes=64 << 20,
)


def test_a_cold_step_is_told_by_cause_with_its_ratio() -> None:
    text = text_of(slow_steps=(COLD,))
    assert (
        "step 0 in a fresh process with empty caches takes 4.00 s, not compared: the warm wall is refused (Q06)" in text
    )
    assert against(COLD, figure(50 * MS)) == "80 × a warm step of 50.0 ms"
    assert against(COLD, figure(200_000)) == "20,000 × a warm step of 200 µs"
    flat = " ".join(text.split())
    assert "| Triton compiles | 1 | 3.00 s | 75 % | 3.00 s | kda_fwd |" in flat
    assert "7 segments, 67.1 MB" in flat
    assert "| rest | | 999 ms | 25 % |" in flat


def test_no_ratio_is_printed_against_a_refused_wall() -> None:
    assert against(COLD, figure(MS).refuse(Reason(rule="Q06", text="shared"))) == (
        "not compared: the warm wall is refused (Q06)"
    )
    assert against(COLD, None) == "with no warm step to compare"


def test_a_run_without_slow_steps_has_no_such_section() -> None:
    assert "Cold and warm" not in text_of()


# ---------------------------------------------------------------- the profiler's own share


def test_a_profiler_that_slows_the_step_is_shown_and_its_walls_are_nowhere_else() -> None:
    raw = scenes.raw(scenes.scene(cell_key=KEY, wall_ns=17_800_000, profiled_wall_ns=30_500_000))
    results = derive(raw)
    (cell,) = results.cells
    assert cell.facts["wall_ns"].value == 17_800_000
    assert cell.facts["wall_ns"].max is not None
    assert cell.facts["wall_ns"].max < 18_000_000
    assert round(float(cell.facts["inflation"].value or 0), 2) == 1.71
    assert "1.71" in render(raw.record, results)

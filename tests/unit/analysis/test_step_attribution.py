"""A step by its parts: the rows, how they add up, and what no lever may promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import scenes

from kdaprof.analysis.step.attribution import attributions
from kdaprof.analysis.step.levers import levers
from kdaprof.report.markdown import render
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.facts import EAGER_FACTS, GRAPH_FACTS, Fact, Reason, absent
from kdaprof.runs.record import CellRecord, Observed, RunRecord
from kdaprof.runs.results import CellResult, Evidence, RunResults

MS = scenes.MS
WALLS = {"fwd": 20, "teacher": 15, "retr": 1, "bwd": 40, "opt": 3, "ema": 1}
HOSTS = {"fwd.kda": 12, "teacher.kda": 10, "bwd.kda": 30}


def key(phase: str = "step", path: str = "tensor", mode: str = "eager", iters: int = 4) -> CellKey:
    return CellKey("step", path, "plain", mode, phase, make_shape("step", (8, 512, iters)), "float32")


def cell(of: CellKey, **values: Any) -> tuple[CellRecord, CellResult]:
    units = GRAPH_FACTS if of.mode != "eager" else EAGER_FACTS
    facts: dict[str, Fact] = {name: absent(unit, "not-applicable", "not here") for name, unit in units.items()}
    facts |= {
        name: value if isinstance(value, Fact) else scenes.figure(value, units[name]) for name, value in values.items()
    }
    seen = Observed(device="cuda", borders="call" if of.phase == "step" else "phase")
    record = CellRecord(key=of, status="ok", observed=seen)
    return record, CellResult(id=of.id, facts=facts, evidence=Evidence(verdict="confirmed", expected=of.path))


def step_run(
    wall: float = 80 * MS, *, halved: bool = True, issued: float = 1.0, **others: Any
) -> tuple[RunRecord, RunResults]:
    whole = {"wall_ns": wall, "host_ns": wall, "gpu_busy_ns": 20 * MS, "host_bound": 0.75} | others
    made = [cell(key(), **whole)]
    made += [cell(key(phase), wall_ns=ms * MS, host_ns=issued * ms * MS) for phase, ms in WALLS.items()]
    made += [cell(key(line), host_ns=ms * MS, gpu_busy_ns=2 * MS) for line, ms in HOSTS.items()]
    made.append(cell(key(mode="graph"), wall_ns=22 * MS))
    made.append(cell(key(path="fused"), wall_ns=30 * MS))
    made.append(cell(key(path="copy"), wall_ns=25 * MS))
    made += [cell(key(iters=2), wall_ns=44 * MS)] if halved else []
    return scenes.run_record([record for record, _ in made]), RunResults(
        run=scenes.RUN_ID, cells=tuple(result for _, result in made)
    )


def test_rows_add_up_and_the_op_stands_below_its_phase() -> None:
    (one,) = attributions(*step_run())
    assert [row.name for row in one.rows] == [
        "fwd", "fwd.kda", "teacher", "teacher.kda", "retr", "bwd", "bwd.kda", "opt", "ema", "remainder", "step",
    ]  # fmt: skip
    phases = [row for row in one.rows if row.kind in ("phase", "rest")]
    assert sum(float(row.facts["wall_ns"].value or 0) for row in phases) == pytest.approx(80 * MS)
    assert one.why is None
    shares = {row.name: row.share.value for row in one.rows}
    assert shares["bwd"] == pytest.approx(0.5)
    assert shares["bwd.kda"] == pytest.approx(30 / 80)
    assert {row.calls for row in one.rows if row.kind == "op"} == {4}


@pytest.mark.parametrize(
    ("wall", "issued", "why"),
    [
        (79.5, 0.5, None),
        (70, 0.5, "the host runs ahead"),
        (70, 0.87, "the host runs ahead"),  # the host waits 10.4 ms at the borders, the sum is 10 ms too long
        (70, 0.88, "timed apart"),  # 9.6 ms
        (70, 1.0, "timed apart"),
        (90, 0.5, "timed apart"),
    ],
)
def test_a_sum_that_is_off_is_explained_by_what_the_host_waits_at_the_borders(
    wall: float, issued: float, why: str | None
) -> None:
    """The whole step's host time is near its wall, as on a card whose launch queue is full: it says nothing here."""
    (one,) = attributions(*step_run(wall=wall * MS, issued=issued, host_ns=0.95 * wall * MS))
    assert one.why is None if why is None else why in (one.why or "")


def test_without_a_gpu_nothing_hides_behind_one() -> None:
    record, results = step_run(wall=70 * MS, issued=0.5)
    cells = tuple(replace(c, observed=replace(c.observed, device="cpu")) for c in record.cells if c.observed)
    (one,) = attributions(replace(record, cells=cells), results)
    assert "timed apart" in (one.why or "")


def test_levers_are_ranked_and_say_how_they_are_known() -> None:
    found = levers(*step_run())
    whole = [lever for lever in found if lever.whole == key()]
    gains = [float((lever.now.value or 0) - (lever.then.value or 0)) for lever in whole]
    assert gains == sorted(gains, reverse=True)
    known = {lever.name: (lever.measured, lever.then.value) for lever in whole}
    assert known["kda, by its host time"] == (False, 28 * MS)
    assert known["CUDA Graph of the whole step"] == (True, 22 * MS)
    assert known["path fused"] == (True, 30 * MS)
    assert known["kda replaced by a copy"] == (True, 25 * MS)
    assert known["half the iterations"] == (True, 44 * MS)
    assert known["bwd"] == (False, 40 * MS)
    assert all(lever.then.ci95 is not None for lever in whole)


def test_no_lever_promises_less_than_what_the_gpu_still_has_to_do() -> None:
    """A step of 20 ms, 19 of them on the GPU: its phases' walls, taken with borders, are longer than what they cost."""
    record, results = step_run(wall=20 * MS, halved=False, gpu_busy_ns=19 * MS, host_bound=0.05)
    busy = {"fwd": 5, "teacher": 4, "bwd": 8, "opt": 2}
    facts = {key(phase).id: scenes.figure(ms * MS, "ns") for phase, ms in busy.items()}
    cells = tuple(
        replace(c, facts=c.facts | {"gpu_busy_ns": facts[c.id]}) if c.id in facts else c for c in results.cells
    )
    found = {lever.name: lever.then for lever in levers(record, replace(results, cells=cells)) if lever.whole == key()}
    assert found["bwd"].value == 11 * MS  # 20 - 40 by the walls
    assert found["teacher"].value == 15 * MS
    assert found["half the iterations, at most"].value == 10.5 * MS
    assert any(source.endswith("gpu_busy_ns") for source in found["bwd"].sources)


def test_half_the_iterations_is_derived_where_nobody_measured_it() -> None:
    measured, derived = levers(*step_run()), levers(*step_run(halved=False))
    assert "half the iterations, at most" not in {lever.name for lever in measured}
    (half,) = [lever for lever in derived if lever.name.startswith("half the iterations")]
    assert half.name == "half the iterations, at most"
    assert not half.measured
    assert half.then.value == pytest.approx((80 - (20 + 15 + 40) / 2) * MS)
    assert half.then.ci95 is not None
    assert half.then.ci95[0] < half.then.value < half.then.ci95[1]
    assert len(half.then.sources) == 4


def test_a_gpu_bound_step_gives_the_op_no_more_than_its_gpu_time() -> None:
    found = {lever.name: lever.then.value for lever in levers(*step_run(host_bound=0.05))}
    assert found["kda, by its GPU time"] == 74 * MS
    assert "kda, by its host time" not in found


def test_nothing_is_promised_from_a_refused_figure() -> None:
    record, results = step_run()
    refused = {key("bwd").id: "wall_ns", key(mode="graph").id: "wall_ns", key("fwd.kda").id: "host_ns"}

    def judged(one: CellResult) -> CellResult:
        name = refused.get(one.id)
        if name is None:
            return one
        return replace(one, facts={**one.facts, name: one.facts[name].refuse(Reason("Q02", "too wide"))})

    names = {
        lever.name
        for lever in levers(record, replace(results, cells=tuple(map(judged, results.cells))))
        if lever.whole == key()
    }
    assert {"bwd", "CUDA Graph of the whole step", "kda, by its host time"}.isdisjoint(names)
    assert "fwd" in names


def test_the_report_shows_table_sum_and_levers() -> None:
    text = render(*step_run())
    assert "## The step by phase" in text
    assert "The phases add up to 100 % of the step." in text
    assert "· of it kda" in text
    assert "## Levers" in text
    rows = [line for line in text.split("## Levers")[1].split("\n## ")[0].splitlines() if line.startswith("| tensor")]
    measured = ["measured here" in row for row in rows]
    assert measured == sorted(measured, reverse=True)
    assert sum(measured) == 4


def test_the_private_pool_of_a_capture_has_a_column_of_its_own() -> None:
    record, results = step_run()
    graph, pool = key(mode="graph").id, Fact(value=64e6, unit="B", provenance="measured", quotable=True)
    cells = tuple(replace(c, facts={**c.facts, "pool_bytes": pool}) if c.id == graph else c for c in results.cells)
    text = render(record, replace(results, cells=cells))
    modes = text.split("## The step in each mode")[1].split("##")[0]
    head, _, *rows = [line for line in modes.splitlines() if line.startswith("|")]
    place = [cell.strip() for cell in head.split("|")].index("pool MB")
    pools = {row.split("|")[2].strip(): row.split("|")[place].strip() for row in rows if "tensor" in row}
    assert pools == {"eager": "—", "graph": "64.0"}
    assert "iters 2" not in modes  # half a step is a lever, and no mode

"""A sweep's line: known lines come back, noise widens the interval, refused walls stay out, Q12 has its say."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from importlib import resources
from typing import Any

import jsonschema
import pytest
import scenes

from kdaprof.analysis.stats import MIN_ROUNDS
from kdaprof.analysis.step.fit import Fit, Point, Turn, fits_of, turns_of
from kdaprof.analysis.step.sweep import Sweep, not_measured
from kdaprof.cli.main import main
from kdaprof.cli.sweep import SWEEP_EFFORT, run, swept
from kdaprof.cli.sweep_run import ending
from kdaprof.errors import Exit, UsageError
from kdaprof.probe.library_plan import LIBRARY_EFFORT
from kdaprof.probe.plan import Effort
from kdaprof.probe.step.plan import STEP_EFFORT
from kdaprof.report.sweep import sweep_document, sweep_markdown, sweep_svg
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.codec import dumps
from kdaprof.runs.facts import Reason
from kdaprof.runs.record import CellError, CellRecord

MS = scenes.MS
FIXED, SLOPE = 12.0 * MS, 3.0 * MS
NO_ROOM = CellError(type="OutOfMemoryError", text="CUDA out of memory")


def points(works: tuple[int, ...], noise: float = 0.0, seed: int = 0, **changes: Any) -> list[Point]:
    draw = random.Random(seed)
    made = []
    for work in works:
        wall = (FIXED + SLOPE * work) * (1 + noise * draw.gauss(0, 1))
        busy = 0.2 * FIXED + SLOPE * work * 0.99
        made.append(
            Point(
                key=CellKey("step", "fused", "plain", "eager", "step", make_shape("step", (work, 512, 4)), "float32"),
                work=work,
                wall=scenes.figure(wall),
                busy=scenes.figure(busy),
                host_bound=scenes.figure(max(0.0, 1 - busy / wall), "fraction"),
            )
        )
    return [replace(point, **changes) for point in made]


def test_a_known_line_comes_back_exactly() -> None:
    (fit,) = fits_of("run", points((1, 2, 4, 8, 16)))
    assert fit.fixed.value == pytest.approx(FIXED)
    assert fit.slope.value == pytest.approx(SLOPE)
    assert fit.fixed.quotable
    assert fit.slope.quotable
    assert max(map(abs, fit.residuals_ns)) < 1
    assert len(fit.fixed.sources) == 5


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    draw = random.Random(7)
    exact, held = points((1, 2, 4, 8, 16, 32)), 0
    for _ in range(1000):
        noisy = [replace(p, wall=scenes.figure(float(p.wall.value or 0) + draw.gauss(0, 2 * MS))) for p in exact]
        low, high = fits_of("run", noisy)[0].fixed.ci95 or (0.0, 0.0)
        held += low <= FIXED <= high
    assert 0.93 <= held / 1000 <= 0.97


def test_three_points_and_a_fixed_part_that_may_be_nothing_are_refused() -> None:
    (three,) = fits_of("run", points((1, 2, 4)))
    assert {r.rule for r in three.fixed.reasons} == {r.rule for r in three.slope.reasons} == {"Q12"}
    through_nothing = [
        replace(p, wall=scenes.figure(SLOPE * p.work * (1.2 if p.work % 3 else 0.8))) for p in points((1, 2, 3, 4, 6))
    ]
    (loose,) = fits_of("run", through_nothing)
    assert "contains 0" in loose.fixed.reasons[0].text
    assert loose.slope.quotable


@pytest.mark.parametrize(("works", "told"), [((1, 2, 2, 4), "4 points at 3 amounts of work"), ((1, 2, 2, 4, 8), None)])
def test_two_points_at_one_amount_of_work_are_one_place_on_the_line(works: tuple[int, ...], told: str | None) -> None:
    (fit,) = fits_of("run", points(works, noise=1e-4, seed=1))
    assert fit.fixed.n == fit.slope.n == len(works)
    for fact in (fit.fixed, fit.slope):
        assert [reason.rule for reason in fact.reasons] == ([] if told is None else ["Q12"])
        assert all(told and told in reason.text for reason in fact.reasons)


def test_a_sweep_without_a_line_is_inconclusive() -> None:
    many = points((1, 2, 4, 8))
    refused = [replace(p, wall=p.wall.refuse(Reason(rule="Q08", text="on the CPU"))) for p in many]
    none, three = fits_of("run", refused), fits_of("run", many[:3])
    assert ending(Exit.OK, none) is ending(Exit.OK, ()) is Exit.INCONCLUSIVE
    assert [ending(code, none) for code in (Exit.ERROR, Exit.INTERRUPTED)] == [Exit.ERROR, Exit.INTERRUPTED]
    # A line that Q12 refuses is shown, and one path's line is enough.
    assert ending(Exit.OK, three) is ending(Exit.OK, (*none, *three)) is Exit.OK


def test_a_refused_wall_stays_out() -> None:
    many = points((1, 2, 4, 8, 16))
    wrong = replace(many[0], wall=replace(many[0].wall, value=900.0 * MS).refuse(Reason("Q09", "wrong output")))
    (fit,) = fits_of("run", [wrong, *many[1:]])
    assert fit.left_out == 1
    assert fit.fixed.n == 4
    assert fit.fixed.value == pytest.approx(FIXED)
    none = [replace(p, wall=p.wall.refuse(Reason("Q08", "on the CPU"))) for p in many]
    (gone,) = fits_of("run", none)
    assert gone.fixed.value is None
    assert gone.fixed.missing == "refused"
    assert "Q08" in (gone.fixed.detail or "")


def test_the_turn_is_named_between_two_points() -> None:
    (turn,) = turns_of(points((1, 2, 4, 8, 16, 32)))
    assert (turn.host_until, turn.gpu_from) == (16, 32)
    (host,) = turns_of(points((1, 2, 4)))
    assert (host.host_until, host.gpu_from) == (4, None)
    refused = [
        replace(p, host_bound=p.host_bound.refuse(Reason("Q08", "on the CPU"))) for p in points((1, 2)) if p.host_bound
    ]
    assert turns_of(refused)[0].host_until is None


def sweep_over(
    over: tuple[str, ...],
    many: list[Point],
    fits: tuple[Fit, ...] = (),
    turns: tuple[Turn, ...] = (),
    missing: tuple[CellRecord, ...] = (),
) -> Sweep:
    return Sweep(over=over, points=tuple(many), fits=fits, turns=turns, missing=missing)


def test_the_document_meets_its_schema_and_the_text_says_the_turn() -> None:
    many = points((1, 2, 4, 8, 16, 32), noise=0.01)
    sweep = sweep_over(("B",), many, fits_of(scenes.RUN_ID, many), turns_of(many))
    document = json.loads(dumps(sweep_document(scenes.run_record([]), sweep)))
    schema = json.loads(resources.files("kdaprof.runs").joinpath("schemas/sweep-1.json").read_bytes())
    jsonschema.Draft202012Validator(schema).validate(document)
    text = sweep_markdown(sweep)
    assert "fused: host-bound up to B = 16, GPU-bound from 32" in text
    picture = sweep_svg(sweep)
    assert picture.count("<circle") == 2 * len(many) + 1
    assert "http://www.w3.org/2000/svg" in picture


def test_a_size_that_failed_is_named_with_its_reason() -> None:
    many = points((1, 2, 4, 8))
    lost = [
        CellRecord(key=replace(p.key, shape=make_shape("step", (16 * p.work, 512, 4))), status="failed", error=NO_ROOM)
        for p in many[:2]
    ]
    record = scenes.run_record([*(CellRecord(key=p.key, status="ok") for p in many), *lost])
    assert not_measured(record) == tuple(lost)
    text = sweep_markdown(sweep_over(("B",), many, fits_of("run", many), turns_of(many), not_measured(record)))
    assert "- fused eager, B = 16, 32: failed, OutOfMemoryError: CUDA out of memory\n" in text
    document = json.loads(dumps(sweep_document(record, sweep_over(("B",), many, missing=not_measured(record)))))
    schema = json.loads(resources.files("kdaprof.runs").joinpath("schemas/sweep-1.json").read_bytes())
    jsonschema.Draft202012Validator(schema).validate(document)
    assert [(one["cell"], one["status"]) for one in document["missing"]] == [(cell.id, "failed") for cell in lost]


def test_half_the_iterations_come_out_as_a_number() -> None:
    made = points((2, 4, 8))
    keys = [replace(p.key, shape=make_shape("step", (8, 512, p.work))) for p in made]
    many = [replace(p, key=key) for p, key in zip(made, keys, strict=True)]
    text = sweep_markdown(sweep_over(("iters",), many, fits_of("run", many), turns_of(many)))
    assert "fused eager: 4 iterations instead of 8: 36.0 ms [" in text
    assert ", 33 % less" in text
    refused = [replace(p, wall=p.wall.refuse(Reason("Q02", "too wide"))) if p.work == 8 else p for p in many]
    assert "2 iterations instead of 4" in sweep_markdown(sweep_over(("iters",), refused))
    assert "instead of" not in sweep_markdown(sweep_over(("B",), points((2, 4, 8))))


def test_two_axes_say_what_their_product_is_of() -> None:
    text = sweep_markdown(sweep_over(("B", "iters"), [replace(p, work=4 * p.work) for p in points((2, 4))]))
    assert "| 2 · 4 = 8 |" in " ".join(text.split())


def test_a_sweep_takes_one_context() -> None:
    assert main(["sweep", "--over", "batch=1,2", "--contexts", "plain,autocast"]) == 2


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["width=1,2"], "batch=…"),
        (["batch=1"], "two sizes"),
        (["batch=0,2"], "1 or more"),
        (["batch=1,2", "batch=3,4"], "named twice"),
        (["batch=1,2", "seq=3,4", "max_iter=1,2"], "at most two"),
        (["batch"], "batch=…"),
        (["batch=1,,2"], "1 or more"),
    ],
)
def test_what_cannot_be_swept_is_said(flags: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        swept(flags)


@pytest.mark.parametrize("wait", ["nan", "inf", "-1"])
def test_a_wait_that_never_ends_is_refused(wait: str) -> None:
    with pytest.raises(UsageError, match=r"--wait .*: between 0 and 86400 seconds"):
        run(["--over", "batch=1,2", "--path", "tensor", "--wait", wait])


@pytest.mark.parametrize("effort", [Effort(), STEP_EFFORT, LIBRARY_EFFORT, SWEEP_EFFORT])
def test_no_verb_records_too_few_profiled_repeats_for_busy_to_have_an_interval(effort: Effort) -> None:
    """A sweep of two profiled repeats a size never knew what bounds a step: Q02 refused each busy time."""
    assert effort.profiled >= MIN_ROUNDS

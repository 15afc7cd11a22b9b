"""A probed step on a terminal: its attribution, KDA's share, step 0 against a warm one, memory, the largest levers."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from test_step_attribution import key, step_run
from test_step_sections import COLD, MEMORY

from kdaprof.report.markdown import render
from kdaprof.report.terminal import show_run
from kdaprof.runs.facts import Reason
from kdaprof.runs.record import RunRecord
from kdaprof.runs.results import RunResults


def shown(made: tuple[RunRecord, RunResults], width: int = 80) -> str:
    stream = io.StringIO()
    show_run(Console(file=stream, width=width), *made)
    return stream.getvalue()


def flat(made: tuple[RunRecord, RunResults]) -> str:
    return " ".join(shown(made).split())


def with_observed(made: tuple[RunRecord, RunResults], **seen: Any) -> tuple[RunRecord, RunResults]:
    record, results = made
    cells = tuple(
        replace(c, observed=replace(c.observed, **seen)) if c.key == key() and c.observed is not None else c
        for c in record.cells
    )
    return replace(record, cells=cells), results


def row(text: str, name: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(name))
    return re.split(r"  +", line[len(name) :].strip())


def test_the_parts_of_a_step_stand_below_each_other() -> None:
    text = shown(step_run())
    assert row(text, "bwd  ")[:2] == ["40.0", "40.0"]
    assert row(text, "  bwd.kda")[:2] == ["—", "30.0"]
    assert row(text, "step  ")[:2] == ["80.0", "80.0"]
    assert text.count("bwd.kda") == 1


def test_what_else_a_step_says_is_a_sentence_each() -> None:
    text = flat(step_run())
    assert "KDA: 60 % of fwd, 67 % of teacher, 75 % of bwd by its host time, of the wall." in text
    assert "In other modes: graph 22.0 ms." in text
    assert "CUDA Graph of the whole step 80.0 ms → 22.0 ms (measured)" in text
    assert text.count("Largest levers") == 1  # only the one step was cut into phases


def test_cold_and_memory_are_told_where_they_were_measured() -> None:
    text = flat(with_observed(step_run(), slow_steps=(COLD,), memory=MEMORY))
    assert (
        "Step 0 in a fresh process with empty caches takes 4.00 s, 50 × a warm step of 80.0 ms; Triton compiles 3.00 s."
        in text
    )
    assert "Memory: 200 allocations a step, peak 315 MB, reserved grows 10.5 MB a step." in text
    assert "Memory:" not in flat(step_run())


def test_half_a_step_has_no_step_0_to_tell_of() -> None:
    record, results = with_observed(step_run(), slow_steps=(COLD,))
    cells = tuple(
        replace(c, observed=replace(c.observed, slow_steps=(replace(COLD, fresh=False),))) if c.observed else c
        for c in record.cells
        if c.key.phase == "step"
    )
    cells += tuple(c for c in record.cells if c.key.phase != "step")
    told = render(replace(record, cells=cells), results).split("## Cold and warm")[1].split("\n## ")[0]
    assert told.count("step 0 of this process") == 4  # whole, its graph, two paths
    assert "iters 2" not in told


def test_half_of_the_step_has_no_table_of_its_own() -> None:
    assert "iters 2" not in shown(step_run())
    assert "fused" in shown(step_run())  # a path whose phases were not measured still has its figures


def test_refused_figures_stand_in_parentheses_in_sentences_too() -> None:
    record, results = step_run()
    cells = tuple(
        replace(c, facts={**c.facts, "wall_ns": c.facts["wall_ns"].refuse(Reason("Q02", "too wide"))})
        if c.id in (key("bwd").id, key(mode="graph").id)
        else c
        for c in results.cells
    )
    text = flat((record, replace(results, cells=cells)))
    assert "(75 %) of bwd" in text
    assert "graph (22.0 ms)" in text
    assert "Q02 spread" in text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = shown(with_observed(step_run(), slow_steps=(COLD,), memory=MEMORY), width)
    table = [line for line in text.splitlines() if "run directory" not in line]
    assert all(line == line.rstrip() for line in table)
    if width >= 80:
        assert max(map(len, table)) <= width


def test_the_verdict_speaks_of_the_whole_step() -> None:
    verdict = flat(step_run()).split("Verdict")[1]
    assert "Step at iters 4: wall 80.0 ms" in verdict
    assert "44.0 ms" not in verdict  # half of its iterations
    assert "teacher" not in verdict

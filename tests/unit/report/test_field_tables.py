"""`--tables field`: the layout of a field report from the run itself, verdicts from interleaved rounds."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kdaprof.analysis.derive import derive
from kdaprof.analysis.view import RawRun
from kdaprof.report.field.page import field_tables
from kdaprof.runs.facts import Reason
from kdaprof.runs.results import RunResults

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "analysis"))
import scenes


def two_paths(slow_ns: int) -> RawRun:
    fast, slow = scenes.scene(), scenes.scene(path="tensor", wall_ns=slow_ns)
    return scenes.raw(fast, slow)


def proven(raw: RawRun) -> RunResults:
    """The run's results with every wall quotable: what is tested here is the table, not the witnesses."""
    results = derive(raw)
    walls = [replace(cell.facts["wall_ns"], quotable=True, reasons=()) for cell in results.cells]
    cells = zip(results.cells, walls, strict=True)
    return replace(results, cells=tuple(replace(c, facts=c.facts | {"wall_ns": wall}) for c, wall in cells))


def text_of(raw: RawRun) -> str:
    return field_tables(raw, proven(raw))


def rows(text: str, heading: str) -> list[list[str]]:
    body = re.split(r"(?m)^#+ ", text.split(heading, 1)[1], maxsplit=1)[0]
    found = [line for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found]


def test_the_sections_of_a_field_report() -> None:
    headings = re.findall(r"(?m)^## \d+\. (.*)$", text_of(two_paths(900_000)))
    assert headings[1:] == ["Attention (MHA)", "GEMM", "Roofline", "Methods", "What was not measured"]


def test_implementations_with_median_min_and_max() -> None:
    raw = two_paths(900_000)
    facts = derive(raw).cells[0].facts
    table = rows(text_of(raw), "## 1. ")
    assert table[0][0] == "implementation"
    assert [header.rsplit(" ", 1)[0] for header in table[0][1:4]] == ["fwd median", "fwd min", "fwd max"]
    assert {row[0] for row in table[2:]} == {"fused", "tensor"}
    low, high = (facts["wall_ns"].min, facts["wall_ns"].max)
    assert low is not None
    assert high is not None
    assert low <= high


def test_a_clear_difference_is_a_verdict_and_none_is_not_established() -> None:
    clear = rows(text_of(two_paths(900_000)), "### Speedups")
    assert clear[2][0] == "fused against tensor"
    assert clear[2][3] == "fused is ahead"
    alike = rows(text_of(two_paths(200_000)), "### Speedups")
    assert alike[2][3] == "the same"
    few = scenes.raw(scenes.scene(rounds=3), scenes.scene(path="tensor", wall_ns=900_000, rounds=3))
    assert rows(text_of(few), "### Speedups")[2][3] == "not established: 3 rounds; a verdict needs 5"


def test_a_path_that_is_not_proven_gives_no_speedup() -> None:
    raw = two_paths(900_000)
    results = proven(raw)
    cell = results.cells[0]
    wall = cell.facts["wall_ns"].refuse(Reason("Q06", "another path ran"))
    struck = replace(results, cells=(replace(cell, facts=cell.facts | {"wall_ns": wall}), *results.cells[1:]))
    text = field_tables(raw, struck)
    verdict = rows(text, "### Speedups")[2]
    assert verdict[2:] == ["—", "not established: fused refused by Q06"]
    assert "~~" in rows(text, "## 1. ")[2][1]
    assert "refused by Q06 (another path ran)" in text


@pytest.mark.parametrize("workload", ["Attention (MHA)", "GEMM"])
def test_what_the_run_does_not_hold_is_said(workload: str) -> None:
    assert f"{workload}\n\nNot measured in this run." in text_of(two_paths(900_000))


def test_markup_in_names_is_escaped() -> None:
    raw = two_paths(900_000)
    env: Any = replace(raw.record.environment, git_missing="x")
    odd = replace(raw, record=replace(raw.record, tool="<script>alert(1)</script>", environment=env))
    assert "<script>" not in text_of(odd).replace(r"\<", "")


def test_a_steps_phases_stand_below_each_other() -> None:
    names = [replace(scenes.key(), workload="step", phase=phase) for phase in ("step", "fwd", "bwd")]
    raw = scenes.raw(*(scenes.scene(cell_key=name) for name in names))
    table = rows(text_of(raw), "## 1. ")
    assert table[0][:2] == ["implementation", "phase"]
    assert [row[1] for row in table[2:]] == ["step", "fwd", "bwd"]

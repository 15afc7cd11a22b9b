"""report.md: everything the issue asks for, in order, honest about what may not be quoted and what is missing."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import paper_runs
import pytest

from kdaprof.report.markdown import SECTIONS, render
from kdaprof.report.peers import peers
from kdaprof.report.step import by_phase, levers_section, modes
from kdaprof.report.step_cold import cold_section
from kdaprof.report.step_memory import memory_section
from kdaprof.runs.conditions import Conditions
from kdaprof.runs.facts import Reason
from kdaprof.runs.record import CellError, RunRecord
from kdaprof.runs.results import Finding, RunResults, Stage

RUNS = [paper_runs.h200_run, paper_runs.laptop_run]


def headings(text: str) -> list[str]:
    return re.findall(r"(?m)^## (.*)$", text)


def section(text: str, heading: str) -> str:
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def tables(text: str) -> list[list[list[str]]]:
    """Every table as rows of cells, split at bars that are not escaped."""
    found: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("|"):
            if not inside:
                found.append([])
            found[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        inside = line.startswith("|")
    return found


def test_sections_stand_in_the_order_of_what_a_reader_needs() -> None:
    text = render(*paper_runs.h200_run())
    absent = (by_phase, modes, levers_section, cold_section, memory_section, peers)  # an op has none, this run no peer
    assert headings(text) == ["Verdict", *(heading for heading, section in SECTIONS if section not in absent)]
    assert text.startswith("# kda: fused, tensor on NVIDIA H200\n\nkda · B 10, T 512")
    assert text.endswith("\n")


@pytest.mark.parametrize("make", RUNS)
def test_the_same_run_gives_the_same_text(make: Any) -> None:
    assert render(*make()) == render(*make())


@pytest.mark.parametrize("make", RUNS)
def test_every_table_is_rectangular(make: Any) -> None:
    for table in tables(render(*make())):
        assert len({len(row) for row in table}) == 1
        assert all(set(cell) <= set("-:") for cell in table[1])


def test_the_figures_of_each_cell() -> None:
    table = tables(section(render(*paper_runs.h200_run()), "Figures"))[0]
    assert table[0] == [
        "path", "phase", "wall ms", "host ms", "busy ms", "host-bound", "launches", "allocs", "peak MB", "error",
    ]  # fmt: skip
    assert table[5] == [
        "tensor", "fwd", "7.25 [7.18, 7.32]", "7.22", "1.17", "84 %", "287", "282", "173", "1.9e-7",
    ]  # fmt: skip
    assert len(table) == 8


def test_n_is_stated() -> None:
    assert "n = 100 steady samples, busy of n = 5 profiled repeats" in render(*paper_runs.h200_run())


def test_eager_graph_busy_floor_stand_side_by_side() -> None:
    table = tables(section(render(*paper_runs.h200_run()), "Eager → graph → busy → floor"))[0]
    assert table[0][2:] == [
        "eager wall ms", "graph wall ms", "busy ms", "floor ms", "launch overhead ms", "removed", "input copy ms",
        "pool MB", "replay error",
    ]  # fmt: skip
    assert table[5][2:8] == ["7.25", "1.33 [1.32, 1.34]", "1.17", "0.0493", "6.08", "97 % [95, 99]"]


def test_a_refused_figure_is_struck_out_wherever_it_stands_and_its_rule_explained() -> None:
    text = render(*paper_runs.h200_run())
    # 0.156 ms is the fused forward's wall and the only such figure in the run.
    assert len(re.findall(r"0\.156", text)) == len(re.findall(r"~~0\.156[^~]*~~ Q02", text)) >= 3
    assert "~~Struck out~~ figures may not be quoted: Q02 spread." in section(text, "Figures")
    explained = section(text, "Refused figures")
    assert "**Q02 spread.**" in explained
    assert "14 % wide" in explained
    assert "wall, host-bound of fused fwd" in explained
    assert "~~" not in section(text, "Findings")


def test_a_share_of_a_refused_wall_is_refused_too() -> None:
    table = tables(section(render(*paper_runs.h200_run()), "Stages"))[0]
    assert table[2][3:] == ["prepare", "1", "0.0704", "~~45 %~~ Q02"]
    assert table[4][3:] == ["prepare", "1", "0.193", "47 %"]


def test_findings_carry_numbers_threshold_and_next_step() -> None:
    found = section(render(*paper_runs.h200_run()), "Findings")
    assert "- **warning** `host-bound` · tensor fwd: 84 % of a forward call is host dispatch" in found
    assert "host bound 84 %, launches 287; threshold host bound 50 %" in found
    assert "**Next:** capture the step into a CUDA Graph" in found


def test_three_witnesses_a_cell() -> None:
    table = tables(section(render(*paper_runs.h200_run()), "Which path ran"))[0]
    assert table[0] == ["path", "phase", "mode", "verdict", "gate", "kernels", "counts"]
    assert table[2][3] == "confirmed"
    assert table[2][5] == "kdaprof_kda_fwd_prepare and 1 more"
    assert len(table) == 2 + 12


def test_a_contradicting_witness_names_the_path_it_saw() -> None:
    record, results = paper_runs.h200_run()
    first = results.cells[0]
    gate, kernels, counts = first.evidence.witnesses
    lies = replace(first.evidence, verdict="contradicted", witnesses=(gate, replace(kernels, says="tensor"), counts))
    text = render(record, replace(results, cells=(replace(first, evidence=lies), *results.cells[1:])))
    row = tables(section(text, "Which path ran"))[0][2]
    assert (row[3], row[5]) == ("contradicted", "says tensor: kdaprof_kda_fwd_prepare and 1 more")


def test_missing_figures_are_dashes_with_their_reason_said_once() -> None:
    text = section(render(*paper_runs.laptop_run()), "Figures")
    assert text.count(paper_runs.NO_CARD) == 1
    assert "Not shown: busy, host-bound, launches, allocs, peak (no CUDA device" in text
    assert tables(text)[0][4] == ["compiled", "fwd", "—¹", "—¹", "—¹"]
    assert "¹ failed: no working C++ compiler: install g++" in text


def test_without_a_gpu_no_time_stands_unrefused() -> None:
    text = render(*paper_runs.laptop_run())
    for row in tables(section(text, "Figures"))[0][2:4] + tables(section(text, "Spread"))[0][2:]:
        for cell in row:
            assert not re.match(r"[\d.,]+( \[|$)", cell) or cell in {"100"}, cell
    assert "a machine without a GPU" in text.splitlines()[0]
    assert "Eager → graph → busy → floor" not in text


def test_what_failed_stands_above_everything() -> None:
    text = render(*paper_runs.laptop_run())
    assert "> **compiled fwd: failed.** InvalidCxxCompiler: no working C++ compiler" in text.split("## Verdict")[0]


def test_cells_that_fail_alike_are_said_once() -> None:
    record, results = paper_runs.laptop_run()
    failed = record.cells[2]
    again = replace(failed, key=replace(failed.key, phase="bwd"))
    text = render(replace(record, cells=(*record.cells, again)), results)
    assert "> **compiled fwd, compiled bwd: failed.** InvalidCxxCompiler: no working" in text
    assert text.split("## Verdict")[0].count("no working C++ compiler") == 1


def test_a_reason_that_a_derived_figure_inherits_is_said_once() -> None:
    record, results = paper_runs.h200_run()
    inherited = Reason(
        rule="Q02", text="through wall_ns: the interval of wall_ns is 14 % wide on each side; 10 % is the limit"
    )
    first = paper_runs.refused(results.cells[0], inherited, "tokens_per_s")
    explained = section(render(record, replace(results, cells=(first, *results.cells[1:]))), "Refused figures")
    assert explained.count("14 % wide") == 1
    assert "wall, host-bound, tokens/s of fused fwd" in explained


def test_a_run_in_which_nothing_could_be_captured_says_why_instead_of_a_table() -> None:
    record, results = paper_runs.h200_run()
    why = "CUDA Graphs need a CUDA device"
    cells = tuple(
        replace(cell, status="unavailable", error=CellError(type="UnavailableError", text=why))
        if cell.key.mode == "graph"
        else cell
        for cell in record.cells
    )
    eager = tuple(cell for cell in results.cells if "/eager/" in cell.id)
    text = render(replace(record, cells=cells), replace(results, cells=eager))
    told = section(text, "Eager → graph → busy → floor")
    assert told.strip() == f"Nothing was captured: failed: {why}."
    assert all(row[2] == "eager" for row in tables(section(text, "Which path ran"))[0][2:])


def test_a_partial_run_says_so() -> None:
    record, results = paper_runs.h200_run()
    skipped = replace(record.cells[-1], status="skipped")
    text = render(replace(record, complete=False, ended_unix_ns=None, cells=(*record.cells[:-1], skipped)), results)
    top = text.split("## Verdict")[0]
    assert "> **Partial run:** it ended before its plan did; 11 of 12 cells are whole." in top
    assert "> **tensor fwdbwd graph: skipped.** not reached" in top
    assert "took" not in top


def test_hostile_text_stays_text() -> None:
    record, results = paper_runs.h200_run()
    name = "void f<float, (T)1>(a|b*) ~~x~~ `q`\nnext"
    cell = replace(results.cells[0], stages=(Stage(name=name, kernels=1, busy_ns=70_000, share=None),))
    bad = Finding(id="x", severity="error", cell="gone/cell", text="<script>alert(1)</script>", next="[a](b)")
    broken = replace(record.cells[1], status="failed", error=CellError(type="E", text="<b>|x|"))
    text = render(
        replace(record, cells=(record.cells[0], broken, *record.cells[2:])),
        replace(results, cells=(cell, *results.cells[1:]), findings=(bad,)),
    )
    assert not re.search(r"(?<!\\)<(script|b|float)", text)
    assert "(b)" not in re.sub(r"\\\(b\)", "", text)
    for table in tables(text):
        assert len({len(row) for row in table}) == 1


def test_long_stage_lists_are_cut_with_a_sum() -> None:
    record, results = paper_runs.h200_run()
    stages = tuple(Stage(name=f"kernel {i:02}", kernels=2, busy_ns=1_000_000 - i, share=0.01) for i in range(30))
    cell = replace(results.cells[6], stages=stages)
    text = render(record, replace(results, cells=(*results.cells[:6], cell, *results.cells[7:])))
    rows = [row for row in tables(section(text, "Stages"))[0] if "kernel " in row[3] or "others" in row[3]]
    assert len(rows) == 11
    assert rows[-1][3:] == ["20 others", "40", "20.0", "20 %"]


def test_an_empty_run_still_makes_a_page() -> None:
    record, results = paper_runs.laptop_run()
    bare: RunRecord = replace(record, cells=(), conditions=Conditions(None, (), None), overhead=())
    text = render(bare, RunResults(run=results.run))
    assert text.startswith("# empty run: no cells on a machine without a GPU")
    assert "Not recorded." in section(text, "Conditions")
    assert tables(text) == []


def test_conditions_of_the_machine() -> None:
    text = section(render(*paper_runs.h200_run()), "Conditions")
    table = tables(text)[0]
    assert table[0][1:5] == ["card busy before", "SM clock", "limits", "power"]
    assert [row[0] for row in table[2:]] == ["before", "during", "after"]
    assert table[3][-3:] == ["2.5", "16", "0 %"]
    assert "No rule about the machine was tripped" in text


def test_no_name_of_a_machine_or_place_is_printed() -> None:
    text = render(*paper_runs.h200_run())
    assert "box" not in text
    assert "/srv/kda" not in text


def test_peers_end_with_a_reason_and_others_with_what_this_card_runs() -> None:
    """FlashKDA was asked for and is no row of those elsewhere; what an H200 cannot run says which card it is for."""
    run, results = paper_runs.h200_run()
    why = CellError(type="UnavailableError", text="flash-kda is not installed")
    cells = tuple(
        replace(cell, key=cell.key.sibling(path="flashkda"), status="unavailable", error=why, observed=None)
        if cell.key.path == "tensor"
        else cell
        for cell in run.cells
    )
    renamed = tuple(
        replace(result, id=cell.id, facts={}, stages=()) if cell.key.path == "flashkda" else result
        for cell, result in zip(cells, results.cells, strict=True)
    )
    text = section(render(replace(run, cells=cells), replace(results, cells=renamed, findings=())), "Peers")
    (table,) = tables(text)
    rows = {row[0]: row[2] for row in table[2:]}
    assert rows["flashkda"] == "unavailable: flash-kda is not installed"
    assert "FlashKDA (CUTLASS)" not in rows
    assert rows["lethe's training backward"].startswith("cannot run on sm_90, it is for sm_100: tcgen05")
    assert rows["FlashQLA (TileLang)"].startswith("runs on sm_90, with a backward")
    assert all(row[3] for row in table[2:])

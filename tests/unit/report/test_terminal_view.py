"""The terminal view: whole at 80 columns, without colour, and piped; nothing is cut off."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import paper_runs
import pytest
from rich.console import Console

from kdaprof.report.terminal import recorded_run_hint, show_run
from kdaprof.runs.facts import Reason
from kdaprof.runs.results import Evidence, Finding, RunResults

RUNS = [paper_runs.h200_run, paper_runs.laptop_run]


def shown(make: Any, *, width: int = 80, colour: bool = False, path: Path | None = None) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=colour, color_system="truecolor" if colour else None)
    record, results = make() if callable(make) else make
    show_run(console, record, results, path=path)
    return stream.getvalue()


def row(text: str, header: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(header))
    return re.split(r"  +", line[len(header) :].strip())


def figures(text: str) -> set[str]:
    return set(re.findall(r"\d[\d.,–]*", text.split("\nVerdict\n", maxsplit=1)[0].split("\n\n", 1)[1]))


@pytest.mark.parametrize("make", RUNS)
def test_fits_80_columns_without_a_blank_at_any_end(make: Any) -> None:
    for line in shown(make).splitlines():
        assert len(line) <= 80
        assert line == line.rstrip()


@pytest.mark.parametrize("make", RUNS)
def test_piped_output_holds_no_escape_codes(make: Any) -> None:
    assert "\x1b" not in shown(make)
    assert "\x1b[" in shown(make, colour=True)


@pytest.mark.parametrize("width", [20, 40, 60, 200])
def test_every_figure_is_whole_at_any_width(width: int) -> None:
    assert figures(shown(paper_runs.h200_run, width=width)) >= figures(shown(paper_runs.h200_run)) - {"16"}
    assert "…" not in shown(paper_runs.h200_run, width=width).split("\nVerdict\n")[0]


def test_a_table_a_path_with_the_figures_of_the_issue() -> None:
    tensor = shown(paper_runs.h200_run).split("\ntensor  ")[1].split("\nVerdict\n")[0]
    assert row(tensor, "wall ms") == ["7.25", "36.9", "44.3"]
    assert row(tensor, "  95 %") == ["7.18–7.32", "36.5–37.3", "43.9–44.7"]
    assert row(tensor, "host ms") == ["7.22", "36.8", "44.3"]
    assert row(tensor, "busy ms") == ["1.17", "4.81", "5.98"]
    assert row(tensor, "host-bound") == ["84 %", "87 %", "87 %"]
    assert row(tensor, "launches") == ["287", "1,092", "1,379"]
    assert row(tensor, "allocations") == ["282", "642", "924"]
    assert row(tensor, "graph wall ms") == ["1.33", "5.47", "6.80"]
    assert row(tensor, "graph removes") == ["97 %", "97 %", "97 %"]
    assert row(tensor, "floor ms") == ["0.0493", "0.0493", "0.0493"]


def test_a_refused_figure_stands_in_parentheses_with_its_rule_explained_below() -> None:
    text = shown(paper_runs.h200_run)
    fused = text.split("\nfused  ")[1].split("\ntensor  ")[0]
    assert row(fused, "wall ms") == ["(0.156) Q02", "0.410", "0.620"]
    assert row(fused, "  95 %")[0] == "(0.154–0.158) Q02"
    assert "Q02 spread: " in text.split("In parentheses: not to be quoted")[1]
    assert len(re.findall(r"0\.156", text)) == 1


def test_rules_that_refuse_all_are_said_once_below_the_table() -> None:
    record, results = paper_runs.h200_run()
    both = (Reason(rule="Q05", text="load"), Reason(rule="Q08", text="cpu"))
    cells = [results.cells[0], *(c for c in results.cells[1:])]
    for i in (0, 2):
        facts = {name: f.refuse(*both) for name, f in cells[i].facts.items() if name in {"wall_ns", "host_ns"}}
        cells[i] = replace(cells[i], facts=cells[i].facts | facts)
    cells[0] = replace(cells[0], facts=cells[0].facts | {"host_bound": results.cells[2].facts["host_bound"]})
    fused = shown((record, replace(results, cells=tuple(cells)))).split("\nfused  ")[1].split("\ntensor  ")[0]
    assert row(fused, "wall ms") == ["(0.156) Q02", "(0.410)", "0.620"]
    assert row(fused, "host ms") == ["(0.0600)", "(0.190)", "0.260"]
    assert "each figure in parentheses also: Q05 Q08" in fused


def test_evidence_stands_beside_the_path() -> None:
    text = shown(paper_runs.h200_run)
    assert "fused  path confirmed (gate, kernels, counts)" in text
    assert "fused  path gate-only (no device to look at)" in shown(paper_runs.laptop_run)


def test_the_worst_evidence_of_a_path_is_the_one_shown() -> None:
    record, results = paper_runs.h200_run()
    first = results.cells[2]
    gate, kernels, counts = first.evidence.witnesses
    lies = Evidence(verdict="contradicted", expected="fused", witnesses=(gate, replace(kernels, says="tensor"), counts))
    changed = (*results.cells[:2], replace(first, evidence=lies), *results.cells[3:])
    assert "fused  path contradicted (kernels says tensor)" in shown((record, replace(results, cells=changed)))


def test_a_path_that_is_proven_in_part_is_not_called_unproven() -> None:
    record, results = paper_runs.h200_run()
    first = results.cells[2]
    silent = Evidence(verdict="gate-only", expected="fused", witnesses=first.evidence.witnesses[:1])
    changed = (*results.cells[:2], replace(first, evidence=silent), *results.cells[3:])
    text = shown((record, replace(results, cells=changed)))
    assert "(the rest was not profiled)" in text
    assert "no device to look at" not in text


def test_findings_say_what_to_do_next() -> None:
    text = shown(paper_runs.h200_run, width=300).split("\nFindings\n")[1]
    assert "  warning host-bound (tensor fwd): 84 % of a forward call is host dispatch" in text
    assert "    threshold host bound 50 %" in text
    assert "    next: capture the step into a CUDA Graph" in text


def test_a_failed_cell_and_a_partial_run_are_said() -> None:
    assert "compiled fwd: failed, InvalidCxxCompiler: no working C++ compiler" in shown(
        paper_runs.laptop_run, width=200
    )
    record, results = paper_runs.h200_run()
    cells = (*record.cells[:-1], replace(record.cells[-1], status="skipped"))
    text = shown((replace(record, complete=False, cells=cells), results))
    assert "Partial run: it ended before its plan did" in text
    assert "tensor fwdbwd graph: skipped, not reached" in text


def test_without_a_gpu_the_recorded_run_is_pointed_at() -> None:
    assert "reports/h200-kda" in shown(paper_runs.laptop_run)
    assert "reports/h200-kda" not in shown(paper_runs.h200_run)
    assert recorded_run_hint(paper_runs.h200_run()[0]) is None


def test_where_the_run_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a short path, which the terminal does not wrap
    run = Path("runs/x")
    run.mkdir(parents=True)
    assert shown(paper_runs.h200_run, path=run).endswith("run directory  runs/x\n")  # killed: no report was written
    (run / "report.md").write_text("# a report\n")
    text = shown(paper_runs.h200_run, path=run)
    assert text.endswith("run directory  runs/x\nwhole report   runs/x/report.md\n")
    assert "run directory" not in shown(paper_runs.h200_run)


def test_repeated_findings_are_short_and_errors_never() -> None:
    record, results = paper_runs.h200_run()

    def of(severity: str, cell: int) -> Finding:
        text = f"{severity} text {cell}"
        return Finding(id="x", severity=severity, cell=results.cells[cell].id, text=text, next=f"do {cell}")  # type: ignore[arg-type]

    findings = tuple(of(severity, cell) for severity in ("error", "warn", "info") for cell in (0, 2, 4))
    text = shown((record, replace(results, findings=findings)), width=120).split("\nFindings\n")[1]
    assert [word for word in ("error", "warn", "info") for cell in (0, 2, 4) if f"{word} text {cell}" in text] == [
        *["error"] * 3,
        *["warn"] * 3,
        "info",
    ]
    assert [text.count(f"next: do {cell}") for cell in (0, 2, 4)] == [3, 1, 1]
    assert "x also: fused bwd, fused fwdbwd (numbers in the report)" in text


def test_an_empty_run() -> None:
    record, results = paper_runs.laptop_run()
    text = shown((replace(record, cells=()), RunResults(run=results.run)))
    assert "Verdict" in text


def test_markup_in_texts_is_shown_as_it_is() -> None:
    record, results = paper_runs.h200_run()
    finding = replace(results.findings[0], text="[bold]not bold[/] :smile:", next="[red]x[/red]")
    text = shown((record, replace(results, findings=(finding,))), width=200)
    assert "[bold]not bold[/] :smile:" in text
    assert "[red]x[/red]" in text

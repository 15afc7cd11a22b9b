"""The field report that stands in reports/ is what the command beside it prints from the stored runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdaprof.cli.main import main

REPORTS = Path(__file__).parents[2] / "reports"
RUNS = ("h200-baseline", "h200-baseline-attention", "h200-baseline-gemm")


def test_the_stored_field_report_is_what_its_runs_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *(str(REPORTS / run) for run in RUNS), "--tables", "field"]) == 0
    assert capsys.readouterr().out == (REPORTS / "h200-baseline.md").read_text()

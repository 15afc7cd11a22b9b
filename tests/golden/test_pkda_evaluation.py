"""The PKDA evaluation on a B300, judged again by the live code from its published medians: NO-GO, and why."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kdaprof.analysis.ab.document import ab_schema
from kdaprof.cli.main import main
from kdaprof.errors import Exit

DATA = Path(__file__).parent / "data"
CONTRACT, EVIDENCE = DATA / "pkda-b300.toml", DATA / "pkda-b300.evidence.json"
# "Speedup is baseline median divided by candidate median", as the report prints it.
SPEEDUPS = {
    "public": 0.716833,
    "registered-d64": 0.805859,
    "long": 0.678967,
    "dense-asymmetric": 1.036114,
    "ragged-asymmetric": 1.030097,
    "d256": 0.999765,
}
MEMORY = {"public": -3.02, "registered-d64": -5.67, "long": -3.02}


def judged(capsys: pytest.CaptureFixture[str], contract: Path, evidence: Path) -> tuple[int, dict[str, Any]]:
    code = main(["ab", str(contract), "--judge", str(evidence), "--json"])
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, ab_schema())
    return code, document


def gates(document: dict[str, Any]) -> dict[str, Any]:
    return {gate["name"]: gate for gate in document["gates"]}


def test_the_table_and_the_geometric_mean_are_those_of_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    _, document = judged(capsys, CONTRACT, EVIDENCE)
    found = {row["cell"]: row["speedup"]["value"] for row in document["rows"]}
    assert found == pytest.approx(SPEEDUPS, abs=5e-7)
    assert all(row["base"]["n"] == row["cand"]["n"] == 150 for row in document["rows"])
    assert gates(document)["optimised rows"]["value"] == pytest.approx(0.731996, abs=5e-7)
    shares = {
        row["cell"]: 100 * row["peak"]["change_bytes"] / row["peak"]["base"]["value"]
        for row in document["rows"]
        if row["peak"]["change_bytes"] is not None
    }
    assert shares == pytest.approx(MEMORY, abs=5e-3)


def test_it_is_a_no_go_by_the_gates_that_the_report_names(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = judged(capsys, CONTRACT, EVIDENCE)
    assert (code, document["decision"]) == (Exit.REGRESSION, "no-go")
    assert {name: gate["verdict"] for name, gate in gates(document).items()} == {
        "affected stages": "pass",  # "the original Amdahl gate supported a bounded proof"
        "public endpoint": "fail",
        "optimised rows": "fail",
        "every row": "fail",
        "dAqk is gone": "pass",  # "the intended storage removal was real"
    }
    assert "optimised rows: wanted ≥ 1.08 ×, got 0.731996 ×" in document["why"]
    assert gates(document)["every row"]["shape"] == "long"


def test_one_median_changes_the_verdict_of_a_gate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, document = judged(capsys, CONTRACT, changed(tmp_path, public=1_400_000))
    after = {name: gate["verdict"] for name, gate in gates(document).items()}
    # A median without rounds can miss a gate, and cannot prove one.
    assert after["public endpoint"] == after["optimised rows"] == "not-established"
    assert after["every row"] == "fail"
    assert document["decision"] == "no-go"


# A candidate that keeps what the issue promised: 1.12 × on each representative shape, the controls as published.
KEPT = {"public": 3_999_457, "registered-d64": 1_670_500, "long": 21_079_142}


@pytest.mark.parametrize("shape", KEPT)
def test_each_published_median_alone_makes_it_a_no_go(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, shape: str
) -> None:
    """The contract as it stands: three published medians miss it, so no one change saves it; each alone breaks it."""
    code, document = judged(capsys, CONTRACT, changed(tmp_path, **KEPT))
    assert (code, document["decision"]) == (Exit.INCONCLUSIVE, "not-established")
    assert "fail" not in {gate["verdict"] for gate in document["gates"]}
    published = {name: median for name, median in KEPT.items() if name != shape}
    code, document = judged(capsys, CONTRACT, changed(tmp_path, **published))
    assert (code, document["decision"]) == (Exit.REGRESSION, "no-go")
    assert gates(document)["every row"]["shape"] == shape


def test_with_rounds_it_would_be_a_go_and_one_side_s_median_a_no_go(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Five rounds of 30 samples around those medians: what can pass a gate is an interval."""
    code, document = judged(capsys, CONTRACT, in_rounds(changed(tmp_path, **KEPT)))
    assert (code, document["decision"]) == (Exit.OK, "go"), document["why"]
    code, document = judged(capsys, CONTRACT, in_rounds(changed(tmp_path, **{**KEPT, "d256": 3_400_000})))
    assert (code, document["decision"]) == (Exit.REGRESSION, "no-go")
    assert gates(document)["every row"]["shape"] == "d256"


def test_one_median_changes_the_decision_where_the_other_rows_do_not_bind(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = CONTRACT.read_text()
    begin = text.index('[[gates]]\nname = "every row"')
    narrow = tmp_path / "narrow.toml"
    narrow.write_text(text[:begin] + text[text.index('[[gates]]\nname = "dAqk') :])
    assert judged(capsys, narrow, EVIDENCE)[1]["decision"] == "no-go"
    code, document = judged(capsys, narrow, changed(tmp_path, public=1_400_000))
    assert (code, document["decision"]) == (Exit.INCONCLUSIVE, "not-established")
    code, document = judged(capsys, narrow, changed(tmp_path, public=4_000_000))
    assert (code, gates(document)["optimised rows"]["verdict"]) == (Exit.REGRESSION, "fail")
    assert gates(document)["public endpoint"]["verdict"] == "not-established"  # 1.12 ×: the median alone is enough


def test_the_terminal_shows_the_report_s_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ab", str(CONTRACT), "--judge", str(EVIDENCE)]) == Exit.REGRESSION
    out = capsys.readouterr().out
    for text in ("4.4794", "6.2489", "0.716833", "6.2723", "−34,602,496 B, −3.02 %", "NO-GO: ", "0.731996 ×"):
        assert text in out


def changed(folder: Path, **medians: int) -> Path:
    """The published evidence with other medians of the candidate, in ns by shape."""
    target = folder / "evidence.json"
    shutil.copyfile(EVIDENCE, target)
    document = json.loads(target.read_text())
    for row in document["shapes"]:
        row["cand"]["summary"]["median_ns"] = medians.get(row["shape"], row["cand"]["summary"]["median_ns"])
    target.write_text(json.dumps(document))
    return target


def in_rounds(evidence: Path) -> Path:
    """The same medians as five rounds of 30 samples within 1 % of them."""
    document = json.loads(evidence.read_text())
    for row in document["shapes"]:
        for number, side in enumerate(("base", "cand")):
            middle = row[side].pop("summary")["median_ns"]
            row[side]["rounds"] = {
                str(at): [
                    round(middle * (1 + ((7 * at + 3 * number) % 5 - 2) / 2000 + (i - 14.5) / 3000)) for i in range(30)
                ]
                for at in range(5)
            }
    evidence.write_text(json.dumps(document))
    return evidence

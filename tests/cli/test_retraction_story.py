"""The field report's own story: a run read at step 0, cited, then retracted, and its derived claims fall with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from stored_runs import CELL, MS, fails_in_one_line, stored

from kdaprof.cli.main import main
from kdaprof.report.history import history_schema
from kdaprof.runs.document import run_schema
from kdaprof.runs.facts import fact_id
from kdaprof.runs.history import record_run
from kdaprof.runs.results import RunResults
from kdaprof.runs.store import RunWriter, read_results

STEP0, WARM, CLAIM = "20260926T120000Z-step-0", "20260929T120000Z-step-warm", "20260927T120000Z-step-claim"
WALL = f"{CELL}/wall_ns"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with three runs: the one of step 0, a claim that was made from it, and the warm one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.kdaprof]\nstore = "numbers"\n')
    stored(Path("runs"), STEP0, wall_ns=1810 * MS, warm=())
    claim = stored(Path("runs"), CLAIM, wall_ns=365 * MS, day=1)
    stored(Path("runs"), WARM, wall_ns=244 * MS, day=3)
    RunWriter(claim).put_results(claimed(read_results(claim)))
    for name in (STEP0, CLAIM, WARM):
        assert record_run(tmp_path / "numbers", Path("runs") / name)
    return tmp_path


def claimed(results: RunResults) -> RunResults:
    """“A perfect kernel takes the step from 1,810 to 365 ms”: a figure with a source in another run."""
    cell = results.cells[0]
    share = replace(cell.facts["host_bound"], value=0.2, sources=(fact_id(STEP0, CELL, "wall_ns"),), quotable=True)
    return replace(results, cells=(replace(cell, facts=cell.facts | {"host_bound": share}),))


def said(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    assert main(argv) == code
    out, err = capsys.readouterr()
    return out if code == 0 else out + err


def figure(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = document["cells"][0]["facts"][name]
    return found


def test_the_story(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cited = said(capsys, "cite", f"{STEP0}/{WALL}")
    assert cited.startswith("Wall of kda fused, fwd, eager, plain, ")
    assert "1.81 s (95 % interval " in cited
    assert cited.rstrip().endswith(f"run {STEP0}.")
    assert "retracted" not in said(capsys, "history")

    out = said(capsys, "retract", STEP0, "--why", "read at step 0", "--superseded-by", WARM)
    assert out.startswith(f"retracted {STEP0}: read at step 0\n")
    assert f"\n  {CLAIM}/{CELL}/host_bound\n" in out

    # The figure, and what was made from it in its own run, may not be cited any more.
    for name in ("wall_ns", "idle_ns", "host_bound", "tokens_per_s"):
        text = said(capsys, "cite", f"{STEP0}/{CELL}/{name}", code=3)
        assert "retracted: read at step 0; withdrawn " in text
        assert f"superseded by {WARM}" in text
    # Neither may the claim that another run made from it.
    shown = said(capsys, "history", "--fact", "host_bound")
    assert f"retracted: through {STEP0}/{WALL}: read at step 0" in shown
    # What stands in its place stands.
    assert "244 ms" in said(capsys, "cite", f"{WARM}/{WALL}")


def test_reports_show_it_struck_out_and_the_check_does_not(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = f"runs/{STEP0}"
    before = {path: path.read_bytes() for path in sorted(Path(run).rglob("*")) if path.is_file()}
    said(capsys, "retract", f"{run}/{WALL}", "--why", "read at step 0")
    document = json.loads(said(capsys, "report", run, "--json"))
    jsonschema.Draft202012Validator(run_schema()).validate(document)
    wall, bound, host = (figure(document, name) for name in ("wall_ns", "host_bound", "host_ns"))
    assert wall["value"] == 1810 * MS
    assert [reason["rule"] for reason in wall["reasons"]] == ["retracted"]
    assert bound["reasons"][0]["text"].startswith("through idle_ns: read at step 0")
    assert host["quotable"]
    assert document["findings"][0]["id"] == "retracted"
    assert not any("host" in finding["id"] for finding in document["findings"])
    assert "(1,810) retracted" in said(capsys, "report", run)
    assert "~~1,810 [" in said(capsys, "report", run, "--md")
    assert "follow from the samples" in said(capsys, "report", run, "--check")
    assert {path: path.read_bytes() for path in before} == before


def test_history_and_comparison_leave_it_out(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "retract", f"{STEP0}/{CELL}", "--why", "read at step 0")
    document = json.loads(said(capsys, "history", "--json"))
    jsonschema.Draft202012Validator(history_schema()).validate(document)
    (series,) = document["series"]
    assert [(p["run"], p["figure"]["quotable"]) for p in series["points"]] == [
        (STEP0, False),
        (CLAIM, True),
        (WARM, True),
    ]
    assert document["retractions"][0]["why"] == "read at step 0"
    quotable = json.loads(said(capsys, "history", "--json", "--quotable"))["series"][0]["points"]
    assert [point["run"] for point in quotable] == [CLAIM, WARM]
    # Were it not retracted, this would be a candidate seven times as fast.
    text = said(capsys, "compare", f"runs/{STEP0}", f"runs/{WARM}", code=4)
    assert "not compared, base retracted: read at step 0; withdrawn " in text
    assert "(1.81 s) → 244 ms" in text
    assert "244 ms" not in said(capsys, "compare", f"runs/{CLAIM}", f"runs/{STEP0}", code=4)


def test_a_reading_of_step_0_is_refused_without_anybody_noticing_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = stored(tmp_path, "two-steps", wall_ns=1810 * MS, warm=(5549 * MS,), rounds=1, per_round=1)
    text = said(capsys, "cite", WALL, str(run), "--store", str(tmp_path / "store"), code=3)
    assert "Q01 not warm: " in text


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["retract"], 2, "needs RUN or FACT"),
        (["retract", STEP0], 2, "needs --why"),
        (["retract", STEP0, "--why", "  "], 2, "needs --why"),
        (["retract", f"{STEP0[:-1]}", "--why", "x"], 2, f"no such run; near it: {STEP0}"),
        (["retract", f"{STEP0}/{CELL}/wal_ns", "--why", "x"], 2, f"near it: {WALL}"),
        (["retract", STEP0, "--why", "x", "--superseded-by", STEP0], 2, "is the run that is retracted"),
        (["retract", STEP0, "--why", "x", "--superseded-by", f"{WARM}/{CELL}"], 2, "a run is wanted here"),
        (["retract", "--list", "x"], 2, "takes nothing but --store"),
        (["retract", "numbers", "--why", "x"], 1, "holds no run.json"),
        (["cite", STEP0], 2, "names no figure"),
        (["cite", f"{STEP0}/{CELL}"], 2, "names no figure"),
        (["cite", f"{CELL}/walls_ns", f"runs/{STEP0}"], 2, f"near it: {WALL}"),
        (["cite", f"{STEP0}/{CELL}/graph_removed"], 4, "graph_removed is missing: "),
    ],
)
def test_faults_are_one_line_and_change_nothing(
    place: Path, capsys: pytest.CaptureFixture[str], argv: list[str], code: int, says: str
) -> None:
    fails_in_one_line(capsys, argv, code, says)
    assert not (place / "numbers" / "retractions").exists()


def test_a_ceiling_takes_the_floors_with_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "retract", f"{STEP0}/ceilings/copy", "--why", "taken from a data sheet")
    document = json.loads(said(capsys, "report", f"runs/{STEP0}", "--json"))
    struck = {name for name, fact in document["cells"][0]["facts"].items() if fact["reasons"]}
    assert struck == {"floor_ns", "floor_share"}


def test_a_damaged_entry_is_not_taken_for_none(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "retract", STEP0, "--why", "x")
    (entry,) = (place / "numbers" / "retractions").iterdir()
    entry.write_text("{")
    assert f"{entry}: not valid JSON" in said(capsys, "report", f"runs/{STEP0}", code=1)


def test_the_list(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing was retracted" in said(capsys, "retract", "--list")
    said(capsys, "retract", STEP0, "--why", "read at step 0")
    said(capsys, "retract", f"{CLAIM}/{CELL}/idle_ns", "--why", "not  whole")
    assert said(capsys, "retract", "--list").splitlines()[0::2] == [STEP0, f"{CLAIM}/{CELL}/idle_ns"]

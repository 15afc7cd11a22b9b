"""`kdaprof report` of a sweep: shown, checked against its samples, and its three files made again."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from kdaprof.analysis.step.sweep import swept_axes
from kdaprof.cli.main import main

STORED = Path(__file__).parents[2] / "reports" / "h200-step-max-iter"
FILES = ("sweep.json", "sweep.md", "sweep.svg")


@pytest.fixture(autouse=True)
def no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A sweep of one path over six numbers of iterations, recorded on an H200."""
    return Path(shutil.copytree(STORED, tmp_path / "sweep"))


@pytest.mark.parametrize(
    ("command", "axes"),
    [
        ("kdaprof sweep --over batch=1,2", ("B",)),
        ("kdaprof sweep --path fused --over=max_iter=1,2", ("iters",)),
        ("kdaprof sweep --over seq=128,256 --anonymous --over batch=2,4 --force", ("T", "B")),
        ("kdaprof sweep --over", ()),
        ("kdaprof sweep batch=1,2", ()),
        ("kdaprof probe --over batch=1,2", ()),
        ("", ()),
    ],
)
def test_the_command_says_what_was_swept(command: str, axes: tuple[str, ...]) -> None:
    assert swept_axes(command.split()) == axes


def test_a_sweep_shows_its_lines_before_the_run(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(sweep)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# Step sweep over iters\n\nwall = fixed + slope · iters\n")
    assert shown.index("largest residual") < shown.index("Verdict")


def test_its_sizes_share_a_table_and_its_notes_are_said_once(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(sweep)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("path confirmed") == 1
    assert shown.count("no graph removes: not applicable") == 1
    heads = [line.split() for line in shown.splitlines() if line.startswith("  ") and " iters 1" in line]
    assert heads[0][:4] == ["iters", "1", "iters", "2"]


def test_the_page_of_a_sweep_folds_what_is_long_and_loses_nothing(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(sweep), "--md"]) == 0
    page = capsys.readouterr().out
    notes = [line for line in page.splitlines() if line.startswith("> ")]
    assert len(notes) == len(set(notes)) == 2
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert headings[:2] == ["Step sweep over iters", "Verdict"]
    folded = re.findall(r"\n## (.*)\n\n<details><summary>(.*)</summary>\n\n", page)
    assert len(folded) == page.count("\n\n</details>\n") == 10
    assert all(heading == summary for heading, summary in folded)
    assert not {"Figures", "Findings", "Refused figures"} & {heading for heading, _ in folded}
    # Taken for a probe's, the same run has the same sections, open.
    record = json.loads((sweep / "run.json").read_text())
    record["command"][1] = "probe"
    (sweep / "run.json").write_text(json.dumps(record))
    assert main(["report", str(sweep), "--md"]) == 0
    probed = capsys.readouterr().out
    assert "<details>" not in probed
    assert [line.removeprefix("## ") for line in probed.splitlines() if line.startswith("## ")] == headings[1:]


def test_a_sweep_follows_from_its_samples(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(sweep), "--check"]) == 0
    assert capsys.readouterr().out.endswith("findings follow from the samples, and so does the sweep\n")


def test_check_names_the_figure_of_a_sweep_that_differs(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads((sweep / "sweep.json").read_text())
    was = document["fits"][0]["slope_ns"]["value"]
    document["fits"][0]["slope_ns"]["value"] = 1
    (sweep / "sweep.json").write_text(json.dumps(document))
    assert main(["report", str(sweep), "--check"]) == 3
    said = capsys.readouterr().out.splitlines()
    assert said == [f"{sweep}: sweep.json.fits[0].slope_ns.value: 1 stored, {was} recomputed"]


@pytest.mark.parametrize(
    ("name", "spoil", "says"),
    [
        ("sweep.md", lambda text: text.replace("eager", "graph", 1), "sweep.md line 7: '| fused | graph"),
        ("sweep.svg", lambda text: text + "<!-- more -->", "sweep.svg line "),
        ("sweep.json", lambda _: "{", "sweep.json: no JSON (Expecting property name"),
        ("sweep.json", lambda _: "[]", "sweep.json: [] stored, {"),
        ("sweep.svg", None, "sweep.svg: not there; `kdaprof report "),
    ],
)
def test_what_is_spoilt_or_gone_is_named_and_made_again(
    sweep: Path, name: str, spoil: object, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sweep / name
    whole = path.read_text()
    path.write_text(spoil(whole)) if callable(spoil) else path.unlink()
    assert main(["report", str(sweep), "--check"]) == 3
    assert capsys.readouterr().out.startswith(f"{sweep}: {says}")
    assert main(["report", str(sweep), "--write"]) == 0
    assert path.read_text() == whole
    assert main(["report", str(sweep), "--check"]) == 0


def test_a_sweep_that_was_killed_gets_its_files(sweep: Path) -> None:
    kept = {name: (sweep / name).read_bytes() for name in FILES}
    for name in (*FILES, "facts.json", "findings.json", "report.md"):
        (sweep / name).unlink()
    assert main(["report", str(sweep), "--write"]) == 0
    assert {name: (sweep / name).read_bytes() for name in FILES} == kept


def test_a_run_that_sweeps_nothing_gets_no_such_file(sweep: Path) -> None:
    record = json.loads((sweep / "run.json").read_text())
    record["command"][1] = "probe"
    (sweep / "run.json").write_text(json.dumps(record))
    for name in FILES:
        (sweep / name).unlink()
    assert main(["report", str(sweep), "--write"]) == 0
    assert not [name for name in FILES if (sweep / name).exists()]


def test_the_html_page_shows_the_line_behind_the_verdict(sweep: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(sweep), "--html", "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.index('id="verdict"') < text.index('id="sweep"') < text.index('id="conditions"')
    part = text[text.index('id="sweep"') : text.index('id="corrections"')]
    assert "wall = fixed + slope · iters" in part
    assert "4 iterations instead of 8" in part
    assert "fused eager: 1 takes 5.81 ms" in part, "the chart in words"
    assert "fused eager line" in text


def test_a_run_that_is_no_sweep_has_no_line(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(STORED.parent / "h200-step"), "--html", "--out", str(page)]) == 0
    assert 'id="sweep"' not in page.read_text(encoding="utf-8")

"""`kdaprof history`: what is recorded, shown, filtered, plotted, and what is never overwritten."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd
import pytest
import scenes
from stored_runs import CELL, MS, fails_in_one_line, stored

from kdaprof.cli.main import main
from kdaprof.cli.standing import record_finished
from kdaprof.report.history import history_schema
from kdaprof.runs.facts import EAGER_FACTS

WALLS = (100, 101, 99, 100, 150, 151, 149)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with seven runs on one machine, the last three slower, and one on another machine."""
    folder = tmp_path_factory.mktemp("history")
    for day, wall in enumerate(WALLS):
        env = replace(scenes.environment(), cwd="/srv", git_commit=f"{day}aaaaaaaaaaa", git_dirty=day == 1)
        stored(folder / "runs", f"run-{day}", wall_ns=wall * MS, day=day, environment=env)
    laptop = replace(scenes.environment(gpu=False), cwd="/srv", git_commit="7aaa")
    stored(folder / "runs", "elsewhere", wall_ns=900 * MS, day=7, environment=laptop)
    runs = sorted(str(path) for path in (folder / "runs").iterdir())
    assert main(["history", "--add", *runs, "--store", str(folder / "store")]) == 0
    return folder


def shown(capsys: pytest.CaptureFixture[str], recorded: Path, *flags: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["history", "--json", "--store", str(recorded / "store"), *flags]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    document: dict[str, Any] = json.loads(out, parse_constant=pytest.fail)
    jsonschema.Draft202012Validator(history_schema()).validate(document)
    return document


def test_series_by_machine_in_order_with_the_change_of_level(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main_series, other = shown(capsys, recorded)["series"]
    assert (main_series["machine"], other["machine"]) == (
        "NVIDIA H200 · a CPU, 16 cores",
        "no GPU · a CPU, 16 cores",
    )
    assert [round(point["figure"]["value"] / MS) for point in main_series["points"]] == list(WALLS)
    (change,) = main_series["changes"]
    assert change["run"] == "run-4"
    assert change["ratio"] == pytest.approx(1.5, rel=0.02)
    assert other["no_changes"] == "1 quotable figures; a change of level needs 4"


def test_the_table_shows_where_the_level_changed(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["history", "--store", str(recorded / "store"), "--machine", "h200"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"wall · {CELL}  ▁")
    new = next(i for i, line in enumerate(lines) if "a new level: 100 ms → 150 ms, 1.50 ×" in line)
    assert "run-3" in lines[new - 1]
    assert "run-4" in lines[new + 1]
    assert "1aaaaaaaa*" in next(line for line in lines if line.endswith("run-1"))


@pytest.mark.parametrize(
    ("flags", "runs"),
    [
        (["--commit", "3a"], ["run-3"]),
        (["--machine", "no gpu"], ["elsewhere"]),
        (["--cell", "*/tensor/*"], []),
        (["--cell", "kda/fused/*", "--commit", "0"], ["run-0"]),
        (["--fact", "launches", "--commit", "2"], ["run-2"]),
        (["--fact", "graph_removed"], []),
    ],
)
def test_filters(recorded: Path, capsys: pytest.CaptureFixture[str], flags: list[str], runs: list[str]) -> None:
    series = shown(capsys, recorded, *flags)["series"]
    assert [point["run"] for one in series for point in one["points"]] == runs


def test_recording_again_adds_nothing_and_new_figures_add_a_file(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, run = tmp_path / "store", stored(tmp_path, "one", wall_ns=100 * MS)
    for says in ("one: recorded in", "one: recorded already in"):
        assert main(["history", "--add", str(run), "--store", str(store)]) == 0
        assert says in capsys.readouterr().out
    first = {path: path.read_bytes() for path in (store / "history").iterdir()}
    assert len(first) == 1
    stored(tmp_path, "one", wall_ns=90 * MS)  # the same run, derived otherwise
    assert main(["history", "--add", str(run), "--store", str(store)]) == 0
    assert len(list((store / "history").iterdir())) == 2
    assert all(path.read_bytes() == content for path, content in first.items())
    capsys.readouterr()
    assert main(["history", "--json", "--store", str(store)]) == 0
    (series,) = json.loads(capsys.readouterr().out)["series"]
    assert [round(point["figure"]["value"] / MS) for point in series["points"]] == [90]


def test_the_record_is_a_parquet_folder(recorded: Path) -> None:
    frame = pd.read_parquet(recorded / "store" / "history")
    assert set(frame["run"]) == {*(f"run-{day}" for day in range(len(WALLS))), "elsewhere"}
    assert set(frame["fact"]) == set(EAGER_FACTS)
    assert {"workload", "path", "phase", "shape", "dtype", "commit", "machine", "quotable", "sources"} <= set(frame)


def test_the_plot(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "history.html"
    flags = ["--store", str(recorded / "store")]
    assert main(["history", "--html", str(target), *flags]) == 0
    page = target.read_text()
    assert page.count("<script src") == 0
    assert page.count('id="figure-') == 2
    assert len(page) < 6_000_000
    assert main(["history", "--html", str(target), "--cell", "nothing", *flags]) == 2
    assert target.read_text() == page
    assert main(["history", "--html", str(target), *flags]) == 0  # its own plot is replaced
    mine = tmp_path / "train.py"
    mine.write_text("mine")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place, says in ((mine, "is no plot of kdaprof"), (pipe, "is no plot"), (tmp_path, "a directory")):
        assert main(["history", "--html", str(place), *flags]) == 2
        assert says in capsys.readouterr().err
    assert mine.read_text() == "mine"


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["--fact", "walls"], 2, "no figure is called walls; known: wall_ns"),
        (["--fact", ""], 2, "no figure is called that"),
        (["--json", "--html", "x.html"], 2, "not allowed with"),
        (["--add", "no-such-run"], 1, "no-such-run: no such run directory"),
        (["--store", "pyproject.toml"], 2, "is a file"),
    ],
)
def test_bad_usage_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    code: int,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    fails_in_one_line(capsys, ["history", *argv], code, says)


def test_nothing_recorded_says_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--store", str(tmp_path / "none")]) == 0
    assert "no run is recorded; `kdaprof history --add RUN` records one" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_a_damaged_file_is_named(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    (folder / "run-0.1-ab.parquet").write_bytes(b"PAR1 garbage")
    assert main(["history", "--store", str(tmp_path)]) == 1
    assert "run-0.1-ab.parquet: not a readable Parquet file" in capsys.readouterr().err
    (folder / "run-0.1-ab.parquet").rename(folder / "mine.parquet")
    assert main(["history", "--store", str(tmp_path)]) == 1
    assert "mine.parquet: not a file of the history" in capsys.readouterr().err


def test_a_finished_run_is_recorded_and_a_store_that_cannot_take_it_costs_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = stored(tmp_path / "runs", "one")
    record_finished(run)
    assert main(["history", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [point["run"] for point in json.loads(out)["series"][0]["points"]] == ["one"]
    assert err == ""
    (tmp_path / "file").write_text("")
    record_finished(run, tmp_path / "file")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("not recorded in the history: --store ")
    assert err.count("\n") == 1

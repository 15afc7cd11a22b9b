"""The history's files: figures come back as they went in, one file a run, and writers do not clash."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import scenes

from kdaprof.analysis.derive import derive
from kdaprof.analysis.view import RawRun
from kdaprof.runs.history import machine_of, read_history, record_figures, sources_of


def run(name: str, *, cwd: str | None = "/srv") -> RawRun:
    graph = scenes.scene(mode="graph", wall_ns=135_000)
    return scenes.raw(scenes.scene(), graph, run=name, environment=replace(scenes.environment(), cwd=cwd))


def test_figures_come_back_whole(tmp_path: Path) -> None:
    raw = run("r")
    results = derive(raw)
    assert record_figures(tmp_path, raw.record, results, tmp_path / "r", clock=lambda: 7)
    entries = read_history(tmp_path)
    assert [(e.cell, e.name) for e in entries] == [(c.id, name) for c in results.cells for name in c.facts]
    for entry in entries:
        assert entry.fact == results.cell(entry.cell).facts[entry.name]
    stamp = entries[0].stamp
    assert (stamp.run, stamp.recorded_unix_ns, stamp.directory) == ("r", 7, str(tmp_path / "r"))
    assert stamp.machine == machine_of(raw.record.environment) == "NVIDIA H200 · a CPU, 16 cores"
    eager = raw.record.cells[0].id
    assert f"r/{eager}/idle_ns" in sources_of(entries)[f"r/{eager}/host_bound"]


def test_an_anonymous_run_does_not_say_where_it_lay(tmp_path: Path) -> None:
    raw = run("r", cwd=None)
    record_figures(tmp_path, raw.record, derive(raw), tmp_path / "secret")
    assert {entry.stamp.directory for entry in read_history(tmp_path)} == {None}
    assert not any(b"secret" in path.read_bytes() for path in (tmp_path / "history").iterdir())


def test_a_name_used_again_is_another_run(tmp_path: Path) -> None:
    raw = run("nightly")
    for day in range(3):
        record = replace(raw.record, started_unix_ns=day)
        assert record_figures(tmp_path, record, derive(raw), tmp_path)
        assert not record_figures(tmp_path, record, derive(raw), tmp_path)
    assert {entry.stamp.started_unix_ns for entry in read_history(tmp_path)} == {0, 1, 2}


def test_many_writers_at_once(tmp_path: Path) -> None:
    raws = [run(f"r{number % 4}") for number in range(12)]
    results = [derive(raw) for raw in raws]
    with ThreadPoolExecutor(6) as pool:
        list(
            pool.map(
                lambda pair: record_figures(tmp_path, pair[0].record, pair[1], tmp_path),
                zip(raws, results, strict=True),
            )
        )
    entries = read_history(tmp_path)
    assert len({entry.id for entry in entries}) == len(entries) == 4 * sum(len(c.facts) for c in results[0].cells)
    assert not [path for path in (tmp_path / "history").iterdir() if path.suffix != ".parquet"]

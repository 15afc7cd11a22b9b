"""Two real gloo ranks under torchrun: a run each, a manifest, and a report that says who is waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from kdaprof.analysis.derive import derive
from kdaprof.analysis.loop_ranks import loop_ranks
from kdaprof.analysis.recompute import load_raw
from kdaprof.cli.main import main
from kdaprof.errors import BadFileError, UsageError
from kdaprof.report.loop_ranks import ranks_markdown
from kdaprof.runs import ranks as ranks_module
from kdaprof.runs.history import read_history
from kdaprof.runs.ranks import Rank, rank_folders, rank_of

SCRIPT = Path(__file__).with_name("ddp_loop.py")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("job") / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environ = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(SCRIPT), str(out), "0.02"],
        cwd=out.parent,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return out


def test_each_rank_has_its_run_and_rank_0_the_manifest(job: Path) -> None:
    manifest = json.loads((job / "ranks.json").read_text())
    schema = json.loads((Path(ranks_module.__file__).parent / "schemas" / "ranks-1.json").read_text())
    jsonschema.validate(manifest, schema)
    assert manifest["world_size"] == 2
    assert rank_folders(job) == [job / "rank00000", job / "rank00001"]
    for folder in rank_folders(job):
        raw = load_raw(folder)
        assert raw.record.complete
        phases = [cell.key.phase for cell in raw.record.cells]
        assert phases == ["fwd", "bwd", "opt", "other", "step"]
        assert {len(rows) for rows in raw.samples.values()} == {25}


def test_both_ranks_stand_in_one_history(job: Path) -> None:
    runs = {(entry.stamp.run, entry.stamp.complete) for entry in read_history(job.parent / ".kdaprof")}
    assert runs == {("run-rank00000", True), ("run-rank00001", True)}


def test_the_late_rank_is_the_straggler_and_the_other_waits_in_collectives(job: Path) -> None:
    raws = [load_raw(folder) for folder in rank_folders(job)]
    first, second = loop_ranks([(rank, raw, derive(raw)) for rank, raw in enumerate(raws)])
    assert (first.straggler, second.straggler) == (False, True)
    assert first.wait_ns is not None
    assert second.wait_ns is not None
    # Rank 1 sleeps 20 ms in each forward.
    assert first.wait_ns > 10_000_000 > second.wait_ns
    assert (second.walls["fwd"].value or 0) > 20_000_000 > (first.walls["fwd"].value or 0)


def test_the_report_shows_ranks_side_by_side(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(job)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Ranks, median wall a step\nrank ")
    assert "straggler: the others wait for it" in text.splitlines()[3]
    assert main(["report", str(job), "--md"]) == 0
    assert "| 1    |" in capsys.readouterr().out
    assert main(["report", str(job), "--check"]) == 0


def test_a_rank_that_was_killed_before_it_stored_a_step_stands_beside_the_others(job: Path) -> None:
    first, second = (load_raw(folder) for folder in rank_folders(job))
    killed = replace(second, record=replace(second.record, cells=(), complete=False), samples={}, timelines={})
    ranks = loop_ranks([(rank, raw, derive(raw)) for rank, raw in enumerate((first, killed))])
    assert [bool(rank.walls) for rank in ranks] == [True, False]
    last = next(line for line in ranks_markdown(ranks) if line.startswith("| 1 "))
    assert last.count("—") == len(first.record.cells) + 3
    assert last.endswith("| no step of it was stored |")
    assert loop_ranks([(1, killed, derive(killed))]) == ()


def test_a_missing_rank_and_one_too_many_are_named(job: Path) -> None:
    gone = job / "rank00001" / "run.json"
    away = gone.rename(gone.with_name("away.json"))
    try:
        with pytest.raises(BadFileError, match="rank 1 missing of 2"):
            rank_folders(job)
    finally:
        away.rename(gone)
    extra = job / "rank00007"
    extra.mkdir()
    (extra / "run.json").write_text("{}")
    try:
        with pytest.raises(BadFileError, match="rank 7 beyond the 2 of the last job"):
            rank_folders(job)
    finally:
        (extra / "run.json").unlink()
        extra.rmdir()


def test_a_rank_that_is_there_twice_is_named_and_a_folder_put_aside_is_none(job: Path) -> None:
    for name in ("rank00001-old", "rank1"):
        (job / name).mkdir()
        (job / name / "run.json").write_text("{}")
    try:
        with pytest.raises(BadFileError, match="rank 1 twice, rank00001 and rank1"):
            rank_folders(job)
        (job / "rank1" / "run.json").unlink()
        assert rank_folders(job) == [job / "rank00000", job / "rank00001"]
    finally:
        for name in ("rank00001-old", "rank1"):
            (job / name / "run.json").unlink(missing_ok=True)
            (job / name).rmdir()


def test_the_rank_comes_from_torchrun() -> None:
    assert rank_of({}) is None
    assert rank_of({"RANK": "3", "WORLD_SIZE": "8"}) == Rank(rank=3, world_size=8)
    for bad in ({"RANK": "8", "WORLD_SIZE": "8"}, {"RANK": "x", "WORLD_SIZE": "2"}):
        with pytest.raises(UsageError, match="not a rank of a job"):
            rank_of(bad)

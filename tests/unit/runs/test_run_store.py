"""The run directory: what is written comes back, and what is damaged says path, reason and way out."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import paper_runs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kdaprof.errors import BadFileError, Exit, KdaprofError, UsageError
from kdaprof.runs import codec, store
from kdaprof.runs.atomic import TargetError
from kdaprof.runs.ids import new_run_id
from kdaprof.runs.samples import Sample, read_samples, write_samples
from kdaprof.runs.watch import read_watch


def samples(cell: str, count: int = 4) -> tuple[Sample, ...]:
    return tuple(
        Sample(
            cell=cell,
            repeat="unprofiled",
            round=i // 2,
            index=i,
            t_ns=10**12 + i,
            host_ns=5_000 + i,
            wall_ns=7_000 + i,
            load1=0.5,
        )
        for i in range(count)
    )


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A run directory with two measured cells."""
    target = tmp_path / "run"
    writer = store.open_target(target)
    record, results = paper_runs.h200_run()
    writer.put_record(record)
    for cell in record.cells[:2]:
        writer.put_samples(cell.key, samples(cell.id))
    writer.put_results(results)
    writer.put_report("# report\n")
    return target


def test_what_is_written_comes_back_equal(written: Path) -> None:
    record, results = paper_runs.h200_run()
    stored = store.read_run(written)
    assert stored.record == record
    assert stored.samples == {cell.id: samples(cell.id) for cell in record.cells[:2]}
    assert store.read_results(written) == results
    assert (written / "report.md").read_text() == "# report\n"


def test_files_are_strict_json_with_their_schema(written: Path) -> None:
    for name, kind in (("run", "run-record"), ("facts", "facts"), ("findings", "findings")):
        document = json.loads((written / f"{name}.json").read_text(), parse_constant=pytest.fail)
        assert document["schema"] == f"kdaprof.{kind}/1"


def test_nothing_temporary_is_left(written: Path) -> None:
    assert not [path for path in written.rglob("*") if path.name.startswith(".") or path.suffix == ".tmp"]


def damage(path: Path, how: str) -> None:
    raw = path.read_bytes()
    document = json.loads(raw)
    changed = {
        "truncated": raw[: len(raw) // 2],
        "empty": b"",
        "garbage": bytes(range(255, 0, -1)),
        "a bare list": b"[1, 2]",
        "null": b"null",
        "no schema": json.dumps({k: v for k, v in document.items() if k != "schema"}).encode(),
        "another kind": json.dumps(document | {"schema": "kdaprof.analysis/1"}).encode(),
        "newer": json.dumps(document | {"schema": document["schema"].replace("/1", "/99")}).encode(),
        "a field gone": json.dumps({k: v for k, v in document.items() if k != "run"}).encode(),
        "a field of the wrong type": json.dumps(document | {"run": {"a": 1}}).encode(),
        "not UTF-8": b'{"schema": "\xff\xfe"}',
    }
    path.write_bytes(changed[how])


DAMAGE = {
    "truncated": "not valid JSON",
    "empty": "not valid JSON",
    "garbage": "not valid JSON",
    "a bare list": "expected 'kdaprof.",
    "null": "expected 'kdaprof.",
    "no schema": "expected 'kdaprof.",
    "another kind": "expected 'kdaprof.",
    "newer": "upgrade kdaprof",
    "a field gone": "does not hold kdaprof.",
    "a field of the wrong type": "does not hold kdaprof.",
    "not UTF-8": "not valid JSON",
}


@pytest.mark.parametrize("name", ["run.json", "facts.json", "findings.json"])
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_document_is_named_with_reason_and_way_out(written: Path, name: str, how: str) -> None:
    damage(written / name, how)
    read = store.read_run if name == "run.json" else store.read_results
    with pytest.raises(BadFileError) as caught:
        read(written)
    text = str(caught.value)
    assert text.startswith(f"{written / name}: ")
    assert DAMAGE[how] in text
    assert "\n" not in text
    assert caught.value.exit_code is Exit.ERROR


@pytest.mark.parametrize("at", range(0, 400, 37))
def test_run_json_truncated_at_any_byte_is_one_line(written: Path, at: int) -> None:
    path = written / "run.json"
    path.write_bytes(path.read_bytes()[:at])
    with pytest.raises(BadFileError, match=r"run\.json: "):
        store.read_run(written)


def test_an_older_schema_without_migration_says_so(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codec.VERSIONS, "run-record", 2)
    with pytest.raises(BadFileError, match=r"kdaprof\.run-record/1 is too old and no migration exists; measure again"):
        store.read_run(written)


def test_an_older_schema_is_lifted_by_its_migration(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codec.VERSIONS, "run-record", 2)
    monkeypatch.setitem(codec.MIGRATIONS, "run-record", {1: lambda old: old | {"notes": ["lifted"]}})
    assert store.read_run(written).record.notes == ("lifted",)


@pytest.mark.parametrize("missing", ["the directory", "run.json"])
def test_absent_run(tmp_path: Path, missing: str) -> None:
    path = tmp_path / "none"
    if missing == "run.json":
        path.mkdir()
    with pytest.raises(BadFileError, match="none"):
        store.read_run(path)


@pytest.mark.parametrize("how", ["truncated", "garbage", "empty"])
def test_a_damaged_part_is_named(written: Path, how: str) -> None:
    part = sorted((written / "samples.parquet").iterdir())[0]
    raw = part.read_bytes()
    part.write_bytes({"truncated": raw[: len(raw) // 2], "garbage": b"x" * 99, "empty": b""}[how])
    with pytest.raises(BadFileError) as caught:
        store.read_run(written)
    assert str(caught.value).startswith(f"{part}: not a readable Parquet file")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({}, "no kdaprof schema"),
        ({"kdaprof.schema": "kdaprof.timeline", "kdaprof.version": "1"}, "expected 'kdaprof.samples'"),
        ({"kdaprof.schema": "kdaprof.samples", "kdaprof.version": "2"}, "upgrade kdaprof"),
        ({"kdaprof.schema": "kdaprof.samples", "kdaprof.version": "1"}, "columns missing: repeat"),
    ],
)
def test_a_foreign_part_is_refused(tmp_path: Path, metadata: dict[str, str], says: str) -> None:
    path = tmp_path / "part.parquet"
    pq.write_table(pa.table({"cell": ["a"]}).replace_schema_metadata(metadata), path)
    with pytest.raises(BadFileError, match=r"part\.parquet: ") as caught:
        read_samples(path)
    assert says in str(caught.value)


def test_samples_keep_none_and_64_bits(tmp_path: Path) -> None:
    rows = (
        Sample(cell="c", repeat="unprofiled", round=-1, index=0, t_ns=2**62, wall_ns=None, load1=None),
        Sample(cell="c", repeat="alloc", round=0, index=1, t_ns=1, calls=50, peak_bytes=2**41, allocs=0),
    )
    write_samples(tmp_path / "p.parquet", rows)
    assert read_samples(tmp_path / "p.parquet") == rows
    write_samples(tmp_path / "p.parquet", ())
    assert read_samples(tmp_path / "p.parquet") == ()


def test_a_cell_cut_off_while_measured_is_failed_and_keeps_its_samples(written: Path) -> None:
    record, _ = paper_runs.h200_run()
    skipped = tuple(replace(cell, status="skipped") for cell in record.cells)
    store.RunWriter(written).put_record(replace(record, cells=skipped, complete=False))
    stored = store.read_run(written)
    assert [cell.status for cell in stored.record.cells[:3]] == ["failed", "failed", "skipped"]
    error = stored.record.cells[0].error
    assert error is not None
    assert error.type == "InterruptedRunError"
    assert len(stored.samples[record.cells[0].id]) == 4


KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
sys.path[:0] = sys.argv[2:]
import paper_runs
from test_run_store import samples
from kdaprof.runs import atomic, store
record, _ = paper_runs.h200_run()
cells = [replace(cell, status="skipped") for cell in record.cells]
writer = store.open_target(Path(sys.argv[1]))
writer.put_record(replace(record, cells=tuple(cells), complete=False))
for i, cell in enumerate(record.cells):
    if i == 3:
        # Die inside the fourth cell's own write: its temporary file is filled, nothing is in place.
        atomic.os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    writer.put_samples(cell.key, samples(cell.id))
    cells[i] = cell
    writer.put_record(replace(record, cells=tuple(cells), complete=False))
"""


def test_a_kill_in_the_fourth_cell_leaves_three_readable_ones(tmp_path: Path) -> None:
    here = Path(__file__).resolve().parent
    places = [str(here), str(here.parent / "report")]
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "run"), *places], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    stored = store.read_run(tmp_path / "run")
    assert [cell.status for cell in stored.record.cells] == ["ok"] * 3 + ["skipped"] * 9
    assert not stored.record.complete
    assert list(stored.samples) == sorted(cell.id for cell in stored.record.cells[:3])
    assert all(len(rows) == 4 for rows in stored.samples.values())


def test_target_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(UsageError, match="not a directory"):
        store.open_target(tmp_path / "f")


def test_target_that_is_not_empty_needs_force(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("x")
    with pytest.raises(UsageError, match="--force"):
        store.open_target(tmp_path)
    assert store.open_target(tmp_path, force=True).path == tmp_path
    assert (tmp_path / "old.txt").read_text() == "x"


def test_force_takes_away_an_earlier_run_and_nothing_else(written: Path) -> None:
    (written / "notes.txt").write_text("mine")
    (written / "timeline-a-profiled-cuda.parquet").write_bytes(b"x")
    store.open_target(written, force=True)
    assert [path.name for path in written.rglob("*") if path.is_file()] == ["notes.txt"]


def test_force_takes_away_what_an_older_watch_sweep_or_stacks_would_lend_to_the_new_run(written: Path) -> None:
    watch = ("gpu-util.json", "gpu_util.csv", "gpu_util.svg", "gpu_util.parquet")
    for name in (*watch, "sweep.json", "sweep.md", "sweep.svg"):
        (written / name).write_text("older")
    for name in ("stacks.json", "stacks.svg", "stacks_holds.parquet", "report.md", "mine.txt", ".stacks.json.x.tmp"):
        file = written / "stacks-fused" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("older")
    watching = written / ".gpu_util.parquet.parts"
    watching.mkdir()
    for name in ("gpu-util.json", "part-000001.parquet"):
        (watching / name).write_text("older")
    store.open_target(written, force=True)
    left = {str(path.relative_to(written)) for path in written.rglob("*") if path.is_file()}
    # The part may be of a watch that goes on.
    assert left == {"stacks-fused/mine.txt", f"{watching.name}/part-000001.parquet"}
    with pytest.raises(BadFileError):
        read_watch(written)


def test_a_folder_that_is_only_checked_keeps_the_run_that_is_there(written: Path) -> None:
    before = sorted(written.rglob("*"))
    store.check_target(written, force=True)
    assert sorted(written.rglob("*")) == before


@pytest.mark.parametrize("parent", ["/proc", "/dev/full", "/dev/null"])
def test_target_that_cannot_be_written(parent: str) -> None:
    with pytest.raises((TargetError, UsageError)) as caught:
        store.open_target(Path(parent) / "run")
    assert str(caught.value).startswith(f"--out {parent}/run: ")
    assert "choose another" in str(caught.value)


@pytest.mark.parametrize("code", [errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_target_that_takes_no_byte_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The folder is there and the disk has room: only a trial write can tell."""

    def refused(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    (tmp_path / store.RUN_FILE).write_text("older")
    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(TargetError, match=rf"cannot write there \({os.strerror(code)}\)"):
        store.open_target(tmp_path, force=True)
    assert [path.name for path in tmp_path.iterdir()] == [store.RUN_FILE]


def test_target_on_a_nearly_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Room:
        f_bavail, f_frsize = 1000, 4096

    monkeypatch.setattr(store.os, "statvfs", lambda _: Room())
    with pytest.raises(TargetError, match=r"3 MiB free, a run needs 64"):
        store.open_target(tmp_path / "run")


def test_run_ids_are_ordered_by_time_readable_and_apart() -> None:
    moment = datetime(2026, 12, 2, 1, 55, tzinfo=UTC)
    ids = {new_run_id("KDA fused,tensor", moment) for _ in range(20)}
    assert len(ids) > 15
    assert all(name.startswith("20261202T015500Z-kda-fused-tensor-") for name in ids)


def test_results_of_an_unknown_cell(written: Path) -> None:
    results = store.read_results(written)
    assert results.cell(results.cells[0].id) is results.cells[0]
    with pytest.raises(KeyError):
        results.cell("kda/none")


def test_nan_is_null_in_every_document(tmp_path: Path) -> None:
    codec.write_document(
        tmp_path / "d.json", "facts", {"a": float("nan"), "b": [float("inf"), 1.5], "c": {"d": -1e999}}
    )
    text = (tmp_path / "d.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "schema": "kdaprof.facts/1",
        "a": None,
        "b": [None, 1.5],
        "c": {"d": None},
    }


def test_errors_are_of_the_one_root() -> None:
    assert issubclass(TargetError, KdaprofError)
    assert TargetError("x").exit_code is Exit.ERROR


def test_document_that_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()
    with pytest.raises(BadFileError, match="cannot read"):
        store.read_run(tmp_path)

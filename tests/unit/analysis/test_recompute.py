from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import scenes
from test_derive import whole_run

from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import differences, load_raw, recompute
from kdaprof.analysis.view import RawRun
from kdaprof.errors import BadFileError
from kdaprof.runs.codec import dumps, to_json
from kdaprof.runs.facts import Reason
from kdaprof.runs.results import Finding, RunResults
from kdaprof.runs.store import RunWriter, read_results
from kdaprof.runs.util import UTIL_FILE, write_util
from kdaprof.timeline import parquet


def store(path: Path, raw: RawRun) -> RunResults:
    """Write the run as the probe does, results included."""
    writer = RunWriter(path)
    writer.put_record(raw.record)
    for cell in raw.record.cells:
        if raw.samples[cell.id]:
            writer.put_samples(cell.key, raw.samples[cell.id])
        for profiled in cell.observed.profiled if cell.observed else ():
            parquet.write(path / profiled.timeline, raw.timelines[cell.id, profiled.kind])
    if raw.util:
        write_util(path / UTIL_FILE, raw.util)
    results = derive(raw)
    writer.put_results(results)
    return results


def test_a_stored_run_recomputes_to_the_same_bytes(tmp_path: Path) -> None:
    raw = whole_run()
    results = store(tmp_path, raw)
    again = recompute(tmp_path)
    assert dumps(to_json(again)) == dumps(to_json(results))
    assert differences(read_results(tmp_path), again) == ()


def test_load_raw_brings_every_part_back(tmp_path: Path) -> None:
    raw = whole_run()
    store(tmp_path, raw)
    loaded = load_raw(tmp_path)
    assert loaded.record == raw.record
    assert loaded.samples == {cell: samples for cell, samples in raw.samples.items() if samples}
    assert loaded.util == raw.util
    assert set(loaded.timelines) == set(raw.timelines)
    for place, line in raw.timelines.items():
        assert (loaded.timelines[place].start_ns == line.start_ns).all()


def test_a_missing_timeline_is_named(tmp_path: Path) -> None:
    store(tmp_path, scenes.raw(scenes.scene()))
    gone = next(tmp_path.glob("timeline-*profiled-full.parquet"))
    gone.unlink()
    with pytest.raises(BadFileError, match=gone.name):
        recompute(tmp_path)


def test_a_changed_sample_changes_the_figures_that_rest_on_it(tmp_path: Path) -> None:
    raw = scenes.raw(scenes.scene())
    results = store(tmp_path, raw)
    cell = raw.record.cells[0]
    slower = tuple(
        replace(s, wall_ns=(s.wall_ns or 0) + 7) if s.repeat == "unprofiled" else s for s in raw.samples[cell.id]
    )
    RunWriter(tmp_path).put_samples(cell.key, slower)
    found = differences(results, recompute(tmp_path))
    assert f"{cell.id}/wall_ns: 200000 stored, 200007 recomputed" in found
    assert any(line.startswith(f"{cell.id}/idle_ns: 72000") for line in found)
    assert not any("gpu_busy_ns" in line.split(":")[0] for line in found)


def changed(results: RunResults, name: str, **fields: object) -> RunResults:
    cell = results.cells[0]
    fact = replace(cell.facts[name], **fields)  # type: ignore[arg-type]
    return replace(results, cells=(replace(cell, facts=cell.facts | {name: fact}), *results.cells[1:]))


@pytest.fixture(scope="module")
def results() -> RunResults:
    return derive(scenes.raw(scenes.scene()))


def test_differences_name_value_interval_and_verdict_apart(results: RunResults) -> None:
    place = f"{results.cells[0].id}/host_bound"
    assert differences(results, results) == ()
    assert differences(results, changed(results, "host_bound", value=0.5))[0].startswith(f"{place}: 0.36")
    assert differences(results, changed(results, "host_bound", ci95=None))[0].startswith(f"{place}.ci95")
    lines = differences(results, changed(results, "host_bound", quotable=False, reasons=(Reason("Q02", "wide"),)))
    reasons = f"{place}.reasons"
    assert [line.split(":")[0] for line in lines] == [f"{place}.quotable", reasons, f"{reasons}, only recomputed"]


def test_rounding_in_the_last_digits_is_no_difference(results: RunResults) -> None:
    value = float(results.cells[0].facts["host_bound"].value or 0)
    assert differences(results, changed(results, "host_bound", value=value * (1 + 1e-12))) == ()
    assert differences(results, changed(results, "host_bound", value=value * (1 + 1e-6))) != ()
    assert differences(results, changed(results, "host_bound", value=value * (1 + 1e-6)), rel_tol=1e-3) == ()


def test_cells_findings_stages_and_evidence_are_compared_too(results: RunResults) -> None:
    cell = results.cells[0]
    assert differences(results, replace(results, cells=())) == (f"{cell.id}: only stored",)
    assert differences(replace(results, cells=()), results) == (f"{cell.id}: only recomputed",)
    other = replace(results, run="another")
    assert differences(results, other) == (f"run: {results.run} stored, another recomputed",)
    more = replace(results, findings=(*results.findings, Finding(id="x", severity="info", cell=None, text="new")))
    count, entry = differences(results, more)
    assert count == f"findings: {len(results.findings)} stored, {len(more.findings)} recomputed"
    assert entry.startswith("findings, only recomputed: {'id': 'x'")
    assert "only stored" in differences(more, results)[1]
    fewer = replace(results, cells=(replace(cell, stages=cell.stages[:1]),))
    assert differences(results, fewer)[0].startswith(f"{cell.id}/stages")
    doubted = replace(results, cells=(replace(cell, evidence=replace(cell.evidence, verdict="partial")),))
    assert differences(results, doubted)[0].startswith(f"{cell.id}/evidence.verdict: 'confirmed'")


def test_a_missing_figure_that_appears_is_a_difference(results: RunResults) -> None:
    lines = differences(results, changed(results, "cold_ns", value=5, missing=None, detail=None))
    assert lines[0] == f"{results.cells[0].id}/cold_ns: None stored, 5 recomputed"

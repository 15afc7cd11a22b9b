"""The HTML page: stands alone, the same for the same run, escaped, small, and honest about refusals."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import paper_runs
import pytest

from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.analysis.view import RawRun
from kdaprof.report.html.lanes import timeline_data
from kdaprof.report.html.page import LARGEST, MARK, render, render_several, script_text
from kdaprof.runs.facts import Reason
from kdaprof.runs.record import CellError
from kdaprof.runs.results import RunResults

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "analysis"))
import scenes
from test_step_attribution import step_run
from test_step_sections import COLD, KEY, MEMORY

STORED = Path(__file__).resolve().parents[3] / "reports" / "h200-kda"
EVIL = "<script>alert(1)</script>"


def paper() -> tuple[RawRun, RunResults]:
    record, results = paper_runs.h200_run()
    return RawRun(record=record, samples={}, timelines={}), results


@pytest.fixture(scope="module")
def stored() -> tuple[RawRun, RunResults]:
    raw = load_raw(STORED)
    return raw, derive(raw)


@pytest.fixture(scope="module")
def page(stored: tuple[RawRun, RunResults]) -> str:
    return render(*stored)


def own(page: str) -> str:
    """The page without plotly's script."""
    return re.sub(r"<script>/\*\*.*?</script>", "", page, flags=re.S)


def test_it_stands_alone_and_is_small(page: str) -> None:
    assert page.split("\n", 1)[0] == f"<!doctype html>{MARK}"
    assert len(page.encode()) <= LARGEST
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"'](?!data:)", own(page))
    assert "default-src 'none'" in page


def test_the_same_run_gives_the_same_bytes(stored: tuple[RawRun, RunResults], page: str) -> None:
    assert render(*stored) == page


def test_ids_are_unique_and_links_lead_somewhere(page: str) -> None:
    body = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    ids = re.findall(r'\sid="([^"]+)"', body)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', body)) <= set(ids)
    assert set(re.findall(r'data-fact="([^"]+)"', body)) <= set(ids)


def test_every_section_that_the_run_has(page: str) -> None:
    order = re.findall(r'<section id="([\w-]+)"', page)
    wanted = ["verdict", "corrections", "conditions", "figures", "graph", "idle", "timeline", "samples", "utilisation"]
    assert order[: len(wanted)] == wanted
    assert {"allocator", "roofline", "evidence", "refused", "rules", "every", "environment"} <= set(order)
    assert "Nothing was retracted." in page
    assert all(f'id="rule-Q{n:02}"' in page for n in range(1, 17))


def test_an_interrupted_run_says_so_in_its_verdict_alone_and_beside_another() -> None:
    raw, results = paper()
    gone = CellError(type="NotMeasured", text="the run ended before this cell was measured")
    cells = (*raw.record.cells[:-1], replace(raw.record.cells[-1], status="skipped", error=gone))
    partial = replace(raw, record=replace(raw.record, complete=False, ended_unix_ns=None, cells=cells))
    for text in (render(partial, results), render_several([(raw, results), (partial, results)])):
        said = re.search(r'<li class="t-warn">\s*<h3>The run is partial</h3>.*?</li>', own(text), flags=re.S)
        assert said is not None
        assert "11 cells finished before it ended." in said[0]
        assert "skipped. the run ended before this cell was measured" in own(text)
    assert "The run is partial" not in own(render(raw, results))


def test_a_step_shows_its_phases_modes_and_levers() -> None:
    record, results = step_run()
    body = own(render(RawRun(record=record, samples={}, timelines={}), results))
    order = re.findall(r'<section id="([\w-]+)"', body)
    assert order.index("phases") < order.index("modes") < order.index("levers")
    table = body[body.index('id="phases-0"') : body.index('id="modes"')]
    assert re.findall(r"<th scope=row[^>]*>([^<]+)</th>", table)[::2][:4] == [
        "fwd",
        "· of it kda",
        "teacher",
        "· of it kda",
    ]
    assert "The phases add up to 100 % of the step." in table
    assert "Amdahl&#39;s limit, one at a time" in body


def test_a_step_shows_what_step_0_costs_and_what_it_does_to_the_pool() -> None:
    raw = scenes.raw(scenes.scene(cell_key=KEY, slow_steps=(COLD,), memory=MEMORY))
    body = own(render(raw, derive(raw)))
    cold = body[body.index('<section id="step-cold"') : body.index('<section id="step-memory"')]
    assert "step 0 in a fresh process with empty caches takes 4.00 s" in cold
    assert all(text in cold for text in ("Triton compiles", "7 segments, 67.1 MB", "999 ms", "kda_fwd"))
    memory = body[body.index('<section id="step-memory"') :]
    assert all(text in memory for text in ("315 MB", "10.5 MB", "kda/fused.py:12 in forward", "90.5 ms"))
    empty = replace(MEMORY, sites=(), missing="no history on this torch")
    raw = scenes.raw(scenes.scene(cell_key=KEY, memory=empty))
    assert "None: no history on this torch." in own(render(raw, derive(raw)))


def test_all_text_is_escaped() -> None:
    raw, results = paper()
    record = replace(raw.record, tool=EVIL, notes=(EVIL,), run=f"{EVIL}-1")
    finding = replace(results.findings[0], text=EVIL, next=EVIL, evidence={"note": EVIL})
    page = render(replace(raw, record=record), replace(results, findings=(finding,)))
    assert EVIL not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_json_cannot_end_its_script() -> None:
    text = script_text(json.dumps({"name": "</script><b>&"}))
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"name": "</script><b>&"}


def test_a_refused_figure_is_struck_with_a_link_to_its_rule() -> None:
    page = render(*paper())
    struck = re.search(r'data-rules="Q02">.*?<s>([^<]+)</s>.*?href="#rule-Q02"', page, re.S)
    assert struck is not None


def test_retracted_figures_stand_under_corrections() -> None:
    raw, results = paper()
    cell = paper_runs.refused(results.cells[6], Reason("retracted", "read at step 0"), "wall_ns")
    page = render(raw, replace(results, cells=(*results.cells[:6], cell, *results.cells[7:])))
    corrections = page.split('<section id="corrections"', 1)[1].split("</section>", 1)[0]
    assert "read at step 0" in corrections
    assert "Nothing was retracted" not in corrections
    assert 'id="rule-retracted"' in page


def test_a_run_without_a_gpu_has_a_page() -> None:
    record, results = paper_runs.laptop_run()
    page = render(RawRun(record=record, samples={}, timelines={}), results)
    assert 'id="roofline"' not in page
    assert "no working C++ compiler" in page


def test_several_runs_side_by_side(stored: tuple[RawRun, RunResults]) -> None:
    raw, results = stored
    other = replace(raw, record=replace(raw.record, run="another", tool="kdaprof 9.9"))
    page = own(render_several([stored, (other, results)]))
    assert 'id="different"' in page
    assert "kdaprof 9.9" in page
    assert 'id="wall_ns-table"' in page
    assert "1.000 [" in page


def test_the_lanes_of_a_timeline_add_up(stored: tuple[RawRun, RunResults]) -> None:
    """Busy and idle of the drawn repeat are its wall, to the nanosecond, where nothing was left out."""
    raw, _ = stored
    cell = next(c for c in raw.record.cells if c.key.path == "fused" and c.key.phase == "fwd" and c.key.mode == "eager")
    data = timeline_data(raw.timelines[cell.id, "profiled-full"])
    assert data is not None
    device = [lane for lane in data["lanes"] if lane["kind"] == "device"]
    idle = sum(sum(lane["dur"]) for lane in data["lanes"] if lane["kind"] == "idle")
    assert len(device) == 1
    assert sum(device[0]["dur"]) + idle == data["wall"]


def test_a_long_timeline_is_thinned_and_says_so(stored: tuple[RawRun, RunResults]) -> None:
    raw, _ = stored
    cell = next(c for c in raw.record.cells if c.key.path == "tensor" and c.key.mode == "eager")
    data = timeline_data(raw.timelines[cell.id, "profiled-full"], most=40)
    assert data is not None
    assert data["left_out"] > 0
    assert all(len(lane["dur"]) <= 40 for lane in data["lanes"] if lane["kind"] != "idle")


def test_a_scene_with_samples_has_its_cold_part_shaded() -> None:
    raw = scenes.raw(scenes.scene(warm=(5_000_000_000, 40_000_000, 200_000, 200_000, 200_000)))
    page = own(render(raw, derive(raw)))
    figure = re.search(r'data-plot="samples-chart">(.*?)</script>', page, re.S)
    assert figure is not None
    shapes = json.loads(figure.group(1))["layout"]["shapes"]
    assert [shape["type"] for shape in shapes].count("rect") == 1
    changes = [shape["x0"] for shape in shapes if shape["type"] == "line"]
    assert changes == [0.5, 1.5]  # two cold calls, each of a level of its own


def test_a_cell_without_a_wall_has_no_panel_and_every_panel_has_marks_on_its_axis() -> None:
    plain = scenes.raw(scenes.scene(wall_ns=175_000, warm=(175_000,) * 5))
    calls = replace(plain.record.cells[0], key=plain.record.cells[0].key.sibling(phase="fwd.kda"))
    both = replace(plain, record=replace(plain.record, cells=(*plain.record.cells, calls)))
    drawn = [
        re.search(r'data-plot="samples-chart">(.*?)</script>', own(render(r, derive(r))), re.S) for r in (plain, both)
    ]
    one, two = (json.loads(found.group(1))["layout"] for found in drawn if found is not None)
    assert [note["text"] for note in two["annotations"]] == [note["text"] for note in one["annotations"]]
    walls = [s.wall_ns / 1e9 for s in plain.samples[plain.record.cells[0].id] if s.repeat == "unprofiled" and s.wall_ns]
    marks = [mark for mark in one["yaxis"]["tickvals"] if min(walls) <= mark <= max(walls)]
    assert len(marks) == 2, walls  # decades, or 1, 2 and 5, would leave the axis bare

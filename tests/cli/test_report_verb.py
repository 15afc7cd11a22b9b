"""`kdaprof report` on stored runs: recomputed, checked, printed in four forms."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import scenes

from kdaprof.analysis.derive import derive
from kdaprof.analysis.view import RawRun
from kdaprof.cli.main import main
from kdaprof.runs.codec import dumps
from kdaprof.runs.document import run_document, run_schema
from kdaprof.runs.store import RunWriter
from kdaprof.runs.util import UTIL_FILE, write_util
from kdaprof.timeline import parquet


def store(path: Path, raw: RawRun) -> Path:
    """Lay a run out on disk as a probe does."""
    writer = RunWriter(path)
    writer.put_record(raw.record)
    for cell in raw.record.cells:
        writer.put_samples(cell.key, raw.samples[cell.id])
        for profiled in cell.observed.profiled if cell.observed else ():
            parquet.write(path / profiled.timeline, raw.timelines[cell.id, profiled.kind])
    if raw.util:
        write_util(path / UTIL_FILE, raw.util)
    writer.put_results(derive(raw))
    return path


def one_run(**changes: Any) -> RawRun:
    graph = scenes.scene(mode="graph", wall_ns=135_000, profiled_wall_ns=140_000)
    place = replace(scenes.environment(), cwd="/home/someone/kda")
    return scenes.raw(scenes.scene(util=[0.6] * 30), graph, environment=place, **changes)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(tmp_path_factory.mktemp("runs") / "one", one_run())


@pytest.fixture
def run(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "one"))


def strict(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text, parse_constant=pytest.fail)
    jsonschema.Draft202012Validator(run_schema()).validate(document)
    return document


def test_tables_by_default(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "fused  path " in out
    assert "\nVerdict\n" in out
    assert "\x1b" not in out


def test_json_is_alone_valid_and_the_document_of_the_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--json"]) == 0
    out, err = capsys.readouterr()
    document = strict(out)
    raw = one_run()
    assert out.encode() == dumps(run_document(raw.record, derive(raw), run))
    assert document["path"] == str(run)
    assert err == ""


def test_an_anonymous_run_stays_anonymous(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = one_run()
    nameless = replace(raw.record, environment=replace(raw.record.environment, cwd=None))
    path = store(tmp_path / "secret", replace(raw, record=nameless))
    assert main(["report", str(path), "--json"]) == 0
    out = capsys.readouterr().out
    assert "path" not in strict(out)
    assert "secret" not in out


def test_markdown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--md"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# kda: fused on NVIDIA H200\n")
    assert "\n## Verdict\n" in out


def test_several_runs(run: Path, kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), str(kept), "--json"]) == 0
    document = strict(capsys.readouterr().out)
    assert document["schema"] == "kdaprof.runs/1"
    assert [one["path"] for one in document["runs"]] == [str(run), str(kept)]
    assert main(["report", str(run), str(kept), "--md"]) == 0
    assert capsys.readouterr().out.count("\n## Verdict\n") == 2
    assert main(["report", str(run), str(kept)]) == 0
    assert capsys.readouterr().out.count("\nVerdict\n") == 2


def test_ranks_of_one_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (1, 0):
        shutil.copytree(run, tmp_path / "ddp" / f"rank{rank:05}")
    assert main(["report", str(tmp_path / "ddp"), "--json"]) == 0
    document = strict(capsys.readouterr().out)
    assert [Path(one["path"]).name for one in document["runs"]] == ["rank00000", "rank00001"]


def test_nothing_is_written(run: Path) -> None:
    def state() -> dict[str, tuple[int, bytes]]:
        return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(run.rglob("*")) if p.is_file()}

    before = state()
    for form in ([], ["--md"], ["--json"], ["--check"]):
        assert main(["report", str(run), *form]) == 0
    assert state() == before


def test_the_stored_figures_are_not_trusted(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is shown follows from the samples, even where facts.json says otherwise or is gone."""
    assert main(["report", str(run), "--md"]) == 0
    right = capsys.readouterr().out
    (run / "facts.json").unlink()
    assert main(["report", str(run), "--md"]) == 0
    assert capsys.readouterr().out == right


def test_check_agrees(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--check"]) == 0
    out, err = capsys.readouterr()
    assert f"{run}: " in out
    assert "figures and" in out
    assert err == ""


def edit_fact(run: Path, fact: str, **changes: Any) -> str:
    facts = json.loads((run / "facts.json").read_text())
    facts["cells"][0]["facts"][fact].update(changes)
    (run / "facts.json").write_text(json.dumps(facts))
    return f"{facts['cells'][0]['id']}/{fact}"


@pytest.mark.parametrize(
    ("fact", "changes"), [("wall_ns", {"value": 1}), ("host_bound", {"quotable": False}), ("launches", {"n": 99})]
)
def test_check_names_the_figure_that_differs(
    run: Path, capsys: pytest.CaptureFixture[str], fact: str, changes: dict[str, Any]
) -> None:
    name = edit_fact(run, fact, **changes)
    assert main(["report", str(run), "--check"]) == 3
    out = capsys.readouterr().out
    assert name in out
    assert all(line.startswith(f"{run}: ") for line in out.splitlines())


def test_check_notices_a_sample_that_was_changed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = one_run()
    cell = raw.record.cells[0]
    slower = [replace(s, wall_ns=s.wall_ns * 2 if s.wall_ns else None) for s in raw.samples[cell.id]]
    RunWriter(run).put_samples(cell.key, slower)
    assert main(["report", str(run), "--check"]) == 3
    assert f"{cell.id}/wall_ns: " in capsys.readouterr().out


def test_check_of_several_goes_on_after_a_difference(run: Path, kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit_fact(run, "wall_ns", value=1)
    assert main(["report", str(run), str(kept), "--check"]) == 3
    assert f"{kept}: " in capsys.readouterr().out


def test_check_beside_json_leaves_stdout_to_the_document(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit_fact(run, "wall_ns", value=1)
    assert main(["report", str(run), "--check", "--json"]) == 3
    out, err = capsys.readouterr()
    strict(out)
    assert "wall_ns" in err


def test_many_differences_are_cut(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads((run / "facts.json").read_text())
    for cell in facts["cells"]:
        for fact in cell["facts"].values():
            fact["n"] += 1
    (run / "facts.json").write_text(json.dumps(facts))
    assert main(["report", str(run), "--check"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 21
    assert lines[-1].endswith(" more differences")


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        ([], 2, "required: RUN"),
        (["x", "--md", "--json"], 2, "not allowed with"),
        (["x", "--html", "--md"], 2, "not allowed with"),
        (["x", "--out", "page.html"], 2, "--out and --open belong to --html"),
        (["x", "--tables", "all"], 2, "invalid choice: 'all'"),
        (["no-such-run"], 1, "no-such-run: no such run directory"),
    ],
)
def test_bad_usage_is_one_line(
    capsys: pytest.CaptureFixture[str], argv: list[str], code: int, says: str, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *argv]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["run.json", "samples", "timeline", "gpu_util.parquet"])
@pytest.mark.parametrize("how", ["truncated", "garbage"])
def test_a_damaged_run_is_named_and_prints_nothing_on_stdout(
    run: Path, capsys: pytest.CaptureFixture[str], name: str, how: str
) -> None:
    found = {
        "samples": next((run / "samples.parquet").iterdir()),
        "timeline": next(run.glob("timeline-*.parquet")),
    }.get(name, run / name)
    raw = found.read_bytes()
    found.write_bytes(raw[: len(raw) // 3] if how == "truncated" else b"\x00garbage" * 20)
    assert main(["report", str(run), "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"kdaprof: {found}: ")
    assert err.count("\n") == 1


def test_a_file_instead_of_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run / "run.json")]) == 1
    assert "is a file; a run is a directory" in capsys.readouterr().err


def test_check_reads_the_page_too_and_write_makes_it_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit_fact(run, "wall_ns", value=1)
    assert main(["report", str(run), "--write"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["report", str(run), "--check"]) == 0
    page = run / "report.md"
    page.write_text(page.read_text().replace("0.128", "0.028"))
    capsys.readouterr()
    assert main(["report", str(run), "--check"]) == 3
    assert "report.md line " in capsys.readouterr().out
    assert main(["report", str(run), "--write", "--md"]) == 0
    assert page.read_text() == capsys.readouterr().out


def test_check_without_stored_figures(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a killed run lies there: nothing to compare with, until somebody has the figures stored."""
    for name in ("facts.json", "findings.json"):
        (run / name).unlink()
    assert main(["report", str(run), "--check"]) == 1
    told = capsys.readouterr().err
    assert "has no stored figures yet (no facts.json and no findings.json)" in told
    assert f"`kdaprof report {run} --write`" in told
    assert told.count("\n") == 1
    assert main(["report", str(run), "--write"]) == 0
    assert main(["report", str(run), "--check"]) == 0


def test_check_with_one_of_both_files_of_figures(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "findings.json").unlink()
    assert main(["report", str(run), "--check"]) == 1
    assert "(no findings.json)" in capsys.readouterr().err
    (run / "facts.json").write_text("{")
    assert main(["report", str(run), "--check"]) == 1
    assert "(no findings.json)" in capsys.readouterr().err
    (run / "findings.json").write_text("{")
    assert main(["report", str(run), "--check"]) == 1
    assert "facts.json: not valid JSON" in capsys.readouterr().err


def test_a_process_of_its_own_without_torch(run: Path) -> None:
    """The whole verb on a machine that has no torch: importing it there is an error."""
    program = (
        "import sys\nclass Absent:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in {'torch', 'triton', 'pynvml', 'nvtx'}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from kdaprof.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    )
    for form in ("--md", "--json", "--check"):
        done = subprocess.run(
            [sys.executable, "-c", program, "report", str(run), form],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
        )
        assert (done.returncode, done.stderr) == (0, "")
        if form == "--json":
            strict(done.stdout)

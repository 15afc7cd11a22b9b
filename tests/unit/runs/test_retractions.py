"""Which figures fall with a retraction: by id, by sources, across runs; entries that are never edited."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdaprof.errors import BadFileError, UsageError
from kdaprof.runs.place import find_store
from kdaprof.runs.retractions import Retraction, add_retraction, fallen, read_retractions

DAY_NS = 1_790_683_200_000_000_000  # 2026-09-29 12:00 UTC


def entry(target: str, why: str = "step 0", at: int = DAY_NS, by: str | None = None) -> Retraction:
    return Retraction(target=target, why=why, retracted_unix_ns=at, superseded_by=by)


SOURCES: dict[str, tuple[str, ...]] = {
    "a/kda/wall_ns": (),
    "a/kda/busy_ns": ("a/ceilings/copy",),
    "a/kda/idle_ns": ("a/kda/wall_ns", "a/kda/busy_ns"),
    "a/kda/host_bound": ("a/kda/idle_ns",),
    "b/kda/saved": ("c/kda/wall_ns", "a/kda/host_bound"),
    "c/kda/wall_ns": (),
    "ab/kda/wall_ns": (),
}


@pytest.mark.parametrize(
    ("target", "falls"),
    [
        ("a/kda/wall_ns", {"a/kda/wall_ns", "a/kda/idle_ns", "a/kda/host_bound", "b/kda/saved"}),
        ("a/kda/busy_ns", {"a/kda/busy_ns", "a/kda/idle_ns", "a/kda/host_bound", "b/kda/saved"}),
        ("a/kda", {place for place in SOURCES if place.startswith("a/")} | {"b/kda/saved"}),
        ("a", {place for place in SOURCES if place.startswith("a/")} | {"b/kda/saved"}),
        ("a/ceilings/copy", {"a/kda/busy_ns", "a/kda/idle_ns", "a/kda/host_bound", "b/kda/saved"}),
        ("b", {"b/kda/saved"}),
        ("a/kda/wall", set()),
    ],
)
def test_everything_that_leads_there_falls_and_nothing_else(target: str, falls: set[str]) -> None:
    assert set(fallen([entry(target)], SOURCES)) == falls


def test_the_reason_names_the_figure_between_and_keeps_the_root_s_words() -> None:
    found = fallen([entry("a/kda/wall_ns", by="z")], SOURCES)
    root = "step 0; withdrawn 2026-09-29, superseded by z"
    assert {place: fall.reason.text for place, fall in found.items()} == {
        "a/kda/wall_ns": root,
        "a/kda/idle_ns": f"through wall_ns: {root}",
        "a/kda/host_bound": f"through idle_ns: {root}",
        "b/kda/saved": f"through a/kda/host_bound: {root}",
    }
    assert {fall.reason.rule for fall in found.values()} == {"retracted"}


def test_a_cycle_of_sources_ends() -> None:
    ring = {"r/a": ("r/b",), "r/b": ("r/c",), "r/c": ("r/a", "r/d"), "r/d": ()}
    assert set(fallen([entry("r/d")], ring)) >= {"r/d", "r/c"}
    assert fallen([entry("other")], ring) == {}


def test_entries_are_files_of_their_own_oldest_first(tmp_path: Path) -> None:
    assert read_retractions(tmp_path) == ()
    entries = [entry("b", at=DAY_NS + 5), entry("a", at=DAY_NS), entry("c", at=DAY_NS + 5)]
    paths = {add_retraction(tmp_path, one) for one in entries}
    assert len(paths) == 3
    assert read_retractions(tmp_path)[0].target == "a"
    assert set(read_retractions(tmp_path)) == set(entries)


def test_a_newer_entry_is_refused_not_skipped(tmp_path: Path) -> None:
    path = add_retraction(tmp_path, entry("a"))
    path.write_text(path.read_text().replace("kdaprof.retraction/1", "kdaprof.retraction/2"))
    with pytest.raises(BadFileError, match="upgrade kdaprof"):
        read_retractions(tmp_path)


def test_where_the_store_lies(tmp_path: Path) -> None:
    inner = tmp_path / "project" / "src"
    inner.mkdir(parents=True)
    assert find_store(None, inner) == inner / ".kdaprof"
    (tmp_path / "project" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert find_store(None, inner) == tmp_path / "project" / ".kdaprof"
    (tmp_path / "project" / "pyproject.toml").write_text("[tool.kdaprof]\nstore = 'numbers/kda'\n")
    assert find_store(None, inner) == tmp_path / "project" / "numbers" / "kda"
    assert find_store(tmp_path / "given", inner) == tmp_path / "given"


@pytest.mark.parametrize("text", ["[tool.kdaprof]\nstore = 3\n", "[tool.kdaprof]\nstore = ''\n", "[tool"])
def test_a_project_that_names_no_folder(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=r"pyproject\.toml: .*store"):
        find_store(None, tmp_path)

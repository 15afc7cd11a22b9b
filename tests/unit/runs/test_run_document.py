"""The printed document: it obeys the shipped JSON Schema, and the schema is strict."""

from __future__ import annotations

import copy
import functools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import paper_runs
import pytest

from kdaprof.runs.codec import dumps
from kdaprof.runs.document import run_document, run_schema, runs_document
from kdaprof.runs.facts import facts_of
from kdaprof.runs.results import RunResults


@functools.cache
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(run_schema())


def strict(document: dict[str, Any]) -> dict[str, Any]:
    """Through bytes and a parser that refuses NaN and Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"not JSON: {word}")

    parsed: dict[str, Any] = json.loads(dumps(document), parse_constant=refuse)
    return parsed


def valid(document: dict[str, Any]) -> dict[str, Any]:
    parsed = strict(document)
    validator().validate(parsed)
    return parsed


@pytest.mark.parametrize("make", [paper_runs.h200_run, paper_runs.laptop_run])
def test_document_obeys_the_schema(make: Any) -> None:
    record, results = make()
    document = valid(run_document(record, results, Path("runs/one")))
    assert document["schema"] == "kdaprof.run/1"
    assert document["run"] == paper_runs.RUN
    for cell in document["cells"]:
        assert list(cell["facts"]) == list(facts_of(cell["mode"]))
        assert cell["id"].split("/")[1] == cell["path"]


def test_shape_is_an_object_in_the_order_of_the_flag() -> None:
    record, results = paper_runs.h200_run()
    shape = run_document(record, results, None)["cells"][0]["shape"]
    assert list(shape.items()) == [("B", 10), ("T", 512), ("H", 12), ("K", 64), ("V", 64), ("C", 16)]


def test_path_is_left_out_when_anonymous() -> None:
    record, results = paper_runs.h200_run()
    assert "path" not in valid(run_document(record, results, None))
    assert valid(run_document(record, results, Path("x")))["path"] == "x"


def test_several_runs() -> None:
    one = run_document(*paper_runs.h200_run(), None)
    two = run_document(*paper_runs.laptop_run(), None)
    assert [run["run"] for run in valid(runs_document([one, two]))["runs"]] == [paper_runs.RUN, paper_runs.RUN]


def test_a_cell_that_was_never_reached_has_all_its_facts_missing_with_the_reason() -> None:
    record, results = paper_runs.laptop_run()
    cell = valid(run_document(record, RunResults(run=results.run), None))["cells"][2]
    assert cell["status"] == "failed"
    assert cell["error"] == {"type": "InvalidCxxCompiler", "text": "no working C++ compiler: install g++"}
    assert {fact["missing"] for fact in cell["facts"].values()} == {"failed"}
    assert {fact["detail"] for fact in cell["facts"].values()} == {"no working C++ compiler: install g++"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_becomes_a_missing_one(value: float) -> None:
    record, results = paper_runs.h200_run()
    first = results.cells[0]
    broken = replace(first, facts=first.facts | {"error_l2": replace(first.facts["error_l2"], value=value)})
    document = valid(run_document(record, replace(results, cells=(broken, *results.cells[1:])), None))
    fact = document["cells"][0]["facts"]["error_l2"]
    assert (fact["value"], fact["missing"]) == (None, "failed")
    assert "not finite" in fact["detail"]


def broken_documents() -> dict[str, Any]:
    """Name → a change that must make the document invalid."""

    def cell(document: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = document["cells"][0]
        return found

    changes: dict[str, Any] = {
        f"no {name}": lambda d, name=name: cell(d)["facts"].pop(name) for name in facts_of("eager")
    }
    changes |= {f"graph cell without {n}": lambda d, n=n: d["cells"][1]["facts"].pop(n) for n in facts_of("graph")}
    for part in ("id", "shape", "status", "error", "evidence", "stages"):
        changes[f"cell without {part}"] = lambda d, part=part: cell(d).pop(part)
    for part in ("schema", "tool", "command", "complete", "run", "environment", "conditions", "ceilings", "findings"):
        changes[f"document without {part}"] = lambda d, part=part: d.pop(part)
    for part in ("value", "unit", "n", "ci95", "provenance", "sources", "quotable", "reasons", "missing", "detail"):
        changes[f"figure without {part}"] = lambda d, part=part: cell(d)["facts"]["wall_ns"].pop(part)
    changes |= {
        "null without a reason": lambda d: cell(d)["facts"]["launches"].update(value=None),
        "value and missing": lambda d: cell(d)["facts"]["launches"].update(missing="failed"),
        "refused without a rule": lambda d: cell(d)["facts"]["launches"].update(quotable=False),
        "missing and quotable": lambda d: cell(d)["facts"]["cold_ns"].update(quotable=True),
        "wrong unit": lambda d: cell(d)["facts"]["wall_ns"].update(unit="B"),
        "unknown rule": lambda d: cell(d)["facts"]["wall_ns"]["reasons"].append({"rule": "Q17", "text": "x"}),
        "unknown fact": lambda d: cell(d)["facts"].update(speed=cell(d)["facts"]["wall_ns"]),
        "newer schema": lambda d: d.update(schema="kdaprof.run/2"),
        "percent as a finding id": lambda d: d["findings"][0].update(id="Host Bound"),
        "failed cell without an error": lambda d: cell(d).update(status="failed"),
    }
    return changes


@pytest.mark.parametrize("change", broken_documents().values(), ids=broken_documents().keys())
def test_the_schema_refuses(change: Any) -> None:
    document = strict(run_document(*paper_runs.h200_run(), None))
    broken = copy.deepcopy(document)
    change(broken)
    assert validator().is_valid(document)
    assert not validator().is_valid(broken)


def test_the_schema_is_itself_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(run_schema())

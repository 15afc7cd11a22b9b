"""A figure looks the same in every document that holds one, and every shipped schema is itself valid."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

SCHEMAS = sorted(Path(str(resources.files("kdaprof.runs").joinpath("schemas"))).glob("*.json"))


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.stem)
def test_a_schema_is_valid(path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))


@pytest.mark.parametrize("name", ["history-1", "compare-1"])
def test_a_figure_is_that_of_a_run(name: str) -> None:
    of = {path.stem: json.loads(path.read_text())["$defs"]["fact"] for path in SCHEMAS if path.stem in {"run-1", name}}
    assert of[name] == of["run-1"]

"""The document that `--json` prints: one run with its figures, evidence and findings, as `kdaprof.run/1`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from kdaprof.runs.codec import to_json
from kdaprof.runs.facts import Fact, absent, facts_of
from kdaprof.runs.record import CellRecord, RunRecord
from kdaprof.runs.results import CellResult, Evidence, RunResults

RUN_SCHEMA = "kdaprof.run/1"
RUNS_SCHEMA = "kdaprof.runs/1"

Json = dict[str, Any]  # a document on its way out: built here, validated against the shipped JSON Schema in tests


def run_document(record: RunRecord, results: RunResults, path: Path | str | None) -> Json:
    """One run as `kdaprof.run/1`: builtins only, no NaN, every fact of every cell present.

    `path` is the run directory; None (an anonymous run) leaves the key out. A cell without results, because it was
    never reached, has all its facts missing with the reason.
    """
    derived = {cell.id: cell for cell in results.cells}
    document: Json = {
        "schema": RUN_SCHEMA,
        "tool": record.tool,
        "command": list(record.command),
        "complete": record.complete,
        "run": record.run,
    }
    if path is not None:
        document["path"] = str(path)
    document |= {
        "started_unix_ns": record.started_unix_ns,
        "ended_unix_ns": record.ended_unix_ns,
        "environment": to_json(record.environment),
        "conditions": to_json(record.conditions),
        "ceilings": to_json(record.ceilings),
        "overhead": to_json(record.overhead),
        "cells": [_cell(cell, derived.get(cell.id) or not_derived(cell)) for cell in record.cells],
        "findings": to_json(results.findings),
        "notes": list(record.notes),
    }
    return document


def runs_document(documents: Iterable[Json]) -> Json:
    """Several runs as `kdaprof.runs/1`."""
    return {"schema": RUNS_SCHEMA, "runs": list(documents)}


def run_schema() -> Json:
    """The JSON Schema (2020-12) of both documents, as shipped in the package."""
    raw = resources.files("kdaprof.runs").joinpath("schemas/run-1.json").read_bytes()
    schema: Json = msgspec.json.decode(raw)
    return schema


def not_derived(cell: CellRecord) -> CellResult:
    """The result of a cell of which nothing was derived: every figure missing, with what the record says of it."""
    why = cell.error.text if cell.error else f"the cell is {cell.status}: it was not measured"
    facts = {name: absent(unit, "failed", why) for name, unit in facts_of(cell.key.mode).items()}
    return CellResult(id=cell.id, facts=facts, evidence=Evidence(verdict="none", expected=cell.key.path))


def _cell(cell: CellRecord, result: CellResult) -> Json:
    key = cell.key
    return {
        "id": cell.id,
        "workload": key.workload,
        "path": key.path,
        "context": key.context,
        "mode": key.mode,
        "phase": key.phase,
        "shape": dict(key.shape),
        "dtype": key.dtype,
        "status": cell.status,
        "error": to_json(cell.error) if cell.error else None,
        "facts": {name: to_json(_finite(fact)) for name, fact in result.facts.items()},
        "evidence": to_json(result.evidence),
        "stages": to_json(result.stages),
    }


def _finite(fact: Fact) -> Fact:
    # JSON has no NaN: a value that is not finite becomes a missing one that says so, never a bare null.
    if isinstance(fact.value, float) and not math.isfinite(fact.value):
        return absent(fact.unit, "failed", f"the value is not finite ({fact.value})")
    return fact

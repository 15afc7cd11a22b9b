"""The document `kdaprof.ncu/1`: what `kdaprof ncu --json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgspec

from kdaprof import __version__
from kdaprof.analysis.ncu import NcuAnalysis, PhaseRow
from kdaprof.runs.codec import to_json
from kdaprof.timeline.ncu_csv import NcuReport

SCHEMA = "kdaprof.ncu/1"

Json = dict[str, Any]  # a document on its way out: built here, validated against the shipped JSON Schema in tests


def ncu_document(
    report: NcuReport, found: NcuAnalysis, *, file: str, cell: str | None, cache: str | None, command: Sequence[str]
) -> Json:
    """`cell`: the cell whose cost model stands beside the counts, None without one."""
    return {
        "schema": SCHEMA,
        "tool": f"kdaprof {__version__}",
        "command": list(command),
        "complete": report.cut == 0,
        "file": file,
        "cell": cell,
        "cache": cache,
        "notes": list(report.notes),
        "phases": [_phase(row) for row in found.phases],
        "kernels": [{**to_json(row), "spills": row.spills} for row in found.kernels],
        "launches": [{**to_json(kernel), "missing": dict(kernel.missing)} for kernel in report.kernels],
    }


def ncu_schema() -> Json:
    """The JSON Schema of the document, as it ships in the package."""
    raw = resources.files("kdaprof.runs").joinpath("schemas/ncu-1.json").read_bytes()
    schema: Json = msgspec.json.decode(raw)
    return schema


def _phase(row: PhaseRow) -> Json:
    return {
        **to_json(row),
        "dram_bytes": row.dram_bytes,
        "of_path": row.of_path,
        "of_compulsory": row.of_compulsory,
    }

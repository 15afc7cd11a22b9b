"""The document `kdaprof.ab/1`: what `kdaprof ab --json` prints and ab.json holds."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgspec

from kdaprof import __version__
from kdaprof.analysis.ab.outcome import GateResult
from kdaprof.analysis.ab.result import Result
from kdaprof.analysis.ab.rows import Row
from kdaprof.runs.codec import schema_name, to_json


def ab_document(result: Result, *, command: Sequence[str]) -> dict[str, Any]:
    """The document of one experiment, ready for any strict JSON parser."""
    contract = result.contract
    return {
        "schema": schema_name("ab"),
        "tool": f"kdaprof {__version__}",
        "command": list(command),
        "complete": result.complete,
        "contract": {
            "name": contract.name,
            "sha256": result.digest,
            "kind": contract.kind,
            "rounds": contract.measure.rounds,
            "samples": contract.measure.samples,
        },
        "base": to_json(result.base),
        "cand": to_json(result.cand),
        "attempt": result.attempt,
        "source": result.source,
        "started_unix_ns": result.started_unix_ns,
        "environment": None if result.environment is None else to_json(result.environment),
        "conditions": {
            "before": None if result.before is None else to_json(result.before),
            "after": None if result.after is None else to_json(result.after),
        },
        "rows": [_row(row) for row in result.outcome.rows],
        "gates": [_gate(gate) for gate in result.outcome.gates],
        "decision": result.outcome.decision,
        "why": result.outcome.why,
        "errors": list(result.errors),
    }


def ab_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of that document, as shipped in the package."""
    raw = resources.files("kdaprof.runs").joinpath("schemas/ab-1.json").read_bytes()
    schema: dict[str, Any] = msgspec.json.decode(raw)
    return schema


def _row(row: Row) -> dict[str, Any]:
    return {
        "cell": row.shape,
        "role": row.role,
        "size": row.size,
        "base": to_json(row.base),
        "cand": to_json(row.cand),
        "ratio": {"value": row.ratio.value, "ci95": _ends(row.ratio.interval)},
        "speedup": {"value": row.speedup.value, "ci95": _ends(row.speedup.interval)},
        "rounds": row.ratio.rounds,
        "verdict": row.ratio.verdict,
        "why": row.ratio.why,
        "peak": {"base": to_json(row.base_peak), "cand": to_json(row.cand_peak), "change_bytes": row.peak_change},
    }


def _gate(gate: GateResult) -> dict[str, Any]:
    return {
        "name": gate.name,
        "kind": gate.kind,
        "want": gate.want,
        "got": gate.got,
        "verdict": gate.verdict,
        "value": gate.value,
        "ci95": _ends(gate.interval),
        "limit": gate.limit,
        "shape": gate.shape,
    }


def _ends(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else list(interval)

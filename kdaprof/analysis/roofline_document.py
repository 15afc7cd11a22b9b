"""The document `kdaprof.roofline/1`: what `kdaprof roofline --json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import msgspec

from kdaprof import __version__
from kdaprof.analysis.floor import COPY
from kdaprof.analysis.roofline import COMPULSORY, FIELD, PATH, Basis, Row, Serial, bases_of
from kdaprof.analysis.roofline_measured import Stood, beaten
from kdaprof.kda.cost import OpSize, Shape, compulsory, flops, moved_bytes
from kdaprof.runs.codec import to_json
from kdaprof.runs.facts import absent
from kdaprof.runs.record import Ceiling

SCHEMA = "kdaprof.roofline/1"

Json = dict[str, Any]  # a document on its way out: built here, validated against the shipped JSON Schema in tests


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Everything that is shown: rows with what was measured of them, the chain, and the ceilings with their origin.

    `ceilings_missing` says why there are none, or not all.
    """

    shape: Shape
    dtype: str
    paths: tuple[str, ...]
    stood: tuple[Stood, ...]
    serial: Serial
    ceilings: tuple[Ceiling, ...]
    ceilings_missing: str | None
    card: str | None
    run: str | None


def used_ceilings(roofline: Roofline) -> tuple[Ceiling, ...]:
    """Those that a row rests on, copy first, and what each launch costs."""
    names = {COPY, *(one.row.basis.rate for one in roofline.stood)}
    return tuple(ceiling for ceiling in roofline.ceilings if ceiling.name in names or ceiling.unit == "ns")


def roofline_document(roofline: Roofline, *, command: Sequence[str]) -> Json:
    """`flops` and `bytes` hold every basis; `bases` and `tensors` those that were asked for."""
    size = OpSize.of(roofline.shape)
    every = bases_of(size, roofline.dtype, paths=roofline.paths, phases=("fwd", "bwd"), names=(PATH, FIELD))
    return {
        "schema": SCHEMA,
        "tool": f"kdaprof {__version__}",
        "command": list(command),
        "complete": True,
        "run": roofline.run,
        "card": roofline.card,
        "shape": dict(roofline.shape),
        "dtype": roofline.dtype,
        "flops": {phase: flops(phase, size) for phase in ("fwd", "bwd")},
        "bytes": {
            COMPULSORY: {phase: moved_bytes(compulsory(phase, size, roofline.dtype)) for phase in ("fwd", "bwd")},
            PATH: {
                path: {b.phase: b.bytes for b in every if b.name == PATH and b.path == path} for path in roofline.paths
            },
            FIELD: {b.phase: b.bytes for b in every if b.name == FIELD},
        },
        "tensors": [_tensors(basis) for basis in _listings(roofline.stood)],
        "bases": [_base(one) for one in roofline.stood],
        "serial": {
            "programs": roofline.serial.chain.programs,
            "chain": roofline.serial.chain.steps,
            "flops_per_step": roofline.serial.flops_per_step,
            "sms": roofline.serial.sms,
            "waves": roofline.serial.waves,
            "busy_share": roofline.serial.busy_share,
        },
        "ceilings": [to_json(ceiling) for ceiling in roofline.ceilings],
        "ceilings_missing": roofline.ceilings_missing,
        "findings": [to_json(finding) for finding in beaten(roofline.stood)],
    }


def roofline_schema() -> Json:
    """The JSON Schema (2020-12) of the document, as shipped in the package."""
    raw = resources.files("kdaprof.runs").joinpath("schemas/roofline-1.json").read_bytes()
    schema: Json = msgspec.json.decode(raw)
    return schema


def _listings(stood: Sequence[Stood]) -> list[Basis]:
    """Each listing once: the compulsory one is the same on every path that has one."""
    kept: dict[tuple[str, str, str], Basis] = {}
    for basis in sorted((one.row.basis for one in stood), key=lambda basis: basis.tensors is None):
        kept.setdefault((basis.name, "" if basis.name == COMPULSORY else basis.path, basis.phase), basis)
    return list(kept.values())


def _tensors(basis: Basis) -> Json:
    return {
        "basis": basis.name,
        "path": None if basis.name == COMPULSORY else basis.path,
        "phase": basis.phase,
        "times": basis.times,
        "bytes": basis.bytes,
        "why": basis.why,
        "tensors": [
            {
                "name": tensor.name,
                "shape": list(tensor.shape),
                "dtype": tensor.dtype,
                "reads": tensor.reads,
                "writes": tensor.writes,
                "bytes": tensor.bytes,
                "moved_bytes": tensor.moved_bytes,
            }
            for tensor in basis.tensors or ()
        ],
    }


def _base(one: Stood) -> Json:
    row: Row = one.row
    basis, call = row.basis, one.call
    not_run = absent("ns", "not-applicable", one.share.detail or "not measured") if call is None else None
    return {
        "name": basis.name,
        "path": basis.path,
        "phase": basis.phase,
        "flops": basis.flops,
        "bytes": basis.bytes,
        "why": basis.why,
        "rate": basis.rate,
        "intensity": basis.intensity,
        "balance": row.balance,
        "compute_ns": row.compute_ns,
        "memory_ns": row.memory_ns,
        "floor_ns": to_json(row.floor),
        "bound": row.bound,
        "serial_ns": to_json(row.serial),
        "cell": call.id if call else None,
        "bytes_when_run": one.bytes_when_run,
        "wall_ns": to_json(call.wall if call else not_run),
        "gpu_busy_ns": to_json(call.busy if call else not_run),
        "floor_share": to_json(one.share),
    }

"""From the text of a contract to a checked `Contract`, and its digest: what may not change between attempts."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from kdaprof.analysis.ab.contract import (
    CONTRACT_SCHEMA,
    ROLES,
    Contract,
    Gate,
    NonRegression,
    PeakChange,
    StageShare,
)
from kdaprof.analysis.interleaved import MIN_ROUNDS
from kdaprof.errors import UsageError
from kdaprof.runs.cells import DTYPES, PHASES, parse_shape

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_SHAPE_NAME = re.compile(r"[\w.+-]+")
_SHA = re.compile(r"(sha256:)?[0-9a-f]{64}")
_OP_AXES = ("B", "T", "H", "K", "V")


def read_contract(path: Path) -> Contract:
    """The contract in a TOML file; UsageError with file, place and what to write instead."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: cannot read ({reason}); `kdaprof ab --example` prints a contract") from error
    return parse_contract(text, str(path))


def parse_contract(text: str, name: str) -> Contract:
    """The contract in `text`; `name` stands in its errors. Errors: UsageError."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name}: not valid TOML ({error})") from error
    stated = found.get("schema")
    if stated != CONTRACT_SCHEMA:
        raise UsageError(f"{name}: schema {stated!r}; a contract begins with schema = {CONTRACT_SCHEMA!r}")
    try:
        contract = msgspec.convert(found, Contract)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {error}; `kdaprof ab --example` shows every key") from error
    for fault in _faults(contract):
        raise UsageError(f"{name}: {fault}")
    return contract


def digest(contract: Contract) -> str:
    """SHA-256 of everything but the candidate: what two attempts under one contract have in common."""
    fixed = msgspec.structs.replace(contract, cand=None)
    return hashlib.sha256(msgspec.json.encode(fixed, order="sorted")).hexdigest()


def _faults(contract: Contract) -> Iterator[str]:
    """What has a type and yet no meaning, in the order of the file."""
    if not _NAME.fullmatch(contract.name):
        yield f"name {contract.name!r}: small letters, digits, . _ and - only; attempts are counted under it"
    yield from _measure(contract)
    yield from _kind(contract)
    yield from _shapes(contract)
    for place, sha in contract.frozen.files.items():
        if not _SHA.fullmatch(sha):
            yield f"frozen.files {place!r}: {sha!r} is no SHA-256 (64 hex digits); `sha256sum {place}` gives it"
    if contract.attempts is not None and contract.attempts.most < 1:
        yield f"attempts.most = {contract.attempts.most}: at least 1"
    if not contract.gates:
        yield "no [[gates]]: without one nothing can be decided"
    for number, gate in enumerate(contract.gates, 1):
        for fault in _gate(contract, gate):
            yield f"gate {number}: {fault}"


def _measure(contract: Contract) -> Iterator[str]:
    measure = contract.measure
    if measure.rounds < MIN_ROUNDS:
        yield f"measure.rounds = {measure.rounds}: fewer than {MIN_ROUNDS} rounds establish nothing"
    if measure.samples < 2 or measure.samples % 2:
        yield f"measure.samples = {measure.samples}: an even number, since each round is A B B A or B A A B"
    if measure.warmup < 0:
        yield f"measure.warmup = {measure.warmup}: 0 or more"
    if measure.seed < 0:
        yield f"measure.seed = {measure.seed}: 0 or more"
    if not measure.timeout_s > 0 or not contract.frozen.timeout_s > 0:
        yield "timeout_s: more than 0"


def _kind(contract: Contract) -> Iterator[str]:
    if contract.kind == "revisions":
        if contract.repository is None or not contract.repository.command:
            yield 'kind "revisions" needs [repository] with a command that measures'
    elif contract.repository is not None:
        yield f'[repository] belongs to kind "revisions", not {contract.kind!r}'
    if contract.kind == "paths":
        if contract.op.phase not in PHASES:
            yield f"op.phase {contract.op.phase!r}: choose from {', '.join(PHASES)}"
        if contract.op.dtype not in DTYPES:
            yield f"op.dtype {contract.op.dtype!r}: choose from {', '.join(DTYPES)}"
        if contract.op.chunk < 1:
            yield f"op.chunk = {contract.op.chunk}: 1 or more"


def _shapes(contract: Contract) -> Iterator[str]:
    names = [shape.name for shape in contract.shapes]
    if not names:
        yield "no [[shapes]]: name at least one"
    for shape in contract.shapes:
        if not _SHAPE_NAME.fullmatch(shape.name) or shape.name in {".", ".."}:
            yield f"shape {shape.name!r}: letters, digits, . _ + and - only"
        if names.count(shape.name) > 1:
            yield f"shape {shape.name!r}: named twice"
        if contract.kind == "paths":
            if shape.size is None:
                yield f'shape {shape.name!r}: kind "paths" needs size = "B,T,H,K,V"'
            elif (fault := _refusal(lambda shape=shape: parse_shape(shape.size, _OP_AXES, flag="size"))) is not None:  # type: ignore[misc]
                yield f"shape {shape.name!r}: {fault}"
        elif shape.size is not None:
            yield f'shape {shape.name!r}: size belongs to kind "paths"; use env, or let the name say it'
        if shape.env and contract.kind != "targets":
            yield f'shape {shape.name!r}: env belongs to kind "targets"; a command reads KDAPROF_AB_SHAPES'


def _refusal(check: Callable[[], object]) -> str | None:
    try:
        check()
    except UsageError as error:
        return str(error)
    return None


def _gate(contract: Contract, gate: Gate) -> Iterator[str]:
    if isinstance(gate, StageShare):
        yield from _stage_share(gate)
        return
    names = {shape.name for shape in contract.shapes}
    for name in gate.shapes:
        if name not in names:
            yield f"shape {name!r} is not in [[shapes]]: {', '.join(sorted(names))}"
    if not contract.chosen(gate):
        yield f"no shape has a role of {', '.join(gate.roles)}; roles are {', '.join(ROLES)}"
    if isinstance(gate, PeakChange):
        bounds = (gate.at_most, gate.at_least, gate.at_most_bytes, gate.at_least_bytes)
        if all(bound is None for bound in bounds):
            yield "peak-change needs at_most, at_least, at_most_bytes or at_least_bytes (negative: less than base)"
    elif isinstance(gate, NonRegression):
        if not 0 <= gate.band < 1:
            yield f"band = {gate.band}: a fraction from 0 to below 1, such as 0.02"
    elif not gate.min > 0:
        yield f"min = {gate.min}: a speedup, such as 1.08"


def _stage_share(gate: StageShare) -> Iterator[str]:
    declared, stored = gate.share is not None, gate.run is not None
    if declared == stored:
        yield "stage-share needs either share = … or run = … with cell and stages"
    if stored and (gate.cell is None or not gate.stages):
        yield "stage-share from a run needs its cell and the names of its stages"
    if declared and not gate.source:
        yield "a declared share needs source = … (which profile it was read from)"
    fractions = {"min": gate.min, "share": gate.share or 0.0, "removable": gate.removable}
    for name, value in fractions.items():
        if not 0 <= value <= 1:
            yield f"{name} = {value}: a fraction from 0 to 1"

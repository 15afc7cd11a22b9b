"""JSON in and out: strict, typed, NaN and infinity as null, and a schema line that says who may read it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kdaprof.errors import BadFileError
from kdaprof.runs.atomic import write_bytes

T = TypeVar("T")
Json = Any  # a document on its way in or out; typed dataclasses stand on both sides of it

# kind → {version: function that lifts a document of that version to the next}
MIGRATIONS: dict[str, dict[int, Callable[[Json], Json]]] = {}
VERSIONS = {
    "run": 1,
    "run-record": 1,
    "facts": 1,
    "findings": 1,
    "gpu-util": 1,
    "retraction": 1,
    "history": 1,
    "compare": 1,
    "ranks": 1,
    "ab": 1,
    "ab-evidence": 1,
    "ab-attempt": 1,
    "dispatch": 1,
    "stacks": 1,
}


def schema_name(kind: str) -> str:
    """`kdaprof.<kind>/<version>`."""
    return f"kdaprof.{kind}/{VERSIONS[kind]}"


def to_json(value: object) -> Json:
    """Builtins of a dataclass tree, non-finite floats as None, ready for any strict JSON parser."""
    return _finite(msgspec.to_builtins(value, str_keys=True))


def dumps(document: Json) -> bytes:
    """Indented UTF-8 JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(_finite(document)), indent=1) + b"\n"


def write_document(path: Path, kind: str, body: Mapping[str, Json]) -> None:
    """Write `{"schema": …, **body}` atomically."""
    write_bytes(path, dumps({"schema": schema_name(kind), **body}))


def read_document(path: Path, kind: str, into: type[T]) -> T:
    """Read a document of `kind` as `into`.

    Errors: BadFileError with path, reason and way out, for a file that is absent, truncated, garbage, of another
    kind, or newer than this kdaprof.
    """
    try:
        raw = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise BadFileError(f"{path}: cannot read ({error.strerror or error}); is this a run directory?") from error
    except msgspec.DecodeError as error:
        raise BadFileError(f"{path}: not valid JSON ({error}); restore the file or measure again") from error
    document = _lift(path, kind, raw)
    try:
        return msgspec.convert(document, into, strict=False)
    except msgspec.ValidationError as error:
        raise BadFileError(
            f"{path}: does not hold {schema_name(kind)} ({error}); restore the file or measure again"
        ) from error


def _lift(path: Path, kind: str, document: Json) -> Json:
    found = document.get("schema") if isinstance(document, dict) else None
    name, _, version_text = str(found or "").partition("/")
    if name != f"kdaprof.{kind}" or not version_text.isdecimal():
        raise BadFileError(f"{path}: schema {found!r}, expected {schema_name(kind)!r}; is this the right file?")
    version = int(version_text)
    if version > VERSIONS[kind]:
        raise BadFileError(f"{path}: {found} is newer than this kdaprof reads ({schema_name(kind)}): upgrade kdaprof")
    while version < VERSIONS[kind]:
        lift = MIGRATIONS.get(kind, {}).get(version)
        if lift is None:
            raise BadFileError(f"{path}: {found} is too old and no migration exists; measure again")
        document, version = lift(document), version + 1
    return document


def _finite(value: Json) -> Json:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value

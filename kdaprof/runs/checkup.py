"""What a checkup of a machine found, and the document `kdaprof.doctor/1` that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

import msgspec

from kdaprof import __version__
from kdaprof.runs.codec import to_json

SCHEMA = "kdaprof.doctor/1"
Status = Literal["ok", "warn", "fail", "unknown"]
Group = Literal["software", "paths", "faults", "elsewhere", "machine", "card"]

Json = dict[str, Any]  # a document on its way out: built here, validated against the shipped JSON Schema in tests


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of a checkup.

    `ok`: nothing to do. `warn`: measuring works, and this may cost or mislead. `fail`: unfit until `next` is done.
    `unknown`: it could not be found out, with the reason. `source`: where the rule comes from.
    """

    id: str
    group: Group
    status: Status
    text: str
    next: str | None = None
    source: str | None = None


def unfit(checks: Sequence[Check]) -> bool:
    """Whether any check failed."""
    return any(check.status == "fail" for check in checks)


def checkup_document(checks: Sequence[Check], *, command: Sequence[str]) -> Json:
    """What `kdaprof doctor --json` prints."""
    return {
        "schema": SCHEMA,
        "tool": f"kdaprof {__version__}",
        "command": list(command),
        "complete": True,
        "fit": not unfit(checks),
        "checks": [to_json(check) for check in checks],
    }


def checkup_schema() -> Json:
    """The JSON Schema (2020-12) of the document, as shipped in the package."""
    raw = resources.files("kdaprof.runs").joinpath("schemas/doctor-1.json").read_bytes()
    schema: Json = msgspec.json.decode(raw)
    return schema

"""The dispatch table: which path each call takes and why not another, as `kdaprof.dispatch/1`; and what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from kdaprof import __version__
from kdaprof.errors import BadFileError, UsageError
from kdaprof.runs.atomic import write_bytes
from kdaprof.runs.codec import dumps, read_document, to_json
from kdaprof.runs.record import Refusal
from kdaprof.runs.results import Evidence

SCHEMA = "kdaprof.dispatch/1"

Json = dict[str, Any]  # a document on its way out: built here, validated against the shipped JSON Schema in tests

Status = Literal["ok", "unavailable", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchRow:
    """One call, and the way it took.

    `op`: `kda`, `sdpa`, `fla`, `fla-gate …` (asked, not called), `compile` or `layer …`. `chosen` is None where nothing
    ran; `detail` then says why. `evidence` holds the witnesses of a `kda` or `fla` call; `ran` names what else was seen
    to run (operators, functions).
    """

    op: str
    context: str
    dtype: str
    shape: dict[str, int]
    status: Status
    chosen: str | None
    refused: tuple[Refusal, ...] = ()
    evidence: Evidence | None = None
    ran: tuple[str, ...] = ()
    detail: str | None = None

    @property
    def key(self) -> str:
        """`kda/plain/B2-T32-H2-K32-V32-C16/float32`: what a later table is compared by."""
        extents = "-".join(f"{axis}{size}" for axis, size in self.shape.items())
        return "/".join((self.op, self.context, extents, self.dtype))

    @property
    def way(self) -> str | None:
        """The path that the call took: what a witness names instead where one contradicts the gate."""
        if self.evidence is None or self.evidence.verdict != "contradicted":
            return self.chosen
        return next(w.says for w in self.evidence.witnesses if w.says not in (None, self.evidence.expected))


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchTable:
    """All rows of one machine; `device` is `cuda` or `cpu`, `card` its name."""

    tool: str
    command: tuple[str, ...]
    device: str
    card: str | None
    versions: dict[str, str | None]
    rows: tuple[DispatchRow, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A row whose way is another than that of `than` (a context than plain, a table than the one saved before)."""

    key: str
    was: str | None
    now: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A table beside a saved one: the rows of both that take another path now, and the keys that only one of them has.

    Nothing is said of the latter: a row that is no longer called is no longer guarded.
    """

    changes: tuple[Difference, ...]
    only_saved: tuple[str, ...] = ()
    only_now: tuple[str, ...] = ()


def make_table(
    rows: Sequence[DispatchRow],
    *,
    command: Sequence[str],
    device: str,
    card: str | None,
    versions: dict[str, str | None],
) -> DispatchTable:
    """A table by this version of kdaprof."""
    tool = f"kdaprof {__version__}"
    return DispatchTable(
        tool=tool, command=tuple(command), device=device, card=card, versions=versions, rows=tuple(rows)
    )


def away_from_plain(rows: Sequence[DispatchRow]) -> tuple[Difference, ...]:
    """The contexts in which an op takes another path than in a plain call of the same dtype and shape."""
    plain = {(r.op, r.dtype, *r.shape.items()): r for r in rows if r.context == "plain"}
    found = []
    for row in rows:
        base = plain.get((row.op, row.dtype, *row.shape.items()))
        if base is None or row.chosen == base.chosen or row.status != "ok":
            continue
        found.append(Difference(key=row.key, was=base.chosen, now=row.chosen, reason=why(row, base.chosen)))
    return tuple(found)


def compare_tables(old: DispatchTable, new: DispatchTable) -> Comparison:
    """The rows of both tables that take another path now, and the rows that only one of them has.

    A row whose gate is contradicted by a witness takes the path that the witness names.

    UsageError when the tables are of different kinds of device, or share no row: nothing can be said then.
    """
    if old.device != new.device:
        raise UsageError(
            f"--against: that table was made on {old.device}, this is {new.device}: save one on each kind of machine"
        )
    before = {row.key: row for row in old.rows}
    shared = [row for row in new.rows if row.key in before]
    if not shared:
        raise UsageError("--against: the tables share no row: use the same --ops, --contexts, --dtypes and --shape")
    now = {row.key for row in new.rows}
    return Comparison(
        changes=tuple(
            Difference(key=row.key, was=before[row.key].way, now=row.way, reason=why(row, before[row.key].way))
            for row in shared
            if row.way != before[row.key].way
        ),
        only_saved=tuple(key for key in before if key not in now),
        only_now=tuple(row.key for row in new.rows if row.key not in before),
    )


def why(row: DispatchRow, path: str | None) -> str | None:
    """Why the row did not take `path`: its refusal, the witness against its gate, else what the row says."""
    if row.way != row.chosen and row.evidence is not None:
        witness = next(w for w in row.evidence.witnesses if w.says == row.way)
        return f"the gate says {row.chosen}, {witness.name} say {witness.says}: {witness.detail}"
    return next((refusal.reason for refusal in row.refused if refusal.path == path), row.detail)


def dispatch_document(table: DispatchTable, compared: Comparison | None) -> Json:
    """What `kdaprof dispatch --json` prints; `compared` is None where nothing was."""
    return {
        "schema": SCHEMA,
        **to_json(table),
        "away_from_plain": [to_json(difference) for difference in away_from_plain(table.rows)],
        "changes": None if compared is None else [to_json(difference) for difference in compared.changes],
        "not_compared": None
        if compared is None
        else {"only_saved": list(compared.only_saved), "only_now": list(compared.only_now)},
    }


def save_table(path: Path, table: DispatchTable) -> None:
    """Write the table atomically. Errors: TargetError."""
    write_bytes(path, dumps(dispatch_document(table, None)))


def read_table(path: Path) -> DispatchTable:
    """A saved table. Errors: BadFileError with path, reason and way out."""
    if path.is_dir() or not path.exists():
        what = "is a directory" if path.is_dir() else "no such file"
        raise BadFileError(f"{path}: {what}; save a table first: `kdaprof dispatch --save FILE`")
    return read_document(path, "dispatch", DispatchTable)


def dispatch_schema() -> Json:
    """The JSON Schema (2020-12) of the document, as shipped in the package."""
    raw = resources.files("kdaprof.runs").joinpath("schemas/dispatch-1.json").read_bytes()
    schema: Json = msgspec.json.decode(raw)
    return schema

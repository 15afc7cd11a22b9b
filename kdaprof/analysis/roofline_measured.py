"""What a stored run measured, held against a roofline: share of the floor, and what beats its own floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kdaprof.analysis.figure import derived, estimate_of
from kdaprof.analysis.guards.floor import FLOOR_SHARE_MIN
from kdaprof.analysis.propagate import exact, ratio
from kdaprof.analysis.roofline import PATH, Row
from kdaprof.errors import UsageError
from kdaprof.kda.cost import Shape
from kdaprof.runs.cells import CellKey
from kdaprof.runs.facts import Fact, Reason, absent, fact_id
from kdaprof.runs.record import CellRecord, RunRecord
from kdaprof.runs.results import CellResult, Finding, RunResults
from kdaprof.runs.units import format_fraction, format_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One measured cell: wall and busy as the run's rules leave them."""

    id: str
    wall: Fact
    busy: Fact
    evicts: bool
    """Whether what it touches before it meets the same input again is more than L2 holds, so that bytes must move."""
    path_bytes: int | None = None
    """The path's own bytes as kdaprof listed them when the cell ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stood:
    """A row of the roofline with what was measured of it; `share` is floor / busy."""

    row: Row
    call: Call | None
    share: Fact

    @property
    def bytes_when_run(self) -> int | None:
        """The path's own bytes by the listing of then, where today's is another: its kernels, or the list, changed."""
        if self.call is None or self.row.basis.name != PATH or self.call.path_bytes == self.row.basis.bytes:
            return None
        return self.call.path_bytes


def measured_size(
    record: RunRecord, shape: Shape | None, dtype: str | None, chunk: int | None = None
) -> tuple[Shape, str]:
    """The one shape and dtype of the run's KDA cells, of those that were chosen; the chunk of `shape` does not count.

    Errors: UsageError when there is none, or several.
    """
    keys = [cell.key for cell in record.cells if _counts(cell)]
    kept = [
        key
        for key in keys
        if (shape is None or key.shape[:-1] == shape[:-1])
        and (dtype is None or key.dtype == dtype)
        and (chunk is None or key.size("C") == chunk)
    ]
    found = sorted({(k.shape, k.dtype) for k in kept})
    if not found:
        raise UsageError(
            f"run {record.run}: holds no eager kda cell of that shape, chunk and dtype; see `kdaprof report`"
        )
    if len(found) > 1:
        texts = "; ".join(f"{CellKey('kda', '', '', '', '', s, d).extents} {d}" for s, d in found)
        raise UsageError(f"run {record.run}: holds several; choose by --shape, --chunk and --dtype: {texts}")
    return found[0]


def measured_calls(record: RunRecord, results: RunResults, shape: Shape, dtype: str) -> dict[tuple[str, str], Call]:
    """The measured calls by (path, phase), plain and eager."""
    derived_of = {cell.id: cell for cell in results.cells}
    return {
        (cell.key.path, cell.key.phase): _call(cell, derived_of[cell.id])
        for cell in record.cells
        if _counts(cell) and cell.key.shape == shape and cell.key.dtype == dtype and cell.id in derived_of
    }


def stand(rows: Sequence[Row], calls: Mapping[tuple[str, str], Call], run: str | None) -> tuple[Stood, ...]:
    """Each row with its measured call, where there is one."""
    found = []
    for row in rows:
        call = calls.get((row.basis.path, row.basis.phase))
        found.append(Stood(row=row, call=call, share=_share(row, call, run)))
    return tuple(found)


def beaten(stood: Sequence[Stood]) -> tuple[Finding, ...]:
    """The calls that are faster than a floor: each a finding about the floor (Q10)."""
    found = []
    for one in stood:
        if one.call is None or not _is_beaten(one):
            continue
        busy, floor = float(one.call.busy.value or 0), float(one.row.floor.value or 0)
        name = f"{one.row.basis.path} {one.row.basis.phase}"
        found.append(
            Finding(
                id="faster-than-floor",
                severity="warn",
                cell=one.call.id,
                text=(
                    f"{name}: busy {format_ns(busy)} is below the floor of {format_ns(floor)} that its "
                    f"{one.row.basis.name} bytes give: bytes, FLOPs or a ceiling are wrong, or the bytes stay in cache"
                ),
                evidence={"gpu_busy_ns": busy, "floor_ns": floor, "share": busy / floor},
                threshold={"floor_share_min": FLOOR_SHARE_MIN},
                next="measure the ceilings on this card; count the bytes with `kdaprof ncu`",
            )
        )
    return tuple(found)


def _counts(cell: CellRecord) -> bool:
    key = cell.key
    return key.workload == "kda" and key.mode == "eager" and key.context == "plain" and cell.status == "ok"


def _call(cell: CellRecord, result: CellResult) -> Call:
    seen = cell.observed
    evicts = False
    if seen is not None and seen.work is not None and seen.l2_bytes is not None:
        sets = seen.input_sets if seen.cache == "rotate" else 1
        evicts = seen.work.bytes_compulsory * sets > seen.l2_bytes
    return Call(
        id=cell.id,
        wall=result.facts["wall_ns"],
        busy=result.facts["gpu_busy_ns"],
        evicts=evicts,
        path_bytes=seen.work.bytes_path if seen is not None and seen.work is not None else None,
    )


def _share(row: Row, call: Call | None, run: str | None) -> Fact:
    if call is None:
        return absent("fraction", "not-applicable", "not measured in this run" if run else "no run given: --run RUN")
    for name, fact in (("floor", row.floor), ("busy", call.busy)):
        if fact.value is None:
            return absent("fraction", fact.missing or "failed", f"{name}: {fact.detail}")
    if not call.busy.value:
        return absent("fraction", "not-applicable", "the device was not busy")
    share = ratio(exact(float(row.floor.value or 0)), estimate_of(call.busy))
    fact = derived("fraction", share, (call.busy,), (fact_id(run or "", call.id, "gpu_busy_ns"),))
    refused = fact.refuse(*call.busy.reasons, *row.floor.reasons)
    one = Stood(row=row, call=call, share=refused)
    if _is_beaten(one):
        text = f"busy is {format_fraction(1 / share.value)} of the floor on {row.basis.name} bytes"
        return refused.refuse(Reason("Q10", text))
    return refused


def _is_beaten(one: Stood) -> bool:
    if one.call is None or not one.call.evicts or one.row.floor.value is None or one.call.busy.value is None:
        return False
    return one.call.busy.value < FLOOR_SHARE_MIN * one.row.floor.value

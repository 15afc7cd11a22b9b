"""Peak memory against the change that a contract wants to see. Bytes are counted, not sampled: no interval."""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.analysis.ab.contract import PeakChange
from kdaprof.analysis.ab.outcome import GateResult, Verdict
from kdaprof.analysis.ab.rows import Row
from kdaprof.runs.units import format_bytes


def judge_peaks(name: str, gate: PeakChange, rows: Sequence[Row]) -> GateResult:
    """Every row's change of peak must lie within the bounds; the first that does not decides.

    A peak that moved between rounds counts with its least favourable pair, so that luck cannot pass it.
    """
    spans = [(row, _span(row)) for row in rows]
    for row, span in spans:
        limit = None if span is None else _broken(gate, row, span)
        if limit is not None:
            return _result(name, gate, row, "fail", f"{row.shape}: {change_text(row)}", limit)
    for row, span in spans:
        if span is None:
            return _result(name, gate, row, "not-established", f"{row.shape}: {change_text(row)}")
    return _result(name, gate, rows[0], "pass", "; ".join(f"{row.shape}: {change_text(row)}" for row in rows))


def _result(
    name: str, gate: PeakChange, row: Row, verdict: Verdict, got: str, limit: float | None = None
) -> GateResult:
    return GateResult(
        name=name,
        kind="peak-change",
        want=_want(gate),
        got=got,
        verdict=verdict,
        value=row.peak_change,
        limit=limit,
        shape=row.shape,
    )


def change_text(row: Row) -> str:
    """`1.15 GB → 1.11 GB (−34,602,496 B, −3.02 %)`; why not, where a peak is missing."""
    base, cand, change = row.base_peak.value, row.cand_peak.value, row.peak_change
    if base is None or cand is None or change is None:
        return (row.base_peak.detail if base is None else row.cand_peak.detail) or "no peak"
    share = f", {_signed(100 * change / base, '.2f')} %" if base else ""
    return f"{format_bytes(base)} → {format_bytes(cand)} ({_signed(change, ',.0f')} B{share})"


def _signed(value: float, form: str) -> str:
    return f"{'−' if value < 0 else '+' if value > 0 else '±'}{abs(value):{form}}"


def _want(gate: PeakChange) -> str:
    bounds = (
        ("≤", gate.at_most, "%"), ("≥", gate.at_least, "%"), ("≤", gate.at_most_bytes, "B"),
        ("≥", gate.at_least_bytes, "B"),
    )  # fmt: skip
    told = [
        f"{sign} {_signed(100 * bound, '.4g')} %" if unit == "%" else f"{sign} {_signed(bound, ',.0f')} B"
        for sign, bound, unit in bounds
        if bound is not None
    ]
    return f"change {' and '.join(told)}"


def _span(row: Row) -> tuple[float, float] | None:
    """The smallest and the largest change that the peaks seen allow."""
    base, cand = row.base_peak, row.cand_peak
    if base.min is None or base.max is None or cand.min is None or cand.max is None:
        return None
    return cand.min - base.max, cand.max - base.min


def _broken(gate: PeakChange, row: Row, span: tuple[float, float]) -> float | None:
    """The bound that is broken, in bytes; None when all hold."""
    base = float(row.base_peak.value or 0)
    upper = [b for b in (gate.at_most_bytes, None if gate.at_most is None else gate.at_most * base) if b is not None]
    lower = [b for b in (gate.at_least_bytes, None if gate.at_least is None else gate.at_least * base) if b is not None]
    for bound in upper:
        if span[1] > bound:
            return float(bound)
    for bound in lower:
        if span[0] < bound:
            return float(bound)
    return None

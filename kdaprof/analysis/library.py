"""What a product or an attention call achieved, and what the card did meanwhile: for workloads bound by the card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kdaprof.analysis.celldata import CellData, gather
from kdaprof.analysis.figure import derived, estimate_of, without
from kdaprof.analysis.propagate import exact, ratio
from kdaprof.analysis.stats import summarise
from kdaprof.analysis.view import RawRun
from kdaprof.runs.facts import Fact, Unit, absent, fact_id
from kdaprof.runs.record import CellRecord
from kdaprof.runs.util import UtilReading

POWER, TEMPERATURE = "power_w", "temperature_c"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardState:
    """SM clock and temperature beside a cell's steady samples; power in its own loop, or beside the samples too."""

    clock: Fact
    power: Fact
    temperature: Fact
    power_is_shared: bool
    """Power was read beside interleaved samples: an average over the last second, so of all the cells in it."""


def achieved(run: str, cell: CellRecord, facts: Mapping[str, Fact]) -> Fact:
    """FLOP/s: operations of the call / busy. Refused by what refuses busy."""
    work = cell.observed.work if cell.observed else None
    if work is None:
        return absent("FLOP/s", "not-applicable", "the operations of this call are not known")
    busy = facts["gpu_busy_ns"]
    gone = without("FLOP/s", (("gpu_busy_ns", busy),))
    if gone is not None:
        return gone
    if not busy.value:
        return absent("FLOP/s", "not-applicable", "the device was not busy")
    rate = ratio(exact(work.flops * 1e9), estimate_of(busy))
    made = derived("FLOP/s", rate, (busy,), (fact_id(run, cell.id, "gpu_busy_ns"),))
    return replace(made, quotable=busy.quotable, reasons=busy.reasons)


def card_state(raw: RawRun, cell: CellRecord) -> CardState:
    """What was read of the card for this cell; each figure missing, with the reason, where it was not."""
    data = gather(raw, cell)
    times = {sample.t_ns for sample in data.steady()}
    beside = tuple(reading for reading in raw.util if reading.t_ns in times)
    clocks = [sample.sm_clock_hz for sample in data.steady() if sample.sm_clock_hz is not None]
    own = _read("W", data.util, POWER)
    return CardState(
        clock=_summed("Hz", clocks) if clocks else _not_read("Hz", data),
        power=own or _read("W", beside, POWER) or _not_read("W", data),
        temperature=_read("°C", beside, TEMPERATURE) or _not_read("°C", data),
        power_is_shared=own is None,
    )


def _read(unit: Unit, readings: Sequence[UtilReading], field: str) -> Fact | None:
    mine = [reading for reading in readings if reading.field == field]
    values = [reading.value for reading in mine if reading.value is not None]
    if values:
        return _summed(unit, values)
    why = next((reading.missing for reading in mine if reading.missing), None)
    return absent(unit, "not-supported", why) if why else None


def _summed(unit: Unit, values: Sequence[float]) -> Fact:
    s = summarise(values)
    return Fact(value=s.median, unit=unit, n=s.n, min=s.min, max=s.max, p10=s.p10, p90=s.p90)


def _not_read(unit: Unit, data: CellData) -> Fact:
    if data.observed is None or data.observed.device == "cpu":
        return absent(unit, "no-device", "no NVIDIA GPU on this machine")
    return absent(unit, "not-supported", "NVML was not read beside the samples")

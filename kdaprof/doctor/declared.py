"""Figures that somebody declared for a card, against the card's own account and against what was measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kdaprof.doctor.cards import agrees, by_name, figures, with_figures
from kdaprof.doctor.machine import Card, Machine
from kdaprof.errors import UsageError
from kdaprof.runs.checkup import Check
from kdaprof.runs.record import Ceiling
from kdaprof.runs.units import format_bytes, format_fraction, format_rate

NAMES = ("sms", "bandwidth", "memory", "capability")
_MULTIPLES = {
    "": 1.0,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "KI": 2.0**10,
    "MI": 2.0**20,
    "GI": 2.0**30,
    "TI": 2.0**40,
}
_VALUE = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]+)?(?:e[0-9]+)?)\s*(?:([KMGT]i?)?(B/s|B))?", re.IGNORECASE)

REACHABLE = 0.5
"""A measured rate below this share of the declared one: the declared one is no floor that anything here can reach."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A card's name, or None for the card here, and what is claimed of it in base units."""

    card: str | None = None
    values: dict[str, float] = field(default_factory=dict)


def parse_declared(card: str | None, texts: Sequence[str]) -> Declared:
    """`bandwidth=1792GB/s`, `memory=16GB`, `sms=170`, `capability=12.0`. Raises UsageError."""
    values: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in NAMES:
            raise UsageError(f"--declare {text!r}: unknown figure; known: {', '.join(NAMES)}, as in bandwidth=1792GB/s")
        match = _VALUE.fullmatch(value.strip())
        if match is None:
            raise UsageError(f"--declare {text!r}: {value!r} is no figure; write it as 170, 1792GB/s, 16GB or 12.0")
        values[name] = float(match[1].replace(",", "").replace("_", "")) * _MULTIPLES[(match[2] or "").upper()]
    if card is not None and not values:
        raise UsageError("--card names whose figures are declared: add --declare, as in --declare bandwidth=1792GB/s")
    return Declared(card, values)


def declared_checks(declared: Declared, machine: Machine) -> Iterator[Check]:
    """One check a declared figure; figures of another card are said to be whose they can be."""
    if not declared.values:
        return
    own, account = _own(declared, machine)
    if own is None:
        yield Check(
            id="declared",
            group="card",
            status="unknown",
            text=f"declared figures of {declared.card or 'the card here'} cannot be held against its own: {account}",
            next="run the doctor on the machine with that card",
        )
        return
    true = figures(own)
    wrong = {
        name: value for name, value in declared.values.items() if name in true and not agrees(name, value, true[name])
    }
    for name, value in declared.values.items():
        yield _compare(name, value, true, own, account, wrong)
    if own is machine.spoken_of:
        yield from _against_measured(declared.values, machine.ceilings)


def ceiling_checks(machine: Machine) -> Iterator[Check]:
    """Measured copy rate against what the memory could move at most, by the card's own account."""
    copy = _measured(machine.ceilings, "copy")
    card = machine.spoken_of
    if copy is None:
        return
    if card is None or card.bandwidth_bytes_per_s is None:
        yield Check(
            id="ceiling-copy", group="card", status="ok",
            text=f"copies move {format_rate(copy, 'B/s')}; the card names no bandwidth of its own to compare with",
        )  # fmt: skip
        return
    share = copy / card.bandwidth_bytes_per_s
    text = (
        f"copies move {format_rate(copy, 'B/s')}, {format_fraction(share)} of the "
        f"{format_rate(card.bandwidth_bytes_per_s, 'B/s')} that the memory of {card.name} could move"
    )
    bad = share > 1.02 or share < REACHABLE
    yield Check(
        id="ceiling-copy",
        group="card",
        status="warn" if bad else "ok",
        text=text,
        next="measure again on a quiet card at full clocks: a ceiling of this run is not the card's" if bad else None,
    )


def _own(declared: Declared, machine: Machine) -> tuple[Card | None, str]:
    """The card that is spoken of, and whose account of it this is."""
    here = machine.spoken_of
    if declared.card is None:
        return (here, here.account) if here else (None, "there is no card here")
    if here is not None and _same(declared.card, here.name):
        return here, here.account
    known = by_name(declared.card)
    return (known, "as NVIDIA sells it") if known else (None, "it is not here, and not in the table of known cards")


def _same(text: str, name: str) -> bool:
    known = by_name(text)
    return text.lower() in name.lower() or (known is not None and known is by_name(name))


def _compare(
    name: str, value: float, true: dict[str, float], own: Card, account: str, wrong: dict[str, float]
) -> Check:
    id_ = f"declared-{name}"
    if name not in true:
        return Check(id=id_, group="card", status="unknown", text=f"{own.name} does not say its {name}")
    if name not in wrong:
        return Check(
            id=id_, group="card", status="ok",
            text=f"{name} {_show(name, value)} agrees with {own.name} ({_show(name, true[name])} {account})",
        )  # fmt: skip
    # What is wrong here, together, points at the card that it was taken from.
    others = [card.name for card in with_figures(wrong) if card is not own]
    whose = f"; it is that of {' or '.join(others)}" if others else ""
    return Check(
        id=id_,
        group="card",
        status="fail",
        text=f"{name} {_show(name, value)} cannot be that of {own.name}, which has {_show(name, true[name])} "
        f"{account}{whose}",
        next=f"withdraw what was derived from it (kdaprof retract) and use {_show(name, true[name])}, "
        "or better a measured ceiling: kdaprof doctor --measure",
    )


def _against_measured(values: dict[str, float], ceilings: Sequence[Ceiling]) -> Iterator[Check]:
    copy, bandwidth = _measured(ceilings, "copy"), values.get("bandwidth")
    if copy is None or bandwidth is None:
        return
    share = copy / bandwidth
    claimed = format_rate(bandwidth, "B/s")
    text = f"copies move {format_rate(copy, 'B/s')}, {format_fraction(share)} of the declared {claimed}"
    if share > 1:
        yield Check(
            id="declared-below-measured", group="card", status="fail", text=text,
            next="the declared bandwidth is too low to be this card's: use the measured rate",
        )  # fmt: skip
    elif share < REACHABLE:
        yield Check(
            id="declared-out-of-reach", group="card", status="warn", text=text,
            next="hold kernels against the measured rate: nothing here comes near the declared one",
        )  # fmt: skip
    else:
        yield Check(id="declared-reachable", group="card", status="ok", text=text)


def _measured(ceilings: Sequence[Ceiling], name: str) -> float | None:
    return next((c.value for c in ceilings if c.name == name and c.provenance == "measured"), None)


def _show(name: str, value: float) -> str:
    if name == "bandwidth":
        return format_rate(value, "B/s")
    if name == "memory":
        return format_bytes(value)
    return f"{value:.1f}" if name == "capability" else f"{value:.0f}"

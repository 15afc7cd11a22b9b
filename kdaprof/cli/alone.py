"""The card to oneself while a verb measures on it: its advisory lock, and what people are told about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kdaprof.cli.ending import tell
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.device import Device
from kdaprof.instruments.lock import card_lock


def card_of(device: Device | None) -> str | None:
    """The PCI id by which the device is locked; None for the CPU, which nobody locks."""
    return None if device is None or device.kind == "cpu" else device.traits.pci_bus_id


@contextmanager
def alone_on(card: str | None, *, command: str, wait_s: float) -> Iterator[tuple[str, ...]]:
    """Hold the card's lock for the whole measurement, its children included; notes on how it was had.

    `card` is its PCI id; with None nothing is locked. Errors: CardInUseError when another run still measures on the
    card after `wait_s` seconds.
    """
    if card is None:
        yield ()
        return
    with card_lock(card, wait_s=wait_s, clock=MonotonicClock(), command=command, waiting=tell) as held:
        if held.missing is not None:
            tell(held.missing)
            yield ("the card was not locked: another kdaprof run on it would not have been kept off",)
        elif held.waited_ns > 1_000_000_000:
            yield (f"waited {held.waited_ns / 1e9:.0f} s for another run on the card to end",)
        else:
            yield ()

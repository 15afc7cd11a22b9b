"""Which cards are watched: as the user names them, else as CUDA_VISIBLE_DEVICES leaves them, else all.

A number is NVML's (that of the bus, as nvidia-smi prints it). CUDA numbers cards its own way unless
CUDA_DEVICE_ORDER=PCI_BUS_ID, so a number in CUDA_VISIBLE_DEVICES is taken for one of NVML only where both must agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kdaprof.errors import UnavailableError, UsageError
from kdaprof.instruments.nvml import Nvml, NvmlDevice
from kdaprof.instruments.reading import Reading

MASK, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


@dataclass(frozen=True, slots=True)
class Card:
    """One place in NVML's list (`index` None: a MIG instance): the device, or why it cannot be opened."""

    index: int | None
    device: Reading[NvmlDevice]

    @property
    def uuid(self) -> str | None:
        """As NVML gives it."""
        return self.device.value.uuid if self.device.value else None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The cards to watch, and what a user should know about the choice."""

    cards: tuple[Card, ...]
    notes: tuple[str, ...] = ()


def choose(nvml: Nvml, wanted: str | None, environ: Mapping[str, str]) -> Chosen:
    """The cards that `wanted` names (`0,1`, UUIDs or their beginnings, PCI ids), else those that CUDA may see.

    Errors: UsageError for a name that no card has; UnavailableError when there is no card at all.
    """
    cards = tuple(Card(index, device) for index, device in enumerate(nvml.devices()))
    if not cards:
        raise UnavailableError("NVML sees no GPU on this machine; on a shared machine ask for one first")
    if wanted is not None:
        return Chosen(tuple(_named(nvml, cards, name, "--gpus") for name in _names(wanted, "--gpus")))
    mask = environ.get(MASK)
    return Chosen(cards) if mask is None else _masked(nvml, cards, mask, environ.get(ORDER, ""))


def _masked(nvml: Nvml, cards: Sequence[Card], mask: str, order: str) -> Chosen:
    names = [name.strip() for name in mask.split(",")]
    if mask.strip() in ("", "-1", "NoDevFiles"):
        return Chosen(tuple(cards), (f"{MASK}={mask!r} hides every card from CUDA; all are watched",))
    numbered = any(name.isdecimal() for name in names)
    kinds = {card.device.value.name().value for card in cards if card.device.value}
    if numbered and order != "PCI_BUS_ID" and len(kinds) > 1:
        text = (
            f"{MASK}={mask} numbers cards of different kinds in CUDA's own order; all are watched (name them: --gpus)"
        )
        return Chosen(tuple(cards), (text,))
    try:
        return Chosen(tuple(_named(nvml, cards, name, MASK) for name in names if name))
    except UsageError as error:
        return Chosen(tuple(cards), (f"{error}; all cards are watched",))


def _names(text: str, flag: str) -> list[str]:
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise UsageError(f"{flag}: nothing named; give numbers, UUIDs or PCI ids, for example 0,1")
    return names


def _named(nvml: Nvml, cards: Sequence[Card], name: str, flag: str) -> Card:
    if name.isdecimal():
        if int(name) < len(cards):
            return cards[int(name)]
        raise UsageError(f"{flag}: there is no GPU {name}; NVML sees {len(cards)} (0 to {len(cards) - 1})")
    if name.startswith("MIG-"):
        return _instance(nvml, name, flag)
    found = [card for card in cards if _matches(card, name)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{card.index} = {card.uuid or 'unknown'}" for card in cards)
    raise UsageError(f"{flag}: {name!r} is {'no card' if not found else 'more than one card'} here; there are {there}")


def _instance(nvml: Nvml, name: str, flag: str) -> Card:
    device = nvml.device(name)
    if device.value is None:
        raise UsageError(f"{flag}: {device.reason}")
    return Card(None, device)


def _matches(card: Card, name: str) -> bool:
    if card.device.value is None:
        return False
    uuid = (card.uuid or "").lower()
    if uuid.startswith(name.lower()) or uuid.removeprefix("gpu-").startswith(name.lower()):
        return True
    return ":" in name and _pci(card.device.value.pci_bus_id().value or "") == _pci(name)


def _pci(text: str) -> str:
    """The domain may have four digits or eight, or be left out."""
    parts = text.lower().split(":")
    return ":".join([(parts[0] if len(parts) == 3 else "0").lstrip("0") or "0", *parts[-2:]])

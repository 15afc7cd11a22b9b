"""What cards are declared to be by their maker: figures to hold a claim against, not to hold a kernel against."""

from __future__ import annotations

from collections.abc import Iterator

from kdaprof.doctor.machine import Card

GB = 10**9

# Name as NVML gives it, without the maker's name; memory as sold. Sources: NVIDIA's data sheets and product pages.
CARDS: tuple[Card, ...] = (
    Card(name="A100-SXM4-80GB", capability=(8, 0), sm_count=108, total_bytes=80 * GB, bandwidth_bytes_per_s=2039e9),
    Card(name="H100 80GB HBM3", capability=(9, 0), sm_count=132, total_bytes=80 * GB, bandwidth_bytes_per_s=3350e9),
    Card(name="H200", capability=(9, 0), sm_count=132, total_bytes=141 * GB, bandwidth_bytes_per_s=4800e9),
    Card(name="B200", capability=(10, 0), sm_count=148, total_bytes=180 * GB, bandwidth_bytes_per_s=8000e9),
    Card(name="GeForce RTX 4090", capability=(8, 9), sm_count=128, total_bytes=24 * GB, bandwidth_bytes_per_s=1008e9),
    Card(name="GeForce RTX 5060 Ti", capability=(12, 0), sm_count=36, total_bytes=16 * GB, bandwidth_bytes_per_s=448e9),
    Card(name="GeForce RTX 5090", capability=(12, 0), sm_count=170, total_bytes=32 * GB, bandwidth_bytes_per_s=1792e9),
)

# Of what a card is sold with, the driver keeps some for itself, and 80 GB may be GB or GiB.
TOLERANCE = {"bandwidth": 0.06, "memory": 0.12, "sms": 0.0, "capability": 0.0}


def figures(card: Card) -> dict[str, float]:
    """The card's figures by the names of `--declare`; those it does not have are absent."""
    found: dict[str, float | None] = {
        "sms": card.sm_count,
        "bandwidth": card.bandwidth_bytes_per_s,
        "memory": card.total_bytes,
        "capability": None if card.capability is None else card.capability[0] + card.capability[1] / 10,
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def agrees(name: str, value: float, own: float) -> bool:
    """Whether a declared figure can be this one."""
    return abs(value - own) <= TOLERANCE[name] * own + 1e-9


def by_name(text: str) -> Card | None:
    """The known card that `text` names: all words of the shorter name stand in the longer, the longest match wins.

    A laptop's card has the desktop's name and other figures: None.
    """
    wanted = _words(text)
    if "laptop" in wanted:
        return None
    found = [card for card in CARDS if _words(card.name) <= wanted or wanted <= _words(card.name)]
    return max(found, key=lambda card: len(_words(card.name) & wanted), default=None)


def with_figures(declared: dict[str, float]) -> Iterator[Card]:
    """Known cards to which all declared figures could belong."""
    for card in CARDS:
        own = figures(card)
        if all(name in own and agrees(name, value, own[name]) for name, value in declared.items()):
            yield card


def _words(text: str) -> set[str]:
    return {word for word in text.lower().replace("-", " ").split() if word not in {"nvidia", "geforce"}}

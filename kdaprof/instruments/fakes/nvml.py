"""The module `pynvml` over cards that a test describes, with the failures it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any


class FakeNvmlError(Exception):
    """An NVML error with its code, as nvidia-ml-py raises it."""

    def __init__(self, value: int, text: str = "") -> None:
        super().__init__(text or f"NVML error {value}")
        self.value = value


@dataclass(frozen=True)
class FakeCard:
    """One card of a fake NVML; `processes` are (pid, bytes); `lost` makes every call on it fail with code 15."""

    uuid: str
    pci_bus_id: str
    name: str = "Fake GPU"
    util_percent: int = 30
    mig_mode: int | None = 0
    lost: bool = False
    processes: tuple[tuple[int, int | None], ...] = ()


class FakePynvml:
    """The part of the module pynvml that kdaprof calls, over `cards`; `codes` makes a function fail by its name.

    `without` removes functions, as an old or a foreign module does.
    """

    NVMLError = FakeNvmlError

    def __init__(
        self, cards: Iterable[FakeCard] = (), *, codes: dict[str, int] | None = None, without: Iterable[str] = ()
    ) -> None:
        self.cards = list(cards)
        self.codes = codes or {}
        self.calls: list[str] = []
        self._without = frozenset(without)

    def lose(self, uuid: str) -> None:
        """The card falls off the bus."""
        self.cards = [replace(card, lost=True) if card.uuid == uuid else card for card in self.cards]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml"):
            if name in self._without:
                raise AttributeError(name)
            self.calls.append(name)
            if name in self.codes:
                return _raiser(self.codes[name])
        return super().__getattribute__(name)

    def nvmlInit(self) -> None:
        """Succeeds."""

    def nvmlShutdown(self) -> None:
        """Succeeds."""

    def nvmlSystemGetDriverVersion(self) -> str:
        """A version."""
        return "580.0"

    def nvmlSystemGetNVMLVersion(self) -> str:
        """A version."""
        return "13.580.0"

    def nvmlDeviceGetCount(self) -> int:
        """All cards."""
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        """A handle is the card's UUID."""
        return self._card(self.cards[index].uuid).uuid

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        """By the full UUID."""
        return self._card(uuid).uuid

    def nvmlDeviceGetHandleByPciBusId(self, pci_bus_id: str) -> str:
        """By PCI id."""
        for card in self.cards:
            if card.pci_bus_id == pci_bus_id:
                return self._card(card.uuid).uuid
        raise FakeNvmlError(6, "Not Found")

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        """The UUID."""
        return self._card(handle).uuid

    def nvmlDeviceGetName(self, handle: str) -> str:
        """The name."""
        return self._card(handle).name

    def nvmlDeviceGetPciInfo(self, handle: str) -> Any:
        """The PCI id, as bytes."""
        return SimpleNamespace(busId=self._card(handle).pci_bus_id.encode())

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        """In percent."""
        return SimpleNamespace(gpu=self._card(handle).util_percent, memory=5)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        """2 GiB of 80."""
        self._card(handle)
        return SimpleNamespace(used=2 << 30, total=80 << 30)

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        """In MHz."""
        self._card(handle)
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: int) -> int:
        """In MHz."""
        self._card(handle)
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        """In mW."""
        self._card(handle)
        return 345_678

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        """In mJ."""
        self._card(handle)
        return 1_000_000 + 1000 * self.calls.count("nvmlDeviceGetTotalEnergyConsumption")

    def nvmlDeviceGetTemperature(self, handle: str, kind: int) -> int:
        """In °C."""
        self._card(handle)
        return 41

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        """Held by the power cap."""
        self._card(handle)
        return 0x4

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        """Those of the card."""
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self._card(handle).processes]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> list[Any]:
        """None."""
        self._card(handle)
        return []

    def nvmlDeviceGetProcessUtilization(self, handle: str, since: int) -> list[Any]:
        """Each process of the card at 25 %."""
        return [SimpleNamespace(pid=pid, smUtil=25) for pid, _ in self._card(handle).processes]

    def nvmlDeviceGetMigMode(self, handle: str) -> tuple[int, int]:
        """Current and pending; not supported where it is None."""
        mode = self._card(handle).mig_mode
        if mode is None:
            raise FakeNvmlError(3, "Not Supported")
        return mode, mode

    def _card(self, uuid: str) -> FakeCard:
        for card in self.cards:
            if card.uuid == uuid:
                if card.lost:
                    raise FakeNvmlError(15, "GPU is lost")
                return card
        raise FakeNvmlError(6, "Not Found")


def _raiser(code: int) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise FakeNvmlError(code)

    return fail

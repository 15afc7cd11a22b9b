"""A GPU with one queue, in fake time."""

from __future__ import annotations

from kdaprof.instruments.device import DeviceKind, DeviceTraits, EventTimer
from kdaprof.instruments.fakes.clock import FakeClock

FAKE_TRAITS = DeviceTraits(
    name="Fake GPU",
    uuid="11111111-2222-3333-4444-555555555555",
    pci_bus_id="00000000:01:00.0",
    capability=(9, 0),
    sm_count=132,
    l2_bytes=50 << 20,
    total_memory_bytes=80 << 30,
)


class FakeDevice:
    """A GPU with one queue: `launch` costs the host and adds to the queue, `synchronize` lets it drain.

    A workload for it is a function that calls `launch`. Without a clock, time does not pass.
    """

    def __init__(
        self,
        clock: FakeClock | None = None,
        *,
        kind: DeviceKind = "cuda",
        index: int | None = 0,
        traits: DeviceTraits = FAKE_TRAITS,
    ) -> None:
        self.kind: DeviceKind = kind
        self.index = index if kind == "cuda" else None
        self.traits = traits
        self.clock = clock or FakeClock()
        self.free_at_ns = 0
        self.synchronized = 0

    def launch(self, host_ns: int, device_ns: int) -> None:
        """Issue one kernel: the host is busy for `host_ns`, the device for `device_ns` after it and its queue."""
        self.clock.advance(host_ns)
        self.free_at_ns = max(self.free_at_ns, self.clock.time_ns) + device_ns

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self.synchronized += 1
        self.clock.time_ns = max(self.clock.time_ns, self.free_at_ns)

    def event_timer(self) -> EventTimer:
        """Events that fall where the queue stands."""
        return _FakeEventTimer(self) if self.kind == "cuda" else _NoSpan()


class _FakeEventTimer:
    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self._marks = [0, 0]

    def start(self) -> None:
        self._marks[0] = max(self._device.free_at_ns, self._device.clock.time_ns)

    def stop(self) -> None:
        self._marks[1] = max(self._device.free_at_ns, self._device.clock.time_ns)

    def elapsed_ns(self) -> int | None:
        return self._marks[1] - self._marks[0]


class _NoSpan:
    def start(self) -> None: ...

    def stop(self) -> None: ...

    def elapsed_ns(self) -> int | None:
        return None

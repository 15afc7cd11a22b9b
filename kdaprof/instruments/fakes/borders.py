"""Marks that fall where a fake device's queue stands."""

from __future__ import annotations

from kdaprof.instruments.fakes.device import FakeDevice


class FakeBorders:
    """Marks of a `FakeDevice`. `cost_ns` is what queuing one costs the host; `made` counts them, `out` those not freed.

    `capturing` stands for a graph capture, in which no mark can be put.
    """

    missing: str | None = None

    def __init__(self, device: FakeDevice, *, cost_ns: int = 0) -> None:
        self.device = device
        self.cost_ns = cost_ns
        self.capturing = False
        self.made = 0
        self.waited = 0
        self.out: set[int] = set()
        self._times: dict[int, int] = {}

    def mark(self) -> object | None:
        """Where the queue ends now, or now where it is empty."""
        if self.capturing:
            return None
        self.device.clock.advance(self.cost_ns)
        self.made += 1
        self.out.add(self.made)
        self._times[self.made] = max(self.device.free_at_ns, self.device.clock.time_ns)
        return self.made

    def reached(self, mark: object) -> bool:
        """Whether fake time has come that far."""
        assert isinstance(mark, int)
        return self.device.clock.time_ns >= self._times[mark]

    def between_ns(self, first: object, second: object) -> int | None:
        """Difference of two marks' places; both must be out."""
        assert isinstance(first, int)
        assert isinstance(second, int)
        assert {first, second} <= self.out
        return self._times[second] - self._times[first]

    def free(self, mark: object) -> None:
        """No longer out; KeyError when it was not."""
        assert isinstance(mark, int)
        self.out.remove(mark)

    def wait(self) -> None:
        """Drain the device."""
        self.waited += 1
        self.device.synchronize()

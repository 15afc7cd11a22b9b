"""Instruments that do what a test tells them, for the tests of every room. No torch, no NVML, no waiting."""

from kdaprof.instruments.fakes.clock import FakeClock
from kdaprof.instruments.fakes.device import FAKE_TRAITS, FakeDevice
from kdaprof.instruments.fakes.graphs import FakeGraphBackend
from kdaprof.instruments.fakes.nvml import FakeCard, FakeNvmlError, FakePynvml
from kdaprof.instruments.fakes.ranges import FakeRanges
from kdaprof.instruments.fakes.sensor import FakeSensor, no_sensor

__all__ = [
    "FAKE_TRAITS",
    "FakeCard",
    "FakeClock",
    "FakeDevice",
    "FakeGraphBackend",
    "FakeNvmlError",
    "FakePynvml",
    "FakeRanges",
    "FakeSensor",
    "no_sensor",
]

"""Power and temperature of the card, read beside single executions: as rows of `gpu_util.parquet`."""

from __future__ import annotations

from kdaprof.instruments.reading import Reading
from kdaprof.instruments.sensor import GpuSensor
from kdaprof.runs.util import UtilReading

POWER, TEMPERATURE = "power_w", "temperature_c"


class CardReadings:
    """Keeps what it reads; a reading takes 4 µs on an H200, outside whatever is timed.

    NVML's power is an average over the last second on Ampere and later: beside samples of a few milliseconds it is
    that of everything that was interleaved with them. In a loop of its own a call has its own power.
    """

    def __init__(self, sensor: GpuSensor) -> None:
        self._sensor = sensor
        self.rows: list[UtilReading] = []

    def read(self, t_ns: int) -> None:
        """Read both now, for the execution that began at `t_ns`."""
        readings: tuple[tuple[str, Reading[float] | Reading[int]], ...] = (
            (POWER, self._sensor.power_w()),
            (TEMPERATURE, self._sensor.temperature_c()),
        )
        self.rows += [
            UtilReading(
                t_ns=t_ns,
                uuid=self._sensor.uuid,
                field=field,
                value=None if reading.value is None else float(reading.value),
                stale=False,
                missing=reading.reason,
            )
            for field, reading in readings
        ]

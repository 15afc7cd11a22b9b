"""What `kdaprof gpu-util` costs: CPU time / time, of one core. `python benchmarks/gpu_util_cost.py [HZ] [SECONDS]`.

With an NVIDIA driver the real cards are watched; without one, as many fake ones as the third argument says, whose
readings cost nothing: what is left is kdaprof's own part.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.fakes import FakeCard, FakePynvml
from kdaprof.instruments.nvml import open_nvml
from kdaprof.instruments.watch.cards import choose
from kdaprof.instruments.watch.spool import Spool
from kdaprof.instruments.watch.watch import WatchPlan, watch
from kdaprof.runs.units import format_fraction, format_ns


class Driver(FakePynvml):
    """A driver that does not keep a list of its calls."""

    @property
    def calls(self) -> list[str]:
        return []

    @calls.setter
    def calls(self, value: list[str]) -> None:
        pass


def main(hz: float, seconds: float, fakes: int) -> None:
    nvml = open_nvml()
    if nvml.value is None:
        cards = [FakeCard(f"GPU-{i}", f"00000000:{i + 1:02x}:00.0") for i in range(fakes)]
        nvml = open_nvml(lambda: Driver(cards))
        print(f"no driver here: {fakes} fake cards")
    assert nvml.value is not None
    chosen = choose(nvml.value, None, {})
    with tempfile.TemporaryDirectory() as folder:
        spool = Spool(Path(folder) / "gpu_util.parquet")
        plan = WatchPlan(hz=hz, command=(), duration_s=seconds)
        outcome = watch(plan, chosen.cards, spool, MonotonicClock(), leave=lambda: None, told=print)
        spool.close()
    record = outcome.record
    share = record.own_cpu_ns / record.span_ns
    print(
        f"{len(chosen.cards)} card(s), {hz:g} Hz, {seconds:g} s: "
        f"{record.samples_taken} of {record.samples_due} samples; "
        f"{format_ns(record.own_cpu_ns / max(1, record.samples_taken))} a sample; {format_fraction(share)} of one core"
    )
    assert threading.active_count() == 1


if __name__ == "__main__":
    given = [float(text) for text in sys.argv[1:]]
    main(*(given[:2] or (2.0, 20.0)), int(given[2]) if len(given) > 2 else 1)  # type: ignore[misc]

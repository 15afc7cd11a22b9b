"""A machine with GPUs for the real command in a process of its own: a module `pynvml` that stands before the real one.

`machine(folder, …)` writes it; the returned variables make a process import it.
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path


def machine(folder: Path, cards: str, *, script: str = "") -> dict[str, str]:
    """Variables for a process that sees `cards` (Python source of FakeCards); `script` may break `driver` later."""
    place = folder / "driver"
    place.mkdir(parents=True, exist_ok=True)
    source = f"""\
import threading, time
from kdaprof.instruments.fakes.nvml import FakeCard, FakeNvmlError as NVMLError, FakePynvml
class Driver(FakePynvml):
    calls = property(lambda self: [], lambda self, value: None)
driver = Driver([{cards}])
{textwrap.dedent(script)}
def __getattr__(name):
    return getattr(driver, name)
"""
    (place / "pynvml.py").write_text(source, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(place), "KDAPROF_TRACEBACK": ""}

"""The ceilings of the card in front of us: copy bandwidth and matmul rates, measured once a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch

from kdaprof.instruments.clock import Clock
from kdaprof.instruments.device import Device
from kdaprof.runs.record import Ceiling

_COPY_BYTES = 1 << 30
_MATMUL = 8192
_REPEATS = 10


def measure_ceilings(device: Device, clock: Clock) -> tuple[Ceiling, ...]:
    """Copy in bytes read + written per second, matmul in FLOP/s by precision; random data, median of 10.

    Random, not zeros: a matmul on zeros draws less power and ran 13 % faster on this kind of card.
    """
    if device.kind != "cuda":
        return ()
    ceilings = [_copy(device, clock)]
    for name, dtype, tf32 in (
        ("matmul_float32", torch.float32, False),
        ("matmul_tf32", torch.float32, True),
        ("matmul_bfloat16", torch.bfloat16, False),
        ("matmul_float16", torch.float16, False),
    ):
        with _tf32(tf32):
            ceilings.append(_matmul(name, dtype, device, clock))
    tf32_rate = next(c.value for c in ceilings if c.name == "matmul_tf32")
    detail = "a third of matmul_tf32: three tf32 products make one product at fp32 accuracy"
    ceilings.append(
        Ceiling(name="matmul_tf32x3", value=tf32_rate / 3, unit="FLOP/s", provenance="derived", detail=detail)
    )
    return tuple(ceilings)


def _copy(device: Device, clock: Clock) -> Ceiling:
    free = torch.cuda.mem_get_info()[0]
    size = min(_COPY_BYTES, free // 8) // 4
    source = torch.randn(size, device="cuda")
    target = torch.empty_like(source)
    seconds = _seconds(lambda: target.copy_(source), device, clock)
    moved = 2 * size * 4
    detail = f"device-to-device copy of {size * 4} B, read + written"
    return Ceiling(name="copy", value=moved / seconds, unit="B/s", provenance="measured", n=_REPEATS, detail=detail)


def _matmul(name: str, dtype: torch.dtype, device: Device, clock: Clock) -> Ceiling:
    n = _MATMUL
    a = torch.randn(n, n, device="cuda", dtype=torch.float32).to(dtype)
    b = torch.randn(n, n, device="cuda", dtype=torch.float32).to(dtype)
    out = torch.empty(n, n, device="cuda", dtype=dtype)
    seconds = _seconds(lambda: torch.mm(a, b, out=out), device, clock)
    detail = f"{n}×{n}×{n}, random data"
    return Ceiling(name=name, value=2 * n**3 / seconds, unit="FLOP/s", provenance="measured", n=_REPEATS, detail=detail)


def _seconds(work: Callable[[], object], device: Device, clock: Clock) -> float:
    """Median seconds of one execution: long enough (≥ 0.2 ms) that the host clock around it is the device's time."""
    for _ in range(3):
        work()
    device.synchronize()
    walls = []
    for _ in range(_REPEATS):
        start = clock.now_ns()
        work()
        device.synchronize()
        walls.append(clock.now_ns() - start)
    return median(walls) / 1e9


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)

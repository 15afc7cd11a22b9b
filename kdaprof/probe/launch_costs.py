"""What the card charges for each launch: an eager kernel, a node of a graph, a cached allocation; by the host clock."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch

from kdaprof.instruments.clock import Clock
from kdaprof.instruments.device import Device
from kdaprof.runs.record import Ceiling

COUNT = 500
_REPEATS = 10


def measure_launch_costs(device: Device, clock: Clock) -> tuple[Ceiling, ...]:
    """Nanoseconds each, medians of 10 batches of 500; nothing without a GPU.

    `launch`: one of many tiny kernels in a row, dispatch included. `graph_node`: one of as many in a replayed graph.
    `alloc`: a tensor out of the allocator's cache and back, host alone.
    """
    if device.kind != "cuda":
        return ()
    x = torch.zeros(1, device="cuda")

    def launches() -> None:
        for _ in range(COUNT):
            x.add_(1)

    def allocations() -> None:
        for _ in range(COUNT):
            torch.empty(1 << 18, device="cuda")

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        launches()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launches()
    parts = (
        ("launch", launches, "an eager add of one element, issued and run"),
        ("graph_node", graph.replay, "the same add as a node of a graph"),
        ("alloc", allocations, "torch.empty of 1 MiB from the allocator's cache"),
    )
    return tuple(_cost(name, batch, detail, device, clock) for name, batch, detail in parts)


def _cost(name: str, batch: Callable[[], None], detail: str, device: Device, clock: Clock) -> Ceiling:
    walls = []
    for _ in range(_REPEATS + 1):
        device.synchronize()
        start = clock.now_ns()
        batch()
        device.synchronize()
        walls.append(clock.now_ns() - start)
    each = median(walls[1:]) / COUNT  # the first batch warms up
    return Ceiling(name=name, value=each, unit="ns", provenance="measured", n=_REPEATS, detail=f"{detail}; of {COUNT}")

"""CUDA Graphs through torch, and the repairs that torch leaves to its callers after a failed capture.

torch 2.11 to 2.13, `CUDAGraph.capture_end`: when `cudaStreamEndCapture` fails it throws before it tells the caching
allocator that the capture is over, and before the generator leaves its capture mode. Left so, frees pile up and the
next random number on the card raises. Importing this module imports torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kdaprof.errors import UnavailableError


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """Bytes torch holds from the driver, and bytes held by tensors, private pools included."""

    reserved_bytes: int
    allocated_bytes: int


class GraphBackend(Protocol):
    """The CUDA side of a capture; the fake one lets the order and the cleaning up be tested without a device."""

    device_type: str

    def synchronize(self) -> None:
        """Wait for the device."""
        ...

    def side_stream(self) -> AbstractContextManager[None]:
        """Work inside goes to the capture stream, ordered after what came before and before what follows."""
        ...

    def save_random(self) -> Any:
        """Random state of host and device."""
        ...

    def restore_random(self, saved: Any, *, after_failure: bool) -> None:
        """Put it back; after a failed capture the generator may still believe that it is capturing."""
        ...

    def new_pool(self) -> Any:
        """A memory pool that graphs of one capture share."""
        ...

    def begin(self, pool: Any) -> Any:
        """Begin to capture on the current stream; gives the graph."""
        ...

    def end(self, graph: Any) -> None:
        """End the capture and make the graph ready to replay."""
        ...

    def abandon(self, graph: Any, pool: Any) -> None:
        """End a broken capture and free what it held; raises nothing."""
        ...

    def replay(self, graph: Any) -> None:
        """Launch the graph on the current stream."""
        ...

    def reset(self, graph: Any) -> None:
        """Free the graph and its pool."""
        ...

    def memory(self) -> PoolMemory:
        """Memory held now."""
        ...


@dataclass(frozen=True, slots=True)
class _RandomState:
    host: torch.Tensor
    device: torch.Tensor
    # A copy of the generator's state object, made before the capture: clean whatever happens to the original.
    clean: torch.Generator


# The pinned-memory allocator keeps a filter that points at the graph, and Python cannot take it back: a graph whose
# capture broke must not be destroyed while the process lives. It is a few hundred bytes.
_BROKEN: list[torch.cuda.CUDAGraph] = []

_SHARED_POOL = (0, 0)
"""The id of the pool that eager code uses."""


class CudaGraphBackend:
    """The current CUDA device's graphs."""

    device_type = "cuda"

    def __init__(self, device_index: int | None = None) -> None:
        if not torch.cuda.is_available():
            raise UnavailableError("no CUDA device: a graph cannot be captured")
        self._index = torch.cuda.current_device() if device_index is None else device_index
        self._stream = torch.cuda.Stream(self._index)  # type: ignore[no-untyped-call]

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self._index)

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """The capture stream as the current one; ordered after the caller's stream, and the caller's after it."""
        outer = torch.cuda.current_stream(self._index)
        self._stream.wait_stream(outer)
        with torch.cuda.stream(self._stream):
            yield
        outer.wait_stream(self._stream)

    def save_random(self) -> _RandomState:
        """Host and device random state."""
        generator = torch.cuda.default_generators[self._index]
        return _RandomState(torch.get_rng_state(), torch.cuda.get_rng_state(self._index), generator.clone_state())

    def restore_random(self, saved: _RandomState, *, after_failure: bool) -> None:
        """Put both back. A generator that a failed capture left stuck gets the clean state object instead."""
        torch.set_rng_state(saved.host)
        torch.cuda.set_rng_state(saved.device, self._index)
        if after_failure and self._generator_is_stuck():
            # Only then: graphs captured earlier follow the old object.
            torch.cuda.default_generators[self._index].graphsafe_set_state(saved.clean)
        torch.cuda.set_rng_state(saved.device, self._index)

    def _generator_is_stuck(self) -> bool:
        try:
            torch.empty(1, device=torch.device("cuda", self._index)).uniform_()
        except RuntimeError:
            return True
        return False

    def new_pool(self) -> Any:
        """A private pool's handle.

        cuBLAS keeps a workspace a stream. The warm-up's lies in the memory of eager code: captured, the graph would
        write there after torch has freed it (`torch.compile` does when it captures a graph, and gives it back to the
        driver: replays end with an illegal access). Dropped here, the workspace is made anew in the graph's own pool.
        """
        torch._C._cuda_clearCublasWorkspaces()
        return torch.cuda.graph_pool_handle()

    def begin(self, pool: Any) -> torch.cuda.CUDAGraph:
        """Begin to capture on the current stream, in thread-local mode.

        Thread-local: other threads (a sampler that reads NVML, a data loader that pins memory) do nothing to the
        captured stream, and the stricter global mode would let them break the capture.
        """
        graph = torch.cuda.CUDAGraph()
        try:
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        except RuntimeError:
            self.abandon(graph, pool)
            raise
        return graph

    def end(self, graph: torch.cuda.CUDAGraph) -> None:
        """End the capture; eager code makes a cuBLAS workspace of its own again."""
        graph.capture_end()
        torch._C._cuda_clearCublasWorkspaces()

    def abandon(self, graph: torch.cuda.CUDAGraph, pool: Any) -> None:
        """End a broken capture, take it from the allocator, free its pool."""
        with suppress(RuntimeError):
            graph.capture_end()
        try:
            graph.pool()
        except RuntimeError:
            # The capture never ended for torch: do what capture_end does after cudaStreamEndCapture. Only then:
            # a pool released twice ends the process when the graph is destroyed.
            for finish in (torch._C._cuda_endAllocateToPool, torch._C._cuda_releasePool):
                with suppress(RuntimeError):
                    finish(self._index, pool)
            _BROKEN.append(graph)
        with suppress(RuntimeError):
            graph.reset()
        torch._C._cuda_clearCublasWorkspaces()

    def replay(self, graph: torch.cuda.CUDAGraph) -> None:
        """Launch the graph on the current stream."""
        graph.replay()

    def reset(self, graph: torch.cuda.CUDAGraph) -> None:
        """Free the graph."""
        graph.reset()

    def memory(self) -> PoolMemory:
        """Memory held now, private pools included."""
        stats = torch._C._cuda_memoryStats(self._index)
        return PoolMemory(stats["reserved_bytes"]["all"]["current"], stats["allocated_bytes"]["all"]["current"])


def private_pools(device_index: int) -> int:
    """Bytes that all graphs' private pools took from the driver, compiled regions' among them."""
    return private_bytes(torch.cuda.memory_snapshot(), device_index)  # type: ignore[no-untyped-call]


def private_bytes(segments: Iterable[Mapping[str, Any]], device_index: int) -> int:
    """Of the segments of a memory snapshot, the bytes of those on one device that eager code cannot use."""
    mine = (segment for segment in segments if segment["device"] == device_index)
    return sum(segment["total_size"] for segment in mine if tuple(segment["segment_pool_id"]) != _SHARED_POOL)

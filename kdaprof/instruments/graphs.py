"""Capturing a call into a CUDA Graph, and leaving the process as it was when that fails.

Around a capture: warm-up on the side stream; garbage collection off (a tensor or kernel freed inside a capture
breaks it); random state saved; the streams ordered. All of it is put back in `finally`. The memory of the private
pool is a figure of its own: it is not given back to eager code while the graph lives. Importing this module
imports torch.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kdaprof.instruments.capturefault import CaptureFailure, explain
from kdaprof.instruments.graph_backend import CudaGraphBackend, GraphBackend, PoolMemory
from kdaprof.instruments.timing import garbage_collection_off

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")
WARMUP = 3


class Captured(Generic[T]):
    """A call as a graph. `outputs` are the static results: every replay overwrites them, so compare copies.

    `pool_bytes` were reserved from the driver for this graph's private pool, `pool_allocated_bytes` of them are
    held by live tensors; eager code cannot use either while the graph lives.
    """

    def __init__(self, backend: GraphBackend, graph: Any, outputs: T, memory: PoolMemory, keep: object) -> None:
        self._backend = backend
        self._graph = graph
        # Kernels and inputs must outlive the graph that points at them.
        self._keep: object = keep
        self.outputs = outputs
        self.pool_bytes = memory.reserved_bytes
        self.pool_allocated_bytes = memory.allocated_bytes

    def replay(self) -> None:
        """Launch the graph on the current stream; does not wait. Errors: RuntimeError after `reset`."""
        if self._graph is None:
            raise RuntimeError("this graph was reset")
        self._backend.replay(self._graph)

    def reset(self) -> None:
        """Free the graph, its pool and its outputs. A second call does nothing."""
        if self._graph is not None:
            self._backend.synchronize()
            self._backend.reset(self._graph)
            self._graph = None
            self._keep = None
            del self.outputs


@dataclass(frozen=True, slots=True)
class CapturedPair(Generic[T, S]):
    """Forward and backward as two graphs over one pool: replay them in this order."""

    forward: Captured[T]
    backward: Captured[S]

    @property
    def pool_bytes(self) -> int:
        """Bytes of the shared pool."""
        return self.forward.pool_bytes + self.backward.pool_bytes

    def reset(self) -> None:
        """Free both graphs and the pool."""
        self.backward.reset()
        self.forward.reset()


def capture(
    fn: Callable[[], T], *, warmup: int = WARMUP, backend: GraphBackend | None = None
) -> Captured[T] | CaptureFailure:
    """Capture one call of `fn` into a graph.

    `fn` reads its inputs from fixed tensors and returns tensors (or a tree of them). It is called `warmup` times
    first, and once more, eagerly, if the capture fails, to name the operation. Raises nothing that `fn` raises:
    a failure is returned.
    """
    session = _Session(backend or CudaGraphBackend())
    return session.run(fn, warmup, lambda pool: session.record(fn, pool))


def capture_pair(
    forward: Callable[[], T],
    backward: Callable[[T], S],
    *,
    warmup: int = WARMUP,
    backend: GraphBackend | None = None,
) -> CapturedPair[T, S] | CaptureFailure:
    """Capture `forward()` and `backward(its outputs)` as two graphs that share a pool and a stream.

    So the backward pass can be replayed and timed alone. `backward` should use `torch.autograd.grad`, so that no
    gradient is accumulated outside the graph. Failures as in `capture`.
    """
    session = _Session(backend or CudaGraphBackend())

    def record(pool: Any) -> CapturedPair[T, S]:
        first = session.record(forward, pool)
        return CapturedPair(first, session.record(lambda: backward(first.outputs), pool))

    return session.run(lambda: backward(forward()), warmup, record)


class _Session:
    """One attempt: the graphs captured so far, so that a failure frees them."""

    def __init__(self, backend: GraphBackend) -> None:
        self._backend = backend
        self._made: list[Captured[Any]] = []

    def run(self, eager: Callable[[], object], warmup: int, record: Callable[[Any], R]) -> R | CaptureFailure:
        """Warm up, then `record` with a new pool; everything put back, and a failure explained."""
        backend = self._backend
        saved = backend.save_random()
        failed: Exception | None = None
        succeeded = False
        gc.collect()
        try:
            with garbage_collection_off():
                with backend.side_stream():
                    for _ in range(warmup):
                        eager()
                backend.synchronize()
                with backend.side_stream():
                    result = record(backend.new_pool())
                succeeded = True
                return result
        except Exception as error:
            failed = error
        finally:
            # Also for an interrupt: a half-made capture must not outlive it.
            backend.restore_random(saved, after_failure=not succeeded)
            if not succeeded:
                self._free()
        try:
            return explain(failed, rerun=eager, device_type=backend.device_type)
        finally:
            # The traceback holds the frames, and with them every tensor of the broken capture.
            failed.__traceback__ = None
            backend.restore_random(saved, after_failure=False)

    def _free(self) -> None:
        for captured in self._made:
            with suppress(Exception):
                captured.reset()
        with suppress(Exception):
            self._backend.synchronize()

    def record(self, fn: Callable[[], T], pool: Any) -> Captured[T]:
        """One graph into `pool`, on the current stream."""
        backend = self._backend
        before = backend.memory()
        graph = backend.begin(pool)
        try:
            outputs = fn()
            backend.end(graph)
        except BaseException:
            backend.abandon(graph, pool)
            raise
        after = backend.memory()
        grown = PoolMemory(after.reserved_bytes - before.reserved_bytes, after.allocated_bytes - before.allocated_bytes)
        captured = Captured(backend, graph, outputs, grown, fn)
        self._made.append(captured)
        return captured

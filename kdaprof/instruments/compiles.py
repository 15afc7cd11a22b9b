"""Sees compilations and autotuning as they happen: Triton's compilation listener, its Autotuner wrapped, TorchDynamo's
callbacks. Nothing is added to a launch but one Python call around an autotuned kernel's.

What was there before is called too, and is back in place afterwards. Importing this module imports torch.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from kdaprof.instruments.clock import Clock
from kdaprof.runs.compiles import Cause, CompileEvent


class CompileTimes(Protocol):
    """What Triton says of one compilation, in µs."""

    @property
    def total(self) -> int:
        """All of it."""
        ...


class CompileWatch:
    """Collects events while `watching()`; `events` holds them in the order of their ends. Safe with threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tried = threading.local()
        self.events: list[CompileEvent] = []

    @contextmanager
    def watching(self) -> Iterator[CompileWatch]:
        """Everything that compiles inside is seen."""
        with ExitStack() as stack:
            for watch in (self._triton, self._autotuner, self._dynamo):
                stack.enter_context(watch())
            yield self

    @contextmanager
    def around(self, cause: Cause, name: str) -> Iterator[None]:
        """An event of the caller's own."""
        start = self._clock.now_ns()
        try:
            yield
        finally:
            self._add(cause, name, start)

    def _add(self, cause: Cause, name: str, start: int, count: int = 1) -> None:
        ns = self._clock.now_ns() - start
        self.events.append(CompileEvent(cause=cause, name=name, start_ns=start, ns=ns, count=count))

    # ---------------------------------------------------------------- Triton

    @contextmanager
    def _triton(self) -> Iterator[None]:
        try:
            from triton import knobs  # noqa: PLC0415  absent where torch has no CUDA
        except ImportError:
            yield
            return
        before = knobs.compilation.listener

        def listener(*, metadata: dict[str, Any], times: CompileTimes, cache_hit: bool, **others: Any) -> None:
            self.compiled(str(metadata.get("name", "kernel")), times.total * 1000, cached=cache_hit)
            if before is not None:
                before(metadata=metadata, times=times, cache_hit=cache_hit, **others)

        knobs.compilation.listener = listener
        try:
            yield
        finally:
            knobs.compilation.listener = before

    def compiled(self, name: str, ns: int, *, cached: bool) -> None:
        """Triton has just finished a kernel that took `ns`."""
        end = self._clock.now_ns()
        cause: Cause = "triton-cached" if cached else "triton"
        self.events.append(CompileEvent(cause=cause, name=name, start_ns=end - ns, ns=ns))

    @contextmanager
    def _autotuner(self) -> Iterator[None]:
        try:
            from triton.runtime.autotuner import Autotuner  # noqa: PLC0415  absent where torch has no CUDA
        except ImportError:
            yield
            return
        run, bench = Autotuner.run, Autotuner._bench
        Autotuner.run, Autotuner._bench = self._tuning(run), self._trying(bench)
        try:
            yield
        finally:
            Autotuner.run, Autotuner._bench = run, bench

    def _trying(self, bench: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(bench)
        def counted(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            self._tried.count = getattr(self._tried, "count", 0) + 1
            return bench(tuner, *args, **kwargs)

        return counted

    def _tuning(self, run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def timed(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            start, before = self._clock.now_ns(), getattr(self._tried, "count", 0)
            try:
                return run(tuner, *args, **kwargs)
            finally:
                tried = getattr(self._tried, "count", 0) - before
                if tried:
                    self._add("autotune", str(getattr(tuner.base_fn, "__name__", "kernel")), start, tried)

        return timed

    # ---------------------------------------------------------------- torch.compile

    @contextmanager
    def _dynamo(self) -> Iterator[None]:
        from torch._dynamo.callback import callback_handler  # noqa: PLC0415  seconds of import, for who watches only

        began: list[int] = []

        def start(_: object) -> None:
            began.append(self._clock.now_ns())

        def end(args: object) -> None:
            if began:
                self._add("torch.compile", f"frame {getattr(args, 'compile_id', '?')}", began.pop())

        callback_handler.register_start_callback(start)
        callback_handler.register_end_callback(end)
        try:
            yield
        finally:
            callback_handler.remove_start_callback(start)
            callback_handler.remove_end_callback(end)

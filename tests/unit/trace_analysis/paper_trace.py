"""Kineto traces made by hand: times are given in integer nanoseconds, so that every answer is known exactly."""

from __future__ import annotations

import json
from pathlib import Path

from kdaprof.timeline import kineto
from kdaprof.timeline.columns import Timeline

PID, MAIN = 100, 100


def micros(ns: int) -> str:
    """Microseconds with three decimals, as profilers write them, without a float in between."""
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


class PaperTrace:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.meta: dict[str, object] = {}
        self._correlation = 0

    def event(self, cat: str, name: str, start: int, end: int, *, pid: object, tid: object, **args: object) -> None:
        fields = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
        body = json.dumps(fields)[:-1]
        times = f'"ts": {micros(start)}, "dur": {micros(end - start)}'
        self.events.append(f'{body}, {times}, "args": {json.dumps(args)}}}')

    def op(self, name: str, start: int, end: int, tid: int = MAIN) -> None:
        self.event("cpu_op", name, start, end, pid=PID, tid=tid)

    def annotation(self, name: str, start: int, end: int, tid: int = MAIN) -> None:
        self.event("user_annotation", name, start, end, pid=PID, tid=tid)

    def python(self, name: str, start: int, end: int, tid: int = MAIN) -> None:
        self.event("python_function", name, start, end, pid=PID, tid=tid)

    def call(self, name: str, start: int, end: int, *, tid: int = MAIN, driver: bool = False) -> int:
        self._correlation += 1
        cat = "cuda_driver" if driver else "cuda_runtime"
        self.event(cat, name, start, end, pid=PID, tid=tid, correlation=self._correlation)
        return self._correlation

    def kernel(
        self,
        start: int,
        end: int,
        correlation: int | None,
        *,
        name: str = "a_kernel",
        cat: str = "kernel",
        stream: int = 7,
        device: int = 0,
    ) -> None:
        link = {} if correlation is None else {"correlation": correlation}
        self.event(cat, name, start, end, pid=device, tid=stream, device=device, stream=stream, **link)

    def launch(
        self,
        call: tuple[int, int],
        kernel: tuple[int, int],
        *,
        api: str = "cudaLaunchKernel",
        tid: int = MAIN,
        name: str = "a_kernel",
        cat: str = "kernel",
        stream: int = 7,
        device: int = 0,
        driver: bool = False,
    ) -> int:
        correlation = self.call(api, *call, tid=tid, driver=driver)
        self.kernel(*kernel, correlation, name=name, cat=cat, stream=stream, device=device)
        return correlation

    def text(self) -> str:
        meta = "".join(f'"{key}": {json.dumps(value)},\n  ' for key, value in self.meta.items())
        return '{\n  "schemaVersion": 1,\n  ' + meta + '"traceEvents": [\n  ' + ",\n  ".join(self.events) + "\n  ]\n}"

    def write(self, path: Path) -> Path:
        path.write_text(self.text())
        return path

    def timeline(self, folder: Path) -> Timeline:
        return kineto.read(self.write(folder / "paper.json"))

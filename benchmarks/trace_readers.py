"""How fast and how lean `kdaprof analyze` is on a large trace, beside json.loads and HolisticTraceAnalysis.

    python benchmarks/trace_readers.py ../shared/traces/a100-graphs-orphans.json.gz
    python benchmarks/trace_readers.py SMALL.json.gz --megabytes 470 --hta-python /path/with/hta/bin/python

The large trace is made by repeating the small one with shifted times and correlations. Each reader runs in a
process of its own, rounds interleaved; wall time and peak memory are those of the process. Not a test: the machine
and its load decide, so compare only what one run printed.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

READERS = {
    "kdaprof, read and analyse": """
from pathlib import Path
from kdaprof.timeline.load import load
from kdaprof.analysis.trace.report import analyse
print(len(analyse(load(Path(FILE))).devices))
""",
    "kdaprof, read": """
from pathlib import Path
from kdaprof.timeline.load import load
print(len(load(Path(FILE))))
""",
    "json.loads": """
import json
print(len(json.loads(open(FILE, "rb").read())["traceEvents"]))
""",
}
HTA = """
import shutil, tempfile, pathlib
from hta.trace_analysis import TraceAnalysis
with tempfile.TemporaryDirectory() as folder:
    shutil.copy(FILE, pathlib.Path(folder) / "rank0.json")
    print(len(TraceAnalysis(trace_dir=folder).t.traces))
"""


@dataclass(frozen=True, slots=True)
class Run:
    wall_s: float
    peak_mb: int


def repeat_trace(small: Path, target: Path, size: int) -> int:
    """Write a trace of about `size` bytes; returns how often the small one stands in it."""
    raw = small.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    begin = text.index("[", text.index('"traceEvents"')) + 1
    end = text.rindex("]", 0, text.rindex('"traceName"') if '"traceName"' in text else len(text))
    head, body, tail = text[:begin], text[begin:end].rstrip(), text[end:]
    starts = [float(value) for value in re.findall(r'"ts": ([\d.]+)', body)]
    span = int(max(starts) - min(starts)) + 1000
    correlations = max(int(value) for value in re.findall(r'"correlation": (\d+)', body)) + 1
    numbers = re.compile(r'"(ts|correlation|id)": (\d+)')
    copies = written = 0
    with target.open("w") as out:
        out.write(head)
        while written < size:
            shift = {"ts": span * copies, "correlation": correlations * copies, "id": correlations * copies}
            shifted = numbers.sub(lambda m, by=shift: f'"{m[1]}": {int(m[2]) + by[m[1]]}', body)
            out.write(("," if copies else "") + shifted)
            written += len(shifted)
            copies += 1
        out.write("\n  " + tail)
    return copies


def measure(python: str, code: str, file: Path) -> Run | None:
    """One run in a process of its own; None when it failed."""
    begin = time.perf_counter()
    child = subprocess.Popen(
        [python, "-c", f"FILE = {str(file)!r}\n{code}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    with child.stderr as errors:  # type: ignore[union-attr]
        said = errors.read().decode(errors="replace")
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        print(said.strip().splitlines()[-1] if said.strip() else "failed", file=sys.stderr)
        return None
    return Run(wall, usage.ru_maxrss // 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("small", type=Path, help="a Kineto trace to repeat")
    parser.add_argument("--megabytes", type=int, default=470)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hta-python", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--no-json", action="store_true", help="leave json.loads out (it takes gigabytes)")
    args = parser.parse_args()
    readers = {
        name: (sys.executable, code) for name, code in READERS.items() if name != "json.loads" or not args.no_json
    }
    if args.hta_python:
        readers["HolisticTraceAnalysis, load"] = (args.hta_python, HTA)
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.json"
        copies = repeat_trace(args.small, large, args.megabytes * 1_000_000)
        print(f"{large.stat().st_size / 1e6:.0f} MB, {copies} × {args.small.name}, {os.cpu_count()} cores")
        runs: dict[str, list[Run]] = {name: [] for name in readers}
        for _ in range(args.rounds):
            for name, (python, code) in readers.items():
                run = measure(python, code, large)
                if run is not None:
                    runs[name].append(run)
    print(f"{'reader':<32}{'median s':>10}{'min s':>8}{'max s':>8}{'peak MB':>9}")
    for name, done in runs.items():
        if not done:
            print(f"{name:<32}{'failed':>10}")
            continue
        walls = [run.wall_s for run in done]
        print(
            f"{name:<32}{statistics.median(walls):>10.2f}{min(walls):>8.2f}{max(walls):>8.2f}"
            f"{max(run.peak_mb for run in done):>9}"
        )


if __name__ == "__main__":
    main()

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kdaprof.instruments import tracefile
from kdaprof.instruments.tracefile import rewrite_trace

BASE = 1_700_000_000_000_000_000
HEAD = f'{{"host_name": "secret-box",\n"baseTimeNanoseconds": {BASE},\n"traceEvents": ['


def raw_trace(tmp_path: Path, events: list[dict[str, object]]) -> Path:
    path = tmp_path / "raw.json"
    body = ",\n".join(json.dumps(event) for event in events)
    path.write_text(f'{HEAD}\n{body}\n], "traceName": "/secret/place.json"}}')
    return path


KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1.5, "dur": 2.0}
LAUNCH = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1.0, "dur": 0.2}
COPY = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy", "ts": 9.0, "dur": 0.2}
OPERATOR = {"ph": "X", "cat": "cpu_op", "name": "kernel", "ts": 1.0, "dur": 0.2}


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_counts_ranges_and_name_of_host(tmp_path: Path, name: str) -> None:
    raw = raw_trace(tmp_path, [OPERATOR, LAUNCH, KERNEL, COPY])
    out = tmp_path / name
    contents = rewrite_trace(raw, out, [("kdaprof.repeat#0", BASE + 1_234_567, 8_001)], pid=1, tid=2)
    assert (contents.device_events, contents.runtime_calls, contents.base_unix_ns) == (2, 1, BASE)
    data = out.read_bytes()
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
    assert "secret" not in text
    assert '"ts": 1234.567, "dur": 8.001' in text
    events = json.loads(text)["traceEvents"]
    assert [e["name"] for e in events] == ["kdaprof.repeat#0", "kernel", "cudaLaunchKernel", "k", "Memcpy"]
    assert (events[0]["pid"], events[0]["tid"], events[0]["cat"]) == (1, 2, "user_annotation")


def test_an_empty_trace_stays_valid_json(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    rewrite_trace(raw_trace(tmp_path, []), out, [("a", BASE, 1), ("b", BASE - 1, 2)], pid=1, tid=1)
    events = json.loads(out.read_text())["traceEvents"]
    assert [(e["name"], e["ts"]) for e in events] == [("a", 0.0), ("b", -0.001)]
    rewrite_trace(raw_trace(tmp_path, []), out, [], pid=1, tid=1)
    assert json.loads(out.read_text())["traceEvents"] == []


def test_events_on_the_border_of_a_piece_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracefile, "_OVERLAP", 64)
    monkeypatch.setattr(tracefile, "_FOOT", 64)
    raw = raw_trace(tmp_path, [KERNEL] * 50)
    for size in (130, 137, 150, 1000):
        monkeypatch.setattr(tracefile, "_CHUNK", size)
        assert sum(1 for _ in tracefile._chunks(raw)) > 1
        counted = rewrite_trace(raw, tmp_path / "out.json", [], pid=1, tid=1)
        assert counted.device_events == 50
        whole = json.loads((tmp_path / "out.json").read_text())
        assert (len(whole["traceEvents"]), whole["traceName"]) == (50, "")


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    raw = raw_trace(tmp_path, [KERNEL])
    for name in ("a.json.gz", "b.json.gz"):
        rewrite_trace(raw, tmp_path / name, [("r", BASE, 1)], pid=1, tid=1)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()

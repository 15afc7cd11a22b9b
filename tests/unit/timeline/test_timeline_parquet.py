"""A timeline survives its Parquet file: values, nulls, text, source; foreign and newer files are refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.append(str(Path(__file__).parents[1] / "trace_analysis"))
from paper_trace import PaperTrace

from kdaprof.analysis.trace.context import attributed
from kdaprof.errors import BadFileError
from kdaprof.timeline import parquet
from kdaprof.timeline.columns import COLUMNS, Timeline


def timeline(folder: Path) -> Timeline:
    made = PaperTrace()
    made.meta = {"baseTimeNanoseconds": 5, "distributedInfo": {"rank": 1, "world_size": 2}}
    made.annotation("ProfilerStep#0", 0, 50_000)
    made.annotation("fwd", 500, 30_000)
    made.op("aten::add", 1_000, 5_000)
    made.launch((2_000, 3_000), (4_000, 5_000))
    made.kernel(6_000, 7_000, None, name="lonely")
    return attributed(made.timeline(folder))


def test_round_trip(tmp_path: Path) -> None:
    before = timeline(tmp_path)
    path = tmp_path / "timeline-0.parquet"
    parquet.write(path, before)
    after = parquet.read(path)
    for column in COLUMNS:
        if column in ("name", "phase", "stack"):
            texts = [[t.names[i] if i >= 0 else None for i in getattr(t, column).tolist()] for t in (before, after)]
            assert texts[0] == texts[1]
        else:
            assert getattr(before, column).tolist() == getattr(after, column).tolist()
            assert getattr(before, column).dtype == getattr(after, column).dtype
    assert before.threads == after.threads
    assert (after.source.rank, after.source.base_ns, after.source.complete) == (1, 5, True)
    assert after.source.path == "paper.json", "folders of the machine stay there"


def test_what_is_missing_is_null_and_schema_and_names_are_the_contract_s(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    parquet.write(path, timeline(tmp_path))
    table = pq.read_table(path)
    assert table.column_names[:11] == [
        "kind", "name", "start_ns", "end_ns", "device", "stream", "thread", "correlation", "graph_node", "step",
        "phase",
    ]  # fmt: skip
    assert table.schema.metadata[b"schema"] == b"kdaprof.timeline"
    assert table.schema.metadata[b"version"] == b"1"
    rows = {row["name"]: row for row in table.to_pylist()}
    assert rows["aten::add"]["device"] is None
    assert rows["lonely"]["correlation"] is None
    assert rows["a_kernel"]["phase"] == "fwd"
    assert rows["a_kernel"]["step"] == 0
    assert rows["a_kernel"]["kind"] == "kernel"
    assert not any(-1 in column.to_pylist() for column in table.columns)


def test_empty(tmp_path: Path) -> None:
    none = timeline(tmp_path).take(np.zeros(6, dtype=np.bool_))
    parquet.write(tmp_path / "e.parquet", none)
    assert len(parquet.read(tmp_path / "e.parquet")) == 0


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({}, "not a timeline of kdaprof"),
        ({"schema": "other", "version": "1"}, "not a timeline of kdaprof"),
        ({"schema": "kdaprof.timeline", "version": "2"}, "upgrade kdaprof"),
        ({"schema": "kdaprof.timeline", "version": "1"}, "damaged timeline"),
    ],
)
def test_other_files_are_refused_with_the_way_out(tmp_path: Path, metadata: dict[str, str], says: str) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(metadata), path)
    with pytest.raises(BadFileError, match=says):
        parquet.read(path)


def test_a_truncated_file_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    parquet.write(path, timeline(tmp_path))
    whole = path.read_bytes()
    for size in (0, 3, 4, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(BadFileError):
            parquet.read(path)

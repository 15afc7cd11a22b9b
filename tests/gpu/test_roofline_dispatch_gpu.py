"""`roofline` and `dispatch` on a card: ceilings measured there, and kernels that agree with the gate."""

from __future__ import annotations

import json

import jsonschema
import pytest

from kdaprof.analysis.roofline_document import roofline_schema
from kdaprof.cli.main import main
from kdaprof.errors import Exit
from kdaprof.runs.dispatch import dispatch_schema

pytestmark = pytest.mark.gpu


def test_ceilings_are_measured_where_there_is_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "--json", "--paths", "fused"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, roofline_schema())
    ceilings = {ceiling["name"]: ceiling for ceiling in found["ceilings"]}
    assert {"copy", "matmul_float32", "matmul_tf32", "launch", "graph_node", "alloc"} <= ceilings.keys()
    assert ceilings["copy"]["provenance"] == "measured"
    assert 0 < ceilings["graph_node"]["value"] < ceilings["launch"]["value"]
    assert found["serial"]["sms"] > 0
    assert all(base["floor_ns"]["quotable"] for base in found["bases"] if base["bytes"] is not None)


@pytest.mark.filterwarnings("ignore")
def test_the_kernels_agree_with_the_gate_in_every_context(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dispatch", "--ops", "kda,sdpa", "--dtypes", "float32,bfloat16", "--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, dispatch_schema())
    rows = [row for row in found["rows"] if row["op"] == "kda"]
    assert {row["evidence"]["verdict"] for row in rows if row["shape"]["B"]} <= {"confirmed", "partial"}
    assert {row["context"] for row in rows if row["chosen"] != "fused" and row["shape"]["K"] % 16 == 0} == {"vmap"}
    assert {row["status"] for row in found["rows"] if row["op"] == "sdpa"} <= {"ok", "unavailable"}

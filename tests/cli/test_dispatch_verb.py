"""`kdaprof dispatch` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from kdaprof.analysis.view import KernelRow
from kdaprof.cli.main import main
from kdaprof.errors import Exit
from kdaprof.probe.dispatch import matrix
from kdaprof.probe.dispatch.seen import Seen
from kdaprof.runs.dispatch import dispatch_schema, read_table

ONE = ("--ops", "kda,sdpa,fla", "--contexts", "plain", "--dtypes", "float32", "--device", "cpu")


def test_a_table_is_valid_saved_once_and_read_by_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "table.json"
    assert main(["dispatch", *ONE, "--json", "--save", str(saved)]) == Exit.OK
    out, err = capsys.readouterr()
    assert not err
    found = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    jsonschema.validate(found, dispatch_schema())
    assert {row["op"] for row in found["rows"]} == {"kda", "sdpa", "fla"}
    assert found["changes"] is None
    assert read_table(saved).rows[0].chosen == found["rows"][0]["chosen"]
    assert main(["dispatch", *ONE, "--save", str(saved)]) == Exit.USAGE
    assert "--force" in capsys.readouterr().err
    assert main(["dispatch", *ONE, "--against", str(saved)]) == Exit.OK
    out = capsys.readouterr().out
    assert "No path changed" in out
    assert "[1] device cpu" in out
    assert not any("…" in line for line in out.splitlines())


def test_a_changed_row_exits_three_and_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "table.json"
    assert main(["dispatch", *ONE, "--save", str(saved)]) == Exit.OK
    document = json.loads(saved.read_bytes())
    document["rows"][0]["chosen"] = "fused"
    saved.write_text(json.dumps(document))
    capsys.readouterr()
    assert main(["dispatch", *ONE, "--against", str(saved)]) == Exit.REGRESSION
    assert "kda/plain/B2-T32-H2-K32-V32-C16/float32: fused → tensor: device cpu" in capsys.readouterr().out
    document["device"] = "cuda"
    saved.write_text(json.dumps(document))
    assert main(["dispatch", *ONE, "--against", str(saved)]) == Exit.USAGE
    assert "made on cuda" in capsys.readouterr().err
    saved.write_text("{")
    assert main(["dispatch", *ONE, "--against", str(saved)]) == Exit.ERROR
    capsys.readouterr()
    for place, says in ((tmp_path, "is a directory"), (tmp_path / "absent.json", "no such file")):
        assert main(["dispatch", *ONE, "--against", str(place)]) == Exit.ERROR
        assert (
            capsys.readouterr().err == f"kdaprof: {place}: {says}; save a table first: `kdaprof dispatch --save FILE`\n"
        )


def test_a_row_that_one_table_lacks_is_said_since_it_is_not_guarded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "table.json"
    words = ["dispatch", "--ops", "kda", "--dtypes", "float32", "--device", "cpu", "--shape", "1,8,1,16,16"]
    assert main([*words, "--contexts", "plain,no_grad", "--save", str(saved)]) == Exit.OK
    capsys.readouterr()
    assert main([*words, "--contexts", "plain,inference", "--against", str(saved)]) == Exit.OK
    out = capsys.readouterr().out
    assert "in the saved table alone: kda/no_grad/B1-T8-H1-K16-V16-C16/float32\n" in out
    assert "in this one alone: kda/inference/B1-T8-H1-K16-V16-C16/float32\n" in out
    assert main([*words, "--contexts", "plain,no_grad", "--against", str(saved)]) == Exit.OK
    assert "Not compared" not in capsys.readouterr().out
    assert main([*words, "--contexts", "plain", "--against", str(saved), "--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, dispatch_schema())
    assert found["not_compared"] == {"only_saved": ["kda/no_grad/B1-T8-H1-K16-V16-C16/float32"], "only_now": []}


def test_a_witness_against_the_gate_is_a_change_unless_it_was_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = ("--ops", "kda", "--contexts", "plain", "--dtypes", "float32", "--device", "cpu")
    saved = tmp_path / "table.json"
    assert main(["dispatch", *ours, "--save", str(saved)]) == Exit.OK
    kernel = KernelRow(name="kdaprof_forward", calls=1, busy_ns=1_000)
    monkeypatch.setattr(matrix, "kernels_of_call", lambda *_: Seen(kernels=(kernel,), launches=1))
    capsys.readouterr()
    assert main(["dispatch", *ours]) == Exit.OK  # it is said, and compared with nothing
    assert "Contradicted: kda/plain/" in capsys.readouterr().out
    assert main(["dispatch", *ours, "--against", str(saved)]) == Exit.REGRESSION
    out = capsys.readouterr().out
    assert "tensor → fused: the gate says tensor, kernels say fused: 1 of 1 device events" in out
    known = tmp_path / "known.json"
    assert main(["dispatch", *ours, "--save", str(known)]) == Exit.OK
    assert main(["dispatch", *ours, "--against", str(known)]) == Exit.OK


@pytest.mark.parametrize(
    "words",
    [
        ["--ops", "rope"],
        ["--ops", ","],
        ["--contexts", "sideways"],
        ["--contexts", ""],
        ["--dtypes", ""],
        ["--dtypes", "int8"],
        ["--shape", "1,2"],
        ["--device", "tpu"],
        ["--model", "--ops", "kda"],
        ["--ops", "sdpa", "--contexts", "ddp"],
        ["x"],
    ],
)
def test_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dispatch", *words]) == Exit.USAGE
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("place", ["/proc/x", "/dev/null/x"])
def test_a_table_that_cannot_be_saved_is_said_before_anything_is_called(
    place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matrix, "op_rows", lambda *_, **__: pytest.fail("called"))
    assert main(["dispatch", "--save", place]) == Exit.ERROR
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"kdaprof: {place}: cannot write (")
    assert err.count("\n") == 1

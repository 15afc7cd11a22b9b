from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from ab_parts import GATE, HEAD, REVISIONS, SHAPES, TARGETS, contract

from kdaprof.analysis.ab.contract import NonRegression, PeakChange, StageShare
from kdaprof.analysis.ab.reading import digest, parse_contract, read_contract
from kdaprof.cli.ab_example import EXAMPLE
from kdaprof.errors import UsageError

BODY = TARGETS + SHAPES
SHARE = '[[gates]]\nkind = "stage-share"\n'
PATHS = 'kind = "paths"\nbase = "tensor"\ncand = "fused"\n'
SIZED = '[[shapes]]\nname = "big"\nsize = "1,16,1,16,16"\n'


def test_the_example_is_a_contract_with_every_kind_of_gate_but_one_that_stands_as_a_comment() -> None:
    found = parse_contract(EXAMPLE, "example")
    kinds = {gate.__struct_config__.tag for gate in found.gates}
    assert kinds == {"stage-share", "speedup", "geomean", "any-speedup", "non-regression"}
    with_peaks = parse_contract(EXAMPLE.replace("# [[gates]]", "[[gates]]").replace('# kind = "peak', 'kind = "peak')
                                .replace('# shapes = ["public"]', 'shapes = ["public"]')
                                .replace("# at_most_bytes", "at_most_bytes"), "example")  # fmt: skip
    assert isinstance(with_peaks.gates[-1], PeakChange)


def test_shapes_are_chosen_by_name_or_role_and_all_without_either() -> None:
    found = contract(BODY + GATE + '[[gates]]\nkind = "non-regression"\nroles = ["control"]\n'
                     + '[[gates]]\nkind = "non-regression"\n')  # fmt: skip
    assert [[shape.name for shape in found.chosen(gate)] for gate in found.gates] == [
        ["big"],
        ["small"],
        ["big", "small"],
    ]
    assert isinstance(found.gates[1], NonRegression)
    assert found.gates[1].band == 0.02


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (BODY + GATE + "colour = 1\n", "unknown field `colour` - at `$.gates[0]`"),
        (BODY + GATE.replace("speedup", "speed"), "Invalid value 'speed' - at `$.gates[0].kind`"),
        (BODY + GATE.replace("1.1", '"1.1"'), "Expected `float`, got `str` - at `$.gates[0].min`"),
        (BODY + GATE.replace("min = 1.1", ""), "missing required field `min`"),
        (BODY + GATE.replace("1.1", "0"), "gate 1: min = 0.0: a speedup"),
        (TARGETS + SHAPES, "missing required field `gates`"),
        ("gates = []\n" + TARGETS + SHAPES, "no [[gates]]"),
        ("shapes = []\n" + TARGETS + GATE, "no [[shapes]]"),
        (BODY + GATE.replace('"big"', '"huge"'), "gate 1: shape 'huge' is not in [[shapes]]: big, small"),
        (BODY + GATE.replace('shapes = ["big"]', 'roles = ["fallback"]'), "no shape has a role of fallback"),
        (TARGETS + SHAPES + SHAPES + GATE, "shape 'big': named twice"),
        (TARGETS + SHAPES.replace("big", "../x") + GATE, "shape '../x': letters"),
        (TARGETS + SHAPES.replace("big", "..") + GATE, "shape '..': letters"),
        (BODY + 'size = "1,2"\n' + GATE, "size belongs to kind \"paths\""),
        (BODY + GATE + "[measure]\nrounds = 4\n", "fewer than 5 rounds establish nothing"),
        (BODY + GATE + "[measure]\nsamples = 5\n", "measure.samples = 5: an even number"),
        (BODY + GATE + "[measure]\nwarmup = -1\n", "measure.warmup = -1"),
        (BODY + GATE + "[measure]\nseed = -1\n", "measure.seed = -1"),
        (BODY + GATE + "[measure]\ntimeout_s = 0\n", "timeout_s: more than 0"),
        (BODY + GATE + "[attempts]\nmost = 0\n", "attempts.most = 0"),
        (BODY + GATE + '[repository]\ncommand = ["x"]\n', 'belongs to kind "revisions", not \'targets\''),
        ('kind = "revisions"\n' + SHAPES + GATE, 'needs [repository] with a command'),
        (REVISIONS + SHAPES + 'env.A = "1"\n' + GATE + '[repository]\ncommand = ["x"]\n', "KDAPROF_AB_SHAPES"),
        (BODY + GATE + '[frozen.files]\n"a.py" = "12"\n', "frozen.files 'a.py': '12' is no SHA-256"),
        (PATHS + SHAPES + GATE, "shape 'big': kind \"paths\" needs size"),
        (PATHS + SIZED.replace("1,16,1,16,16", "1,16") + GATE, "shape 'big': size '1,16': needs 5 sizes"),
        (PATHS + SIZED + GATE + '[op]\nphase = "step"\n', "op.phase 'step'"),
        (PATHS + SIZED + GATE + '[op]\ndtype = "int8"\n', "op.dtype 'int8'"),
        (PATHS + SIZED + GATE + "[op]\nchunk = 0\n", "op.chunk = 0"),
        (BODY + '[[gates]]\nkind = "peak-change"\n', "gate 1: peak-change needs at_most"),
        (BODY + '[[gates]]\nkind = "non-regression"\nband = 1.5\n', "gate 1: band = 1.5"),
        (BODY + SHARE + 'min = 0.2\n', "needs either share"),
        (BODY + SHARE + 'min = 0.2\nshare = 0.3\n', "needs source"),
        (BODY + SHARE + 'min = 0.2\nrun = "r"\n', "needs its cell"),
        (BODY + SHARE + 'min = 20\nshare = 0.3\nsource = "x"\n', "min = 20.0: a fraction"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_one_line_with_its_place(body: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        contract(body)
    text = str(caught.value)
    assert text.startswith("contract.toml: ")
    assert says in text
    assert "\n" not in text


def test_a_file_that_is_no_contract(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    with pytest.raises(UsageError, match=r"cannot read.*--example"):
        read_contract(path)
    for content, says in (
        (b"\xff\xfe", "cannot read"),
        (b"a = = 1", "not valid TOML"),
        (b'schema = "x/1"', "schema 'x/1'"),
    ):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=says):
            read_contract(path)
    with pytest.raises(UsageError, match="name 'Big One'"):
        parse_contract((HEAD + BODY + GATE).replace('"trial"', '"Big One"'), "c")


def test_the_digest_leaves_out_the_candidate_and_nothing_else() -> None:
    found = contract()
    assert digest(found) == digest(msgspec.structs.replace(found, cand="m:c"))
    assert digest(found) != digest(msgspec.structs.replace(found, base="m:c"))
    assert digest(found) != digest(contract(BODY + GATE.replace("1.1", "1.05")))
    assert isinstance(contract(BODY + SHARE + 'min = 0.2\nshare = 0.3\nsource = "p"\n').gates[0],
                      StageShare)  # fmt: skip

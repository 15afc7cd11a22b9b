"""`kdaprof ncu` as a user calls it, with a tool that only looks like ncu: lines, tables, JSON, refusals."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import jsonschema
import pytest
from refused_places import assert_one_line_about

sys.path.append(str(Path(__file__).parents[1] / "unit" / "timeline"))
from test_ncu_csv import wide

from kdaprof.analysis.ncu_document import ncu_schema
from kdaprof.cli.main import main
from kdaprof.errors import Exit
from kdaprof.kda.cost import OpSize
from kdaprof.kda.traffic import work
from kdaprof.runs.units import format_bytes

FAKE = """\
#!{python}
import os, subprocess, sys
words = sys.argv[1:]
log = next(w.split("=", 1)[1] for w in words if w.startswith("--log-file="))
end = max(i for i, w in enumerate(words) if w.startswith("--log-file=")) + 1
assert os.environ["LC_ALL"] == "C.UTF-8"
code = subprocess.call(words[end:])
text = os.environ.get("FAKE_CSV", "")
if text != "none":
    open(log, "w").write(text)
sys.exit(code)
"""
RANGE = '"{}:kdaprof:{}:none:none:ARGB:0xff008000:registered:{}"'
REFUSED = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters\n"


@pytest.fixture
def fake_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tool = tmp_path / "ncu"
    tool.write_text(FAKE.format(python=sys.executable))
    tool.chmod(0o755)
    monkeypatch.setenv("KDAPROF_NCU", str(tool))
    monkeypatch.setenv("FAKE_CSV", wide(ranges=RANGE.format(1, "fwd", "fwd")))
    return tmp_path / "out"


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    """A forward and a backward, as ncu would write them for `--path fused`."""
    forward = wide(ranges=RANGE.format(1, "fwd", "fwd")).splitlines()
    backward = wide(ranges=RANGE.format(2, "bwd", "bwd")).splitlines()[-1]
    file = tmp_path / "elsewhere.csv"
    file.write_text("\n".join([*forward, backward.replace('"0"', '"1"', 1).replace("fwd_prepare", "bwd_pairs")]))
    return file


def test_a_file_from_elsewhere_is_read_beside_the_model(csv: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["ncu", "--read", str(csv), "--path", "fused"]) == Exit.OK
    out, err = capfd.readouterr()
    assert not err
    assert "2 launches counted by Nsight Compute" in out
    assert "kdaprof_kda_fwd_prepare" in out
    assert "kdaprof_kda_bwd_pairs" in out
    forward = next(line for line in out.splitlines() if line.startswith("fwd "))
    model = work("fused", "fwd", OpSize(10, 512, 12, 64, 64), "float32").bytes_path
    assert model is not None
    assert forward.split()[1:2] == ["1"]
    assert "122 MB" in forward
    assert format_bytes(model) in forward
    assert f"{122.159104e6 / model:.3f}" in forward
    kernel = next(line for line in out.splitlines() if line.startswith("kdaprof_kda_fwd_prepare"))
    assert kernel.split()[-6:] == ["%", "41/50", "%", "168", "2.05", "kB"]
    assert all(
        len(line) <= 80 for line in out.splitlines() if not line.startswith(("The", "Whether", "Writes", "kda/"))
    )
    assert "Writes that are still in the L2" in out


def test_the_document_validates_and_holds_each_launch(csv: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["ncu", "--read", str(csv), "--path", "fused", "--json"]) == Exit.OK
    document = json.loads(capfd.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    jsonschema.validate(document, ncu_schema())
    assert document["cell"] == "kda/fused/plain/eager/fwd+bwd/B10-T512-H12-K64-V64-C16/float32"
    assert document["cache"] is None
    forward, backward = document["phases"]
    assert forward["dram_bytes"] == 51_904_512 + 70_254_592
    assert forward["of_path"] == pytest.approx(forward["dram_bytes"] / forward["path_bytes"])
    assert backward["phase"] == "bwd"
    assert [launch["name"] for launch in document["launches"]] == ["kdaprof_kda_fwd_prepare", "kdaprof_kda_bwd_pairs"]
    assert document["kernels"][0]["spills"] is True


def test_a_command_is_run_under_the_filter(fake_ncu: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["ncu", "--out", str(fake_ncu), "--ranges", "fwd", "--json", "--", "echo", "its own words"]) == Exit.OK
    out, err = capfd.readouterr()
    document = json.loads(out)
    jsonschema.validate(document, ncu_schema())
    assert "its own words" in err
    assert document["cell"] is None
    assert document["cache"] == "flush"
    assert document["phases"][0]["model_missing"] == "no --path was given"
    assert (fake_ncu / "ncu.csv").exists()


def test_a_failing_command_s_code_passes_through(
    fake_ncu: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["ncu", "--out", str(fake_ncu), "--", "sh", "-c", "exit 23"]) == 23
    assert "exit code 23" in capfd.readouterr().err
    monkeypatch.setenv("FAKE_CSV", "==WARNING== No kernels were profiled.\n")
    assert main(["ncu", "--force", "--out", str(fake_ncu), "--", "sh", "-c", "exit 23"]) == 23
    assert "before any launch was profiled" in capfd.readouterr().err
    monkeypatch.setenv("FAKE_CSV", "none")
    assert main(["ncu", "--force", "--out", str(fake_ncu), "--", "sh", "-c", "exit 143"]) == 143
    assert "ncu ended with exit code 143 (SIGTERM) and wrote no" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("csv_text", "code", "said"),
    [
        (REFUSED, Exit.UNFIT, "NVreg_RestrictProfilingToAdminUsers=0"),
        ("==WARNING== No kernels were profiled.\n", Exit.ERROR, "did a range of that name run"),
        ("none", Exit.ERROR, "wrote no"),
        ("==ERROR== Unknown Error\n", Exit.ERROR, "the tool said: Unknown Error"),
    ],
)
def test_trouble_is_one_line(
    fake_ncu: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    csv_text: str,
    code: Exit,
    said: str,
) -> None:
    monkeypatch.setenv("FAKE_CSV", csv_text)
    assert main(["ncu", "--out", str(fake_ncu), "--", "true"]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def dry_run(capfd: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["ncu", "--dry-run", *words]) == Exit.OK
    (line,) = capfd.readouterr().out.splitlines()
    return shlex.split(line)


def test_the_line_filters_to_our_ranges_and_leaves_the_clocks(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = dry_run(capfd, "--path", "fused", "--out", str(tmp_path / "o"))
    assert line[0] == "LC_ALL=C.UTF-8"
    chosen = [line[i + 1] for i, word in enumerate(line) if word == "--nvtx-include"]
    assert chosen == ["kdaprof@fwd", "kdaprof@bwd"]
    assert {"--nvtx", "--clock-control=none", "--target-processes=all", "--cache-control=all", "--csv"} <= set(line)
    assert line[-7:] == [
        "kdaprof.probe.once",
        "fused",
        "--phases=fwd,bwd",
        "--shape=10,512,12,64,64",
        "--chunk=16",
        "--dtype=float32",
        "--seed=0",
    ]
    assert not (tmp_path / "o").exists()


def test_kernels_can_be_chosen_by_name_instead(capfd: pytest.CaptureFixture[str]) -> None:
    line = dry_run(capfd, "--kernels", "^kdaprof_", "--most", "5", "--cache", "keep", "--", "python", "train.py")
    assert {"--kernel-name=regex:^kdaprof_", "--launch-count=5", "--cache-control=none"} <= set(line)
    assert "--nvtx-include" not in line
    assert line[-2:] == ["python", "train.py"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--path", "warp"],
        ["--path", "fused", "--phases", "sideways"],
        ["--path", "fused", "--phases", ","],
        ["--path", "fused", "--shape", "1,2"],
        ["--path", "fused", "--dtype", "int7"],
        ["--path", "fused", "--chunk", "0"],
        ["--read", "x.csv", "--", "true"],
        ["--most", "0", "--path", "fused"],
    ],
)
def test_usage(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["ncu", *words]) == Exit.USAGE
    assert capfd.readouterr().err.count("\n") == 1


def test_without_the_tool_the_way_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KDAPROF_NCU", str(tmp_path / "absent"))
    assert main(["ncu", "--path", "fused", "--out", str(tmp_path / "o")]) == Exit.UNFIT
    assert "cannot be started" in capfd.readouterr().err


def test_a_place_that_cannot_be_written_is_one_line_before_anything_runs(
    place_of_no_use: tuple[str, int], fake_ncu: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place, code = place_of_no_use
    ran = fake_ncu.with_name("ran")
    assert main(["ncu", "--out", place, "--", "touch", str(ran)]) == code
    assert_one_line_about(place, capfd)
    assert not ran.exists()


def test_what_cannot_be_replaced_is_one_line(fake_ncu: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (fake_ncu / "ncu.csv").mkdir(parents=True)
    assert main(["ncu", "--force", "--out", str(fake_ncu), "--", "true"]) == Exit.ERROR
    err = capfd.readouterr().err
    assert err.startswith(f"kdaprof: {fake_ncu / 'ncu.csv'}: cannot be replaced (")
    assert err.count("\n") == 1

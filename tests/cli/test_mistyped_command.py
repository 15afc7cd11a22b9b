"""A command that is not there is a usage error, and costs nothing that an earlier recording left."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdaprof.cli.main import main
from kdaprof.errors import Exit


@pytest.mark.parametrize("verb", ["stacks", "nsys", "ncu"])
def test_the_older_recording_stays(
    verb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in ("KDAPROF_NSYS", "KDAPROF_NCU"):
        monkeypatch.setenv(tool, "/bin/true")
    older = [tmp_path / name for name in ("run.json", "stacks.json", "report.sqlite", "ncu.csv", "report.md")]
    for file in older:
        file.write_text("older")
    assert main([verb, "--out", str(tmp_path), "--force", "--", "no-such-program", "--flag"]) == Exit.USAGE
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "no-such-program: cannot be started" in err
    assert [file.read_text() for file in older] == ["older"] * len(older)

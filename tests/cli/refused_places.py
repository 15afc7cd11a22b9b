"""What a verb says of a place that it cannot write to."""

from __future__ import annotations

import pytest


def assert_one_line_about(place: str, capfd: pytest.CaptureFixture[str]) -> None:
    """One line on stderr that names `--out` and the place, nothing on stdout, and no fault of kdaprof."""
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"kdaprof: --out {place}: ")
    assert err.count("\n") == 1
    assert "a fault in kdaprof" not in err

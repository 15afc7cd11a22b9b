"""Scales: one unit a table, three digits, and ends of intervals to the decimals of their value."""

from __future__ import annotations

import pytest

from kdaprof.report.named import named, named_values
from kdaprof.report.units import ErrorScale, scale_for, utc


@pytest.mark.parametrize(
    ("values", "label", "texts"),
    [
        ([7_250_000, 49_300, 44_300_000], "ms", ["7.25", "0.0493", "44.3"]),
        ([75_000_000_000, 7_250_000], "ms", ["75,000", "7.25"]),
        ([75_000_000_000, 1_500_000_000], "s", ["75.0", "1.50"]),
        ([905, 26_000], "µs", ["0.905", "26.0"]),
        ([40, 64], "ns", ["40.0", "64.0"]),
        ([0, 0], "ns", ["0", "0"]),
        ([0, 7_250_000], "ms", ["0", "7.25"]),
    ],
)
def test_times(values: list[int], label: str, texts: list[str]) -> None:
    scale = scale_for("ns", values)
    assert scale.label == label
    assert [scale.text(value) for value in values] == texts


@pytest.mark.parametrize(
    ("values", "label", "texts"),
    [
        ([173_000_000, 0], "MB", ["173", "0"]),
        ([4_650_000_000, 770_000_000], "MB", ["4,650", "770"]),
        ([4_650_000_000], "GB", ["4.65"]),
        ([512], "B", ["512"]),
    ],
)
def test_bytes(values: list[int], label: str, texts: list[str]) -> None:
    scale = scale_for("B", values)
    assert (scale.label, [scale.text(value) for value in values]) == (label, texts)


def test_counts_are_whole_and_fractions_per_cent() -> None:
    count, share = scale_for("1", [1379, 287]), scale_for("fraction", [0.84])
    assert [count.text(v) for v in (1379, 287.0, 2.5, 3.28e7, 706_207.3)] == [
        "1,379",
        "287",
        "2.50",
        "32,800,000",
        "706,000",
    ]
    assert [share.text(v) for v in (0.84, 0.042, 0.0, 1.0)] == ["84 %", "4.2 %", "0 %", "100 %"]


def test_errors_are_powers_of_ten_whatever_their_size() -> None:
    scale = ErrorScale("fraction")
    assert [scale.text(v) for v in (1.9e-7, 1.4e-3, 0.3, 0.0)] == ["1.9e-7", "1.4e-3", "3.0e-1", "0"]


def test_ends_of_an_interval_take_the_decimals_of_their_value() -> None:
    times, share = scale_for("ns", [7_250_000]), scale_for("fraction", [])
    assert times.ends(7_250_000, 7_180_400, 12_345_678) == ("7.18", "12.35")
    assert times.ends(123_400_000, 120_000_000, 1_270_000_000) == ("120", "1270")
    assert share.ends(0.97, 0.951, 0.994) == ("95", "99")
    assert share.ends(0.042, 0.0398, 0.0441) == ("4.0", "4.4")
    assert share.ends(-0.02, -0.05, 0.01) == ("-5.0", "1.0")


def test_a_moment() -> None:
    assert utc(1_796_176_500_000_000_000) == "2026-12-02 01:55:00 UTC"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("wall_ns", 7_250_000, "wall 7.25 ms"),
        ("peak_bytes", 173_000_000, "peak 173 MB"),
        ("host_bound", 0.84, "host bound 84 %"),
        ("sm_clock_hz", 1.98e9, "sm clock 1.98 GHz"),
        ("power_w", 118.4, "power 118 W"),
        ("longest_idle_s", 1.5, "longest idle 1.50 s"),
        ("launches", 1379, "launches 1,379"),
        ("ratio", 1.32, "ratio 1.32"),
        ("operation", "aten::item", "operation aten::item"),
        ("steady", False, "steady false"),
        ("load1", None, "load1 unknown"),
        ("cold_ns", None, "cold unknown"),
        ("idle_share_max", 0.15, "idle share max 15 %"),
        ("half_width_busy_max", 0.03, "half width busy max 3.0 %"),
    ],
)
def test_named_numbers(name: str, value: float | str | bool | None, text: str) -> None:
    assert named(name, value) == text


def test_named_numbers_in_a_row() -> None:
    assert named_values({"wall_ns": 1000, "launches": 2}) == "wall 1.00 µs, launches 2"

"""Figures as text."""

from __future__ import annotations

import math

import pytest

from kdaprof.runs.units import (
    format_bytes,
    format_error,
    format_flop,
    format_fraction,
    format_ns,
    format_number,
    format_rate,
    format_value,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ns"),
        (800, "800 ns"),
        (999.4, "999 ns"),
        (999.6, "1.00 µs"),
        (222_900, "223 µs"),
        (999_600, "1.00 ms"),
        (7_254_321, "7.25 ms"),
        (9_996_000, "10.0 ms"),
        (75e9, "75.0 s"),
        (-72_000, "-72.0 µs"),
        (math.nan, "not finite"),
    ],
)
def test_times(value: float, text: str) -> None:
    assert format_ns(value) == text


def test_times_in_one_unit_line_up() -> None:
    assert (format_ns(7_250_000, "ms"), format_ns(71_000, "ms")) == ("7.25 ms", "0.0710 ms")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0043, "0.43 %"),
        (0.05, "5.0 %"),
        (0.81, "81 %"),
        (0.994, "99.4 %"),
        (0.99999, "99.9 %"),
        (1.0, "100 %"),
        (1.2, "120 %"),
        (0, "0 %"),
    ],
)
def test_fractions_never_round_to_the_whole_or_to_nothing(value: float, text: str) -> None:
    assert format_fraction(value) == text


def test_operations_read_in_powers_of_a_thousand() -> None:
    assert [format_flop(v) for v in (0, 512, 139_264, 2_154_823_680, 171.8e9)] == [
        "0",
        "512",
        "139 k",
        "2.15 G",
        "172 G",
    ]


def test_bytes_count_in_thousands() -> None:
    assert [format_bytes(v) for v in (0, 512, 999.7, 78_888_960, 1_147_150_336)] == [
        "0 B",
        "512 B",
        "1.00 kB",
        "78.9 MB",
        "1.15 GB",
    ]


def test_rates_errors_and_numbers() -> None:
    assert format_rate(4.27e12, "B/s") == "4.27 TB/s"
    assert format_rate(1.98e9, "Hz") == "1.98 GHz"
    assert format_error(3.14e-7) == "3.1e-7"
    assert format_error(0.0) == "0"
    assert format_number(9.996) == "10.0"
    assert format_number(2.561e7) == "2.56e7"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_379, "1", "1,379"),
        (1.25, "1", "1.25"),
        (3.1e-7, "fraction", "3.1e-7"),
        (0.36, "fraction", "36 %"),
        (90 << 20, "B", "94.4 MB"),
        (120, "W", "120 W"),
    ],
)
def test_a_figure_reads_by_its_unit(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text  # type: ignore[arg-type]

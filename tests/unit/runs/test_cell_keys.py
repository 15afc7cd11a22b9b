"""Cell ids, shapes and what a user may type."""

from __future__ import annotations

import re

import pytest

from kdaprof.errors import UsageError
from kdaprof.runs.cells import SHAPE_AXES, CellKey, make_shape, parse_shape

KEY = CellKey("kda", "fused", "plain", "eager", "fwd", make_shape("kda", (10, 512, 12, 64, 64, 16)), "float32")


def test_the_id_is_that_of_the_contract() -> None:
    assert KEY.id == "kda/fused/plain/eager/fwd/B10-T512-H12-K64-V64-C16/float32"


def test_the_slug_is_a_file_name() -> None:
    assert re.fullmatch(r"[A-Za-z0-9._+-]+", KEY.slug)
    assert KEY.slug != KEY.sibling(mode="graph").slug


def test_sibling_changes_only_what_it_names() -> None:
    graph = KEY.sibling(mode="graph", phase="bwd")
    assert (graph.mode, graph.phase, graph.path, graph.shape) == ("graph", "bwd", "fused", KEY.shape)
    assert graph.sibling(mode="eager", phase="fwd") == KEY
    with pytest.raises(TypeError, match="speed"):
        KEY.sibling(speed="high")


def test_size_of_an_axis() -> None:
    assert KEY.size("T") == 512
    with pytest.raises(KeyError):
        KEY.size("Q")


@pytest.mark.parametrize("workload", SHAPE_AXES)
def test_every_workload_takes_its_axes(workload: str) -> None:
    axes = SHAPE_AXES[workload]
    assert make_shape(workload, tuple(range(1, len(axes) + 1))) == tuple(
        zip(axes, range(1, len(axes) + 1), strict=True)
    )
    with pytest.raises(UsageError, match=f"needs {len(axes)} sizes"):
        make_shape(workload, (1,) * (len(axes) + 1))


def test_unknown_workload() -> None:
    with pytest.raises(UsageError, match="known: kda"):
        make_shape("attention", (1,))


def test_a_shape_as_typed() -> None:
    assert parse_shape("10, 512,12,64 ,64", ("B", "T", "H", "K", "V")) == (10, 512, 12, 64, 64)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("10,512", "needs 5 sizes, B,T,H,K,V; got 2"),
        ("", "got 1"),
        ("10,512,12,64,64,16", "got 6"),
        ("10,0,12,64,64", "T = '0'"),
        ("10,-512,12,64,64", "T = '-512'"),
        ("10,5e2,12,64,64", "T = '5e2'"),
        ("10,512,,64,64", "H = ''"),
        ("10,512,12,64,6.4", "V = '6.4'"),
        ("10,²,12,64,64", "T = '²'"),
    ],
)
def test_a_bad_shape_is_one_line_with_flag_and_axis(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_shape(text, ("B", "T", "H", "K", "V"))
    assert str(caught.value).startswith(f"--shape {text!r}: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", ["2147483648", "9" * 5000])
def test_a_size_that_no_tensor_has_is_one_short_line(size: str) -> None:
    with pytest.raises(UsageError, match=r"--shape: T = [0-9]+ is more than any tensor has") as caught:
        parse_shape(f"1,{size},2,32,32", ("B", "T", "H", "K", "V"))
    assert len(str(caught.value)) < 120


def test_the_largest_size_of_an_axis_is_taken() -> None:
    assert parse_shape("1,2147483647,2,32,32", ("B", "T", "H", "K", "V"))[1] == 2**31 - 1

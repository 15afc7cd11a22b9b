"""The plan: what has no meaning is refused in one line, everything else becomes cells in a known order."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from probe_parts import request

from kdaprof.errors import Exit, UnavailableError, UsageError
from kdaprof.probe.plan import HOST_SHAPE, PRODUCTION_SHAPE, Effort


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dtype": "int8"}, "--dtype: 'int8' is unknown; choose from float32"),
        ({"dtype": "fp32"}, "--dtype: 'fp32'"),
        ({"cache": "cold"}, "--cache: 'cold' is unknown; choose rotate or warm"),
        ({"chunk": 0}, "--chunk 0: must be 1 or more"),
        ({"chunk": -16}, "--chunk -16"),
        ({"seed": -1}, "--seed -1: must lie between 0 and"),
        ({"seed": 10**30}, "--seed 1000"),
        ({"paths": "fast"}, "--paths: 'fast' is unknown; choose from fused, tensor"),
        ({"paths": "tensor,"}, None),
        ({"paths": ""}, "--paths: nothing named"),
        ({"paths": " , "}, "--paths: nothing named"),
        ({"paths": "flash"}, "--paths: 'flash' is unknown"),
        ({"paths": "fused,fla,flashkda"}, None),
        ({"paths": "Tensor"}, "--paths: 'Tensor' is unknown"),
        ({"contexts": "plain,amp"}, "--contexts: 'amp' is unknown; choose from plain, no_grad"),
        ({"modes": "jit"}, "--modes: 'jit' is unknown; choose from eager, graph"),
        ({"phases": "step"}, "--phases: 'step' is unknown; choose from fwd, bwd, fwdbwd"),
        ({"shape": "1,2,3"}, "--shape '1,2,3': needs 5 sizes, B,T,H,K,V; got 3"),
        ({"shape": "1,2,3,4,5,6"}, "got 6"),
        ({"shape": ""}, "--shape '': needs 5 sizes"),
        ({"shape": "1,0,1,16,16"}, "T = '0' is not a whole number of 1 or more"),
        ({"shape": "-1,8,1,16,16"}, "B = '-1'"),
        ({"shape": "1,8,1.5,16,16"}, "H = '1.5'"),
        ({"shape": "1,8,1,K,16"}, "K = 'K'"),
        ({"shape": "1,8,1,16,"}, "V = ''"),
    ],
)
def test_what_has_no_meaning_is_one_line(changes: dict[str, Any], says: str | None) -> None:
    asked = request(**changes)
    if says is None:
        assert asked.checked() is asked
        return
    with pytest.raises(UsageError) as caught:
        asked.checked()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code is Exit.USAGE


@pytest.mark.parametrize(
    ("effort", "says"),
    [
        ({"rounds": 0}, "--rounds 0 --samples 20: both must be 1 or more"),
        ({"samples": 0}, "--rounds 5 --samples 0"),
        ({"rounds": -3}, "--rounds -3"),
        ({"util_seconds": -1.0}, "--util-seconds -1.0: must lie between 0 and 3600"),
        ({"util_seconds": 1e9}, "--util-seconds 1000000000.0"),
        ({"util_seconds": math.nan}, "--util-seconds nan"),
        ({"util_seconds": math.inf}, "--util-seconds inf"),
    ],
)
def test_an_effort_without_meaning(effort: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        request(effort=replace(Effort(), **effort)).checked()
    assert str(caught.value).startswith(says)


def test_defaults_are_the_production_shape_on_a_gpu_and_a_small_one_without() -> None:
    gpu, cpu = request().plan("cuda:0"), request().plan("cpu")
    assert tuple(size for _, size in gpu.shape) == (*PRODUCTION_SHAPE, 16)
    assert tuple(size for _, size in cpu.shape) == (*HOST_SHAPE, 16)
    assert [axis for axis, _ in gpu.shape] == ["B", "T", "H", "K", "V", "C"]
    assert (gpu.on_gpu, cpu.on_gpu) == (True, False)
    assert (gpu.dtype, gpu.paths) == ("float32", ("fused", "tensor"))


def test_a_given_shape_holds_everywhere() -> None:
    for device in ("cpu", "cuda:3"):
        assert request(shape=" 2, 33,1,48,80 ", chunk=8).plan(device).shape == (
            ("B", 2),
            ("T", 33),
            ("H", 1),
            ("K", 48),
            ("V", 80),
            ("C", 8),
        )


def test_groups_hold_all_paths_and_modes_of_one_context_and_phase() -> None:
    plan = request(paths="tensor,fused", contexts="plain,checkpoint", phases="fwd,bwd").plan("cuda:0")
    groups = list(plan.groups())
    assert [g.name for g in groups] == ["plain/fwd", "plain/bwd", "checkpoint/fwd", "checkpoint/bwd"]
    assert [(k.path, k.mode) for k in groups[0].keys] == [
        ("tensor", "eager"),
        ("tensor", "graph"),
        ("fused", "eager"),
        ("fused", "graph"),
    ]
    assert plan.cells() == tuple(k for g in groups for k in g.keys)
    assert len({k.id for k in plan.cells()}) == 16


@pytest.mark.parametrize(("asked", "got"), [("graph", ("eager", "graph")), ("eager", ("eager",))])
def test_an_eager_cell_stands_before_every_graph(asked: str, got: tuple[str, ...]) -> None:
    assert request(modes=asked).plan("cuda:0").modes == got


def test_each_name_once_in_the_order_given() -> None:
    plan = request(paths="tensor, fused,tensor", phases="bwd,fwd,bwd").plan("cuda:0")
    assert plan.paths == ("tensor", "fused")
    assert plan.phases == ("bwd", "fwd")


def test_the_cpu_gets_no_rounds_for_an_interval_that_is_refused_anyway() -> None:
    assert request().plan("cpu").effort.rounds_most == 1
    assert request().plan("cuda:0").effort.rounds_most > 1


def test_the_target_is_the_one_given_or_a_new_one_under_runs() -> None:
    assert request(out=Path("a/b")).plan("cpu").out == Path("a/b")
    first, second = (request(paths="fused,tensor,compiled,reference").plan("cpu").out for _ in range(2))
    assert first.parent == Path("runs")
    assert first != second
    assert "-kda-fused-tensor-compiled-more-" in first.name


def test_a_run_is_called_as_its_directory_unless_that_was_chosen() -> None:
    plan = request().plan("cpu")
    assert plan.out.name == plan.run
    chosen = request(out=Path("a/b")).plan("cpu")
    assert chosen.run.split("-", 1)[1].startswith("kda-")


def test_everything_asked_for_reaches_the_plan() -> None:
    effort = Effort(rounds=7)
    plan = request(
        cache="warm", cold=True, seed=5, effort=effort, force=True, anonymous=True, command=("kdaprof", "probe", "x")
    ).plan("cuda:1")
    assert (plan.cache, plan.cold, plan.seed, plan.force, plan.anonymous) == ("warm", True, 5, True, True)
    assert (plan.effort, plan.device, plan.command) == (effort, "cuda:1", ("kdaprof", "probe", "x"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"shape": "1,40,2,33,32"}, "K = 33 (fused takes multiples of 16 up to 128)"),
        ({"shape": "1,40,2,32,144"}, "V = 144 (fused takes multiples of 16 up to 128)"),
        ({"chunk": 32}, "chunk 32 (fused is written for 16)"),
        ({"dtype": "float64"}, "dtype float64 (fused takes float32, bfloat16, float16)"),
    ],
)
def test_fused_alone_is_refused_at_once_where_no_machine_could_run_it(change: dict[str, Any], why: str) -> None:
    with pytest.raises(UnavailableError) as told:
        request(paths="fused", **change).checked()
    assert str(told.value) == f"path 'fused' cannot run: {why}"
    request(paths="fused,tensor", **change).checked()  # the others go on
    request(paths="fused").checked()

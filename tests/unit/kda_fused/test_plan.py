"""Plans: what a kind of call takes from a table entry, and what the records hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kdaprof.kda import traffic  # noqa: E402
from kdaprof.kda.cost import OpSize  # noqa: E402
from kdaprof.kda.fused import ops, plan, run, sizes  # noqa: E402
from kdaprof.kda.fused.config import SAFE, candidates  # noqa: E402


@pytest.mark.parametrize("k_dim", [16, 48, 64, 128])
def test_records_begin_at_128_byte_borders(k_dim: int) -> None:
    record = sizes.record_elements(k_dim, 48)
    gradients = [sizes.gradient_elements(k_dim, 32, *flags) for flags in ((False, False), (True, False), (False, True))]
    assert all(elements % 32 == 0 for elements in (record, *gradients))
    assert record >= 32 * k_dim + 16 * 48 + 512
    assert gradients[2] >= 512 + k_dim + 16
    assert gradients[0] >= 512 + k_dim + 16 + 2 * k_dim * 32 + 16 * 32
    assert gradients[1] >= gradients[0] + 48 * k_dim


def test_x_fits_where_the_pairs_will_be() -> None:
    for size in (16, 32, 64):
        assert sizes.gradient_elements(size, size, False, True) >= 16 * size


@pytest.mark.parametrize(("time", "chunks"), [(1, 2), (16, 2), (32, 2), (33, 4), (512, 32)])
def test_chunks_come_in_pairs(time: int, chunks: int) -> None:
    assert sizes.chunks_of(time) == chunks


def test_states_stay_in_the_gradients_rows_only_where_they_fit() -> None:
    full, half = (torch.float32,) * 5, (torch.float32, torch.float32, torch.bfloat16, torch.float32, torch.float32)
    assert sizes.at_home((*full, None), 64, 64, 512)
    assert sizes.at_home((*full, torch.bfloat16), 32, 32, 32)
    for dtypes, k_dim, v_dim, time in (
        (full, 64, 64, 48),
        (full, 64, 32, 64),
        (full, 48, 48, 64),
        (full, 128, 128, 64),
        (half, 64, 64, 64),
    ):
        assert not sizes.at_home((*dtypes, None), k_dim, v_dim, time)


@pytest.mark.parametrize("size", [16, 32, 48, 64, 128])
@pytest.mark.parametrize("time", [32, 48, 64])
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_the_traffic_listing_keeps_states_where_the_kernels_do(size: int, time: int, name: str) -> None:
    dtypes = (*(getattr(torch, name),) * 5, None)
    listed = traffic._states_at_home(OpSize(1, time, 1, size, size), name)
    assert listed == sizes.at_home(dtypes, size, size, time)


@pytest.mark.parametrize(
    ("size", "kind", "home", "used"),
    [
        (32, torch.float32, True, {"recur_warps", "back_warps", "state_warps"}),
        (32, torch.float32, False, {"recur_warps", "back_warps", "kept_warps"}),
        (128, torch.float32, False, {"recur_warps", "back_warps", "kept_warps"}),
        (32, torch.bfloat16, False, {"recur_warps", "back_warps", "kept_warps"}),
    ],
)
def test_which_warps_of_an_entry_a_kind_of_call_takes(size: int, kind: torch.dtype, home: bool, used: set[str]) -> None:
    device, dtypes = torch.device("cpu"), (*(kind,) * 5, None)
    marks = {f"{stage}_warps": 2**n for n, stage in enumerate(("recur", "back", "state", "kept"))}
    config = replace(SAFE[32], **marks)
    forward = plan.forward_plan(config, device, dtypes, size, size, False, "tf32x3")
    backward = plan.backward_plan(config, device, dtypes, size, size, False, home, "tf32x3")
    taken = {stage._options["num_warps"] for stage in (forward.recur, backward.recur, backward.state)}
    assert taken == {marks[name] for name in used}


@pytest.mark.parametrize("home", [False, True])
def test_what_is_compiled_ahead_has_an_argument_for_every_parameter(home: bool) -> None:
    device, dtypes = torch.device("cpu"), (torch.float32,) * 6
    config = candidates(None, 64, 64)[0]
    jobs = run.forward_jobs(plan.forward_plan(config, device, dtypes, 64, 64, True, "tf32x3"), dtypes, True)
    jobs += run.backward_jobs(plan.backward_plan(config, device, dtypes, 64, 64, True, home, "tf32x3"), dtypes, True)
    for job in jobs:
        assert len(job.arguments) + len(job.stage._constants) == len(job.stage._kernel.arg_names)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("final_state", [False, True])
def test_the_fake_operator_has_the_real_ones_shapes(dtype: torch.dtype, final_state: bool) -> None:
    q = torch.empty(2, 33, 3, 32, dtype=dtype, device="meta")
    v = torch.empty(2, 33, 3, 48, dtype=dtype, device="meta")
    o, ht, rec = ops.kda_fwd(q, q, v, q, q[..., 0], None, 1.0, final_state, "tf32x3")
    assert (o.shape, o.dtype) == (v.shape, dtype)
    assert (ht.shape, ht.dtype) == ((2, 3, 32, 48) if final_state else (0,), torch.float32)
    assert rec.shape == (2 * 3 * sizes.chunks_of(33) * sizes.record_elements(32, 48),)


def test_products_of_half_precision_take_one_pass_unless_ieee_is_asked_for() -> None:
    half, full = torch.bfloat16, torch.float32
    assert plan.dots((half, half, half), "tf32x3") == "tf32"
    assert plan.dots((half, full, half), "tf32x3") == "tf32x3"
    assert plan.dots((half, half, half), "ieee") == "ieee"
    assert plan.dots((full, full, full), "tf32") == "tf32"

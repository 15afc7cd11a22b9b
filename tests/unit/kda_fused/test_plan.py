"""Plans: which launch goes through the compiled handle, and what the records hold."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kdaprof.kda.fused import ops, plan  # noqa: E402


class Handle:
    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *arguments: self.launches.append((grid, arguments))


class Kernel:
    """Stands for a JIT function: each long launch compiles a handle."""

    arg_names = ("x", "n", "A", "B")

    def __init__(self, compiles: bool = True) -> None:
        self.compiles = compiles
        self.launches: list[tuple[Any, ...]] = []
        self.handles: list[Handle] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, **named: Any) -> Handle | None:
            self.launches.append((grid, arguments, named))
            self.handles.append(Handle())
            return self.handles[-1] if self.compiles else None

        return launch


def test_the_second_aligned_launch_takes_the_handle_with_constants_in_the_kernels_order() -> None:
    kernel = Kernel()
    stage = plan.Stage(kernel, {"B": 2, "A": 1}, num_warps=4)
    stage(7, True, "x", 3)
    stage(8, True, "y", 4)
    assert kernel.launches == [((7,), ("x", 3), {"B": 2, "A": 1, "num_warps": 4})]
    assert kernel.handles[0].launches == [((8, 1, 1), ("y", 4, 1, 2))]


def test_an_unaligned_pointer_never_meets_the_handle() -> None:
    kernel = Kernel()
    stage = plan.Stage(kernel, {"A": 1, "B": 2})
    for aligned in (False, True, False):
        stage(1, aligned, "x", 3)
    assert len(kernel.launches) == 3
    assert all(not handle.launches for handle in kernel.handles)
    stage(1, True, "x", 3)
    assert len(kernel.handles[1].launches) == 1


def test_the_interpreter_has_no_handle() -> None:
    kernel = Kernel(compiles=False)
    stage = plan.Stage(kernel, {"A": 1, "B": 2})
    for _ in range(3):
        stage(1, True, "x", 3)
    assert len(kernel.launches) == 3


@pytest.mark.parametrize(("k_dim", "v_dim"), [(64, 64), (48, 16), (128, 80)])
def test_records_keep_every_part_at_a_16_byte_border(k_dim: int, v_dim: int) -> None:
    for elements in (
        plan.record_elements(k_dim, v_dim),
        plan.gradient_record_elements(k_dim, v_dim, False),
        plan.gradient_record_elements(k_dim, v_dim, True),
    ):
        assert elements % 4 == 0
    spare = plan.gradient_record_elements(k_dim, v_dim, True) - plan.gradient_record_elements(k_dim, v_dim, False)
    assert spare == 3 * 16 * k_dim


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("final_state", [False, True])
def test_the_fake_operator_has_the_real_ones_shapes(dtype: torch.dtype, final_state: bool) -> None:
    q = torch.empty(2, 33, 3, 32, dtype=dtype, device="meta")
    v = torch.empty(2, 33, 3, 48, dtype=dtype, device="meta")
    o, ht, rec = ops.kda_fwd(q, q, v, q, q[..., 0], None, 1.0, final_state, "tf32x3")
    assert (o.shape, o.dtype) == (v.shape, dtype)
    assert (ht.shape, ht.dtype) == ((2, 3, 32, 48) if final_state else (0,), torch.float32)
    assert rec.shape == (2 * 3 * 3 * plan.record_elements(32, 48),)


def test_products_of_half_precision_take_one_pass_unless_ieee_is_asked_for() -> None:
    half, full = torch.bfloat16, torch.float32
    assert plan._dots(plan._coarsest((half, half, half)), "tf32x3") == "tf32"
    assert plan._dots(plan._coarsest((half, full, half)), "tf32x3") == "tf32x3"
    assert plan._dots(plan._coarsest((half, half, half)), "ieee") == "ieee"
    assert plan._dots(full, "tf32") == "tf32"

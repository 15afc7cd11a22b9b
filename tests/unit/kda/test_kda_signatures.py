"""Which library kernels stand in which path's signature; what names speak for is tested with the witnesses."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from kdaprof.kda.signatures import SIGNATURES

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>"
TRIL = "void at::native::triu_tril_kernel<float, int, false, 4, false>(...)"
TRSM = "void batch_trsm_left_kernel<float, 256, 4, false, false, false, false, true>(...)"


def test_a_library_kernel_that_only_one_path_runs_is_in_no_other_signature() -> None:
    patterns = {s.path: s.patterns for s in SIGNATURES}

    def matches(path: str, name: str) -> bool:
        return any(re.search(p, name) for p in patterns[path])

    assert [p for p in ("tensor", "tensor-rows", "reference") if matches(p, TRSM)] == ["tensor"]
    assert [p for p in ("tensor", "tensor-rows", "reference") if matches(p, TRIL)] == ["tensor", "tensor-rows"]
    assert [p for p in ("tensor", "tensor-rows", "reference") if matches(p, ADD)] == [
        "tensor",
        "tensor-rows",
        "reference",
    ]


def test_the_fused_prefix_is_the_one_the_kernels_declare() -> None:
    from kdaprof.kda import fused

    ours = next(s for s in SIGNATURES if s.path == "fused")
    assert any(re.search(p, f"{fused.KERNEL_PREFIX}anything") for p in ours.patterns)


@pytest.mark.parametrize("module", ["kdaprof.kda", "kdaprof.kda.signatures", "kdaprof.kda.declared"])
def test_light_modules_import_no_torch(module: str) -> None:
    code = f"import {module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

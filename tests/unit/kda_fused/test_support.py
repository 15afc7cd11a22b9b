"""Refusals of the fused path, its table of configurations, and its surface."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from kdaprof.errors import UsageError  # noqa: E402
from kdaprof.kda import fused  # noqa: E402
from kdaprof.kda.fused import config, support  # noqa: E402

GOOD = {"device_type": "cuda", "dtype": torch.float32, "k_dim": 64, "v_dim": 64, "chunk": 16}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    support.refusal.cache_clear()
    support.triton_missing.cache_clear()
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.fixture
def with_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "triton_missing", lambda: None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("k_dim", "v_dim"), [(16, 128), (48, 80), (96, 112)])
def test_what_it_can_do_is_not_refused(with_triton: None, dtype: torch.dtype, k_dim: int, v_dim: int) -> None:
    assert support.refusal(**{**GOOD, "dtype": dtype, "k_dim": k_dim, "v_dim": v_dim}) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"dtype": torch.float64}, "dtype float64"),
        ({"dtype": torch.int32}, "dtype int32"),
        ({"chunk": 64}, "chunk 64"),
        ({"k_dim": 40}, "K = 40"),
        ({"v_dim": 144}, "V = 144"),
        ({"k_dim": 0}, "K = 0"),
        ({"device_type": "cpu"}, "device cpu"),
        ({"device_type": "mps"}, "device mps"),
    ],
)
def test_each_refusal_names_its_reason(with_triton: None, change: dict[str, object], says: str) -> None:
    reason = support.refusal(**{**GOOD, **change})  # type: ignore[arg-type]
    assert reason is not None
    assert says in reason


def test_the_cpu_is_allowed_when_interpreted(with_triton: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert support.refusal(**{**GOOD, "device_type": "cpu"}) is None


def test_triton_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support.importlib.util, "find_spec", lambda _: None)
    assert "not installed" in str(support.refusal(**GOOD))


def test_triton_that_does_not_import_gives_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise OSError("libfoo.so.1: cannot open shared object file")

    monkeypatch.setattr(support.importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(support.importlib, "import_module", broken)
    assert "OSError: libfoo.so.1" in str(support.refusal(**GOOD))


def test_importing_the_package_does_not_import_triton() -> None:
    code = "import sys, kdaprof.kda.fused; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_card_takes_the_safe_entry() -> None:
    assert config.choose((99, 0), 64, 64) is config.SAFE[64]
    assert config.choose(None, 64, 64) is config.SAFE[64]
    assert config.choose((9, 0), 64, 64) is config.TABLE[9, 0][64]
    assert config.choose((9, 0), 48, 64) is config.TABLE[9, 0][64]


@pytest.mark.parametrize("size", range(16, 129, 16))
def test_blocks_divide_and_padding_covers(size: int) -> None:
    assert size % config.block(size, 64) == 0
    assert config.block(size, 16) == 16
    assert size <= config.pad(size) < 2 * size


def test_no_recurrence_has_more_than_two_warps_on_a_blackwell_card() -> None:
    for capability in ((10, 0), (12, 0)):
        for dim in (16, 64, 128):
            assert config.choose(capability, dim, dim).recur_warps <= 2


def test_an_unknown_precision_is_one_line() -> None:
    x = torch.zeros(1, 16, 1, 16)
    for call in (fused.fused_kda, fused.fused_kda_op):
        with pytest.raises(UsageError, match="precision 'fp8' is none of tf32x3, ieee, tf32"):
            call(x, x, x, x, x[..., 0], scale=1.0, precision="fp8")


def test_the_declared_counts_cover_both_phases() -> None:
    assert set(fused.LAUNCHES) == set(fused.ALLOCS) == {"fwd", "bwd"}
    assert fused.LAUNCHES["fwd"] <= 2
    assert fused.LAUNCHES["bwd"] <= 3

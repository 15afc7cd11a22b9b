"""The path `compiled`: a missing compiler is a reason, not a traceback; the real compiler gives the same numbers."""

from __future__ import annotations

import shutil

import pytest
import torch
from kda_calls import gradients, make_call, relative_l2

from kdaprof.errors import UnavailableError
from kdaprof.kda import compiled, counters, kda


class InvalidCxxCompiler(RuntimeError):
    """By name alone, as the real one is recognised: its module moves between versions."""


class BackendCompilerFailed(RuntimeError):
    def __init__(self, inner: Exception) -> None:
        super().__init__("backend='inductor' raised")
        self.inner_exception = inner


def failing(error: Exception) -> object:
    def run(*_args: object, **_kwargs: object) -> None:
        raise error

    return lambda: run


@pytest.mark.parametrize("error", [InvalidCxxCompiler("none"), BackendCompilerFailed(InvalidCxxCompiler("none"))])
def test_without_a_compiler_the_reason_is_named_and_kept(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(compiled, "_compile", failing(error))
    call = make_call(B=1, T=16)
    with pytest.raises(UnavailableError, match=r"C\+\+ compiler") as raised:
        kda(*call.tensors, path="compiled")
    assert raised.value.__cause__ is error
    assert "C++ compiler" in (compiled.compiled_refusal("cpu") or "")
    with pytest.raises(UnavailableError, match=r"path 'compiled' cannot run: .*C\+\+ compiler"):
        kda(*make_call(B=1, T=17).tensors, path="compiled")


def test_other_errors_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_compile", failing(torch.OutOfMemoryError("full")))
    with pytest.raises(torch.OutOfMemoryError):
        kda(*make_call(B=1, T=16).tensors, path="compiled")
    assert compiled.compiled_refusal("cpu") is None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++ on a CPU")
@pytest.mark.filterwarnings("ignore")
def test_the_compiled_path_is_the_tensor_path() -> None:
    call = make_call(B=1, T=20, H=1, K=16, V=16)
    o, state = kda(*call.tensors, output_final_state=True, path="compiled")
    grads = gradients((o, state), call.tensors)
    want, want_state = kda(*call.tensors, output_final_state=True, path="tensor")
    for x, y in zip((o, *grads), (want, *gradients((want, want_state), call.tensors)), strict=True):
        assert relative_l2(x, y) <= 1e-6
    assert str(counters()["compiled"]) == "1/1"

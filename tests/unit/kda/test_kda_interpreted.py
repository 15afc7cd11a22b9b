"""The gate and the real kernels together, in Triton's interpreter: a process of its own, since the variable counts
before Triton is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.interpreter

PRELUDE = """
import torch
from kda_calls import gradients, make_call, relative_l2
from kdaprof.kda import counters, gate_records, kda, record
torch.set_num_threads(1)
call = make_call(B=1, T=20, H=1, K=16, V=16)
want, _ = kda(*call.tensors, path="tensor")
want_grads = gradients((want,), call.tensors)
from kdaprof.kda import reset_counters
reset_counters()
"""

SCENES = {
    "auto takes fused, forward and backward counted": """
with record() as seen:
    o, _ = kda(*call.tensors)
    grads = gradients((o,), call.tensors)
assert str(counters()) == "kda fused=1/1 tensor=0", counters()
assert [(r.phase, r.path) for r in seen.records] == [("fwd", "fused"), ("bwd", "fused")], seen.records
assert relative_l2(o, want) <= 1e-6
assert max(relative_l2(x, y) for x, y in zip(grads, want_grads)) <= 1e-5
""",
    "compiled around: one opaque graph, decided when traced, not counted": """
import torch._dynamo
layer = torch.compile(lambda *x: 2 * kda(*x, path="fused")[0], fullgraph=True, backend="aot_eager")
with record() as seen:
    for _ in range(2):
        o = layer(*call.tensors) / 2
        grads = gradients((o,), call.tensors)
assert str(counters()) == "kda fused=0 tensor=0", counters()
assert [(r.phase, r.path, r.traced) for r in seen.records] == [("fwd", "fused", True)], seen.records
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
assert not torch._dynamo.utils.counters["graph_break"]
assert relative_l2(o, want) <= 1e-6
assert max(relative_l2(x, y) for x, y in zip(grads, want_grads)) <= 1e-5
""",
    "a dispatch mode sees the operator, and its backward is counted once": """
from torch.utils._python_dispatch import TorchDispatchMode
class Names(TorchDispatchMode):
    seen = []
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.name())
        return func(*args, **(kwargs or {}))
with Names():
    o, _ = kda(*call.tensors, path="fused")
gradients((o,), call.tensors)
assert "kdaprof::kda_fwd" in Names.seen, Names.seen
assert str(counters()) == "kda fused=1/1 tensor=0", counters()
assert relative_l2(o, want) <= 1e-6
""",
    "mixed dtypes of autocast run in the widest": """
mixed = call.with_(q=call.q.bfloat16(), v=call.v.bfloat16())
o, _ = kda(*mixed.tensors, path="fused")
assert o.dtype is torch.bfloat16
assert relative_l2(o, want) <= 1e-2
gradients((o,), call.tensors)
assert str(counters()) == "kda fused=1/1 tensor=0", counters()
""",
    "what the kernels cannot do is refused": """
import warnings
warnings.simplefilter("error")
from kdaprof.errors import UnavailableError
for change, text in (({"chunk": 32}, "chunk 32"), ({"tensors": make_call(K=24).tensors}, "K = 24")):
    tensors = change.pop("tensors", call.tensors)
    try:
        kda(*tensors, path="fused", **change)
    except UnavailableError as error:
        assert text in str(error), error
    else:
        raise AssertionError("not refused")
assert gate_records() == ()
""",
}


@pytest.mark.parametrize("scene", SCENES)
def test_in_the_interpreter(scene: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + SCENES[scene]],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]

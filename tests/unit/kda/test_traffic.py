"""The tensor paths' listed bytes against the operators that run: each reads its arguments and writes its result."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kda_calls import make_call
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kdaprof.kda import kda
from kdaprof.kda.cost import OpSize
from kdaprof.kda.traffic import path_traffic


class Moved(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts bytes of the arguments and results of every operator that makes a tensor of its own, views left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read = self.written = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        places = {x.untyped_storage().data_ptr() for x in given}
        own = [x for x in tree_leaves(made) if isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in places]
        if own and "empty" not in str(func):
            self.read += sum(x.numel() * x.element_size() for x in given)
            self.written += sum(x.numel() * x.element_size() for x in own)
        return made


@pytest.mark.parametrize("path", ["tensor", "tensor-rows"])
@pytest.mark.parametrize("sizes", [(2, 64, 3, 16, 32), (1, 256, 2, 64, 64)])
def test_the_listing_is_what_the_operators_move(path: str, sizes: tuple[int, int, int, int, int]) -> None:
    call = make_call(*sizes, requires_grad=False)
    with torch.no_grad(), Moved() as moved:
        kda(*(x.float() for x in call.tensors), path=path)
    listed = path_traffic(path, "fwd", OpSize(*sizes, 16), "float32").tensors or ()
    assert sum(t.bytes * t.writes for t in listed) == pytest.approx(moved.written, rel=0.02)
    assert sum(t.bytes * t.reads for t in listed) == pytest.approx(moved.read, rel=0.03)

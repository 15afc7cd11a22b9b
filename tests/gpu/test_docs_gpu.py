"""The documentation's Python that needs a GPU does what its page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```python gpu\n(.*?)```", re.DOTALL)


def test_the_recipe_captures_a_call_and_its_replay_is_eagers_result() -> None:
    import torch

    (code,) = BLOCK.findall((DOCS / "recipes" / "graph.md").read_text())
    names: dict[str, Any] = {}
    exec(compile(code, "graph.md", "exec"), names)
    q, k, v, g, beta = (names[name] for name in ("q", "k", "v", "g", "beta"))
    with torch.no_grad():
        expected, _ = names["kda"](q, k, v, g, beta, path="fused")
        stale, _ = names["kda"](q, k, torch.randn_like(v), g, beta, path="fused")
    assert torch.equal(names["result"], expected)
    assert not torch.allclose(names["result"], stale)
    names["graph"].reset()

"""Counters of calls and of tracings grow, and may be reset in between: one rule for both."""

from __future__ import annotations

from kdaprof.integrations.steps.live import since, traced_since
from kdaprof.kda.ledger import Counters, PathCount


def counters(**paths: tuple[int, int]) -> Counters:
    return Counters(paths=tuple((path, PathCount(*count)) for path, count in paths.items()))


def test_calls_by_direction_and_a_counter_that_was_reset_counts_from_0() -> None:
    found = since(counters(fused=(5, 4), tensor=(7, 7)), counters(fused=(9, 2), tensor=(7, 7), compiled=(1, 0)))
    assert found == {"fused": PathCount(4, 2), "tensor": PathCount(0, 0), "compiled": PathCount(1, 0)}


def test_tracings_alike_and_none_that_was_not_traced() -> None:
    found = traced_since({"fused": 3, "tensor": 2, "compiled": 5}, {"fused": 4, "tensor": 2, "compiled": 1, "fla": 2})
    assert found == {"fused": 1, "compiled": 1, "fla": 2}

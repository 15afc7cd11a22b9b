from __future__ import annotations

from pathlib import Path

from ab_parts import GATE, contract, order

from kdaprof.probe.ab.path_runs import path_request

BODY = 'kind = "paths"\n[[shapes]]\nname = "big"\nsize = "1,16,1,16,16"\n' + GATE


def test_the_probe_of_a_shape_has_both_paths_interleaved_and_no_side_figure_that_nobody_asked_for(
    tmp_path: Path,
) -> None:
    what = contract(BODY + '[measure]\nrounds = 6\nsamples = 10\nseed = 3\n[op]\nphase = "fwd"\nchunk = 8\n')
    asked = order(tmp_path, what, "tensor", "fused")
    plan = path_request(asked, what.shapes[0]).plan("cpu")
    assert plan.paths == ("tensor", "fused")
    assert (plan.phases, plan.modes, dict(plan.shape)["C"], plan.seed) == (("fwd",), ("eager",), 8, 3)
    assert (plan.effort.rounds, plan.effort.samples, plan.effort.util_seconds) == (6, 10, 0.0)
    assert plan.out == tmp_path / "out/runs/big"

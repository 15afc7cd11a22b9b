"""`kdaprof ab` on a card: peaks are counted, and a proven path against another comes to a verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kdaprof.cli.main import main
from kdaprof.errors import Exit

pytestmark = pytest.mark.gpu

HEAD = 'schema = "kdaprof.ab-contract/1"\nname = "on-a-card"\n[measure]\nrounds = 5\nsamples = 6\nwarmup = 5\n'
TARGETS = """
import torch
def make(device, size):
    x = torch.randn(size, size, device=device)
    return lambda: (x @ x).sum()
def small(device): return make(device, 512)
def large(device): return make(device, 1024)
"""


def run(folder: Path, contract: str) -> tuple[int, dict[str, object]]:
    (folder / "contract.toml").write_text(contract)
    code = main(["ab", str(folder / "contract.toml"), "--out", str(folder / "out"), "--store", str(folder / "store")])
    return code, json.loads((folder / "out/ab.json").read_text())


def test_targets_on_a_card_report_their_peaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ab_gpu_targets.py").write_text(TARGETS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sides = 'kind = "targets"\nbase = "ab_gpu_targets:large"\ncand = "ab_gpu_targets:small"\n'
    gate = '[[gates]]\nkind = "peak-change"\nat_most_bytes = -3000000\n'
    contract = HEAD.replace("[measure]", f"{sides}[measure]") + '[[shapes]]\nname = "step"\n' + gate
    code, found = run(tmp_path, contract)
    assert (code, found["decision"]) == (Exit.OK, "go")  # 1,024² against 512² floats: 3 MiB less
    assert found["environment"]["gpu"] is not None


def test_paths_on_a_card_are_proven_before_they_are_compared(tmp_path: Path) -> None:
    sides = 'kind = "paths"\nbase = "tensor"\ncand = "fused"\n'
    gate = '[[gates]]\nkind = "non-regression"\n'
    shape = '[[shapes]]\nname = "production"\nsize = "10,512,12,64,64"\n'
    contract = HEAD.replace("[measure]", f"{sides}[measure]") + '[op]\nphase = "fwd"\n' + shape + gate
    code, found = run(tmp_path, contract)
    (row,) = found["rows"]
    assert row["peak"]["change_bytes"] is not None
    assert not any(reason["rule"] in ("Q06", "Q08", "Q09") for reason in row["cand"]["reasons"])
    assert code == {"go": Exit.OK, "no-go": Exit.REGRESSION, "not-established": Exit.INCONCLUSIVE}[found["decision"]]

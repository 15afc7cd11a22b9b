"""A training loop on two gloo ranks, for torchrun: rank 1 is slow in its forward, so that rank 0 waits for it."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from kdaprof import StepProfiler
from kdaprof.integrations.steps import WindowPlan


def main(out: str, late_s: float) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    )
    optimizer = torch.optim.AdamW(model.parameters())
    with StepProfiler(out, shape={"B": 16}, device="cpu", windows=WindowPlan(first=10, every=50, steps=2)) as prof:
        for _ in range(25):
            with prof.step(tokens=16):
                with prof.phase("fwd"):
                    loss = model(torch.randn(16, 64)).square().mean()
                    time.sleep(late_s * rank)
                with prof.phase("bwd"):
                    loss.backward()
                with prof.phase("opt"):
                    optimizer.step()
                    optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1], float(sys.argv[2]))

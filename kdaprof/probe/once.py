"""One call of each phase of the op inside a range of its name, after warm calls outside: what an outer tool looks at.

`python -m kdaprof.probe.once fused --phases fwd,bwd`: no clock runs here. A tool that replays each kernel, as Nsight
Compute does, finds just these calls in the ranges, their tuning and compilation before them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kdaprof.instruments.cuda_device import open_device
from kdaprof.instruments.device import Device
from kdaprof.instruments.nvtx import Ranges, in_range, open_ranges
from kdaprof.runs.cells import SHAPE_AXES, CellKey, make_shape, parse_shape
from kdaprof.workloads.op import CaseSpec, OpCase

WARM_CALLS = 3


def call_once(keys: Sequence[CellKey], device: Device, ranges: Ranges, *, seed: int = 0) -> None:
    """Warm each cell up, then call it once in a range named by its phase; the forward of phase bwd lies outside."""
    name = "cpu" if device.index is None else f"cuda:{device.index}"
    for key in keys:
        case = OpCase(CaseSpec(key=key, device=name, seed=seed, input_sets=1))
        for call in range(WARM_CALLS):
            case.prepare(call)
            case.run()
        case.prepare(0)
        device.synchronize()
        with in_range(ranges, key.phase, "phase"):
            case.run()
            device.synchronize()  # inside: a launch belongs to the range that is open when it is made


def main(argv: Sequence[str] | None = None) -> None:
    """The command line of this module; errors are raised as they are."""
    parser = argparse.ArgumentParser(prog="kdaprof.probe.once")
    parser.add_argument("path")
    parser.add_argument("--phases", default="fwd,bwd")
    parser.add_argument("--shape", default="10,512,12,64,64")
    parser.add_argument("--chunk", type=int, default=16)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    shape = make_shape("kda", (*parse_shape(args.shape, SHAPE_AXES["kda"][:-1]), args.chunk))
    keys = [
        CellKey("kda", args.path, "plain", "eager", phase, shape, args.dtype)
        for phase in args.phases.split(",")
        if phase
    ]
    call_once(keys, open_device(args.device), open_ranges(), seed=args.seed)


if __name__ == "__main__":
    main()

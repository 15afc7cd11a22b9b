"""`kdaprof probe --workload mha|gemm`: its flags as a request."""

from __future__ import annotations

import argparse
from dataclasses import replace

from kdaprof.errors import UsageError
from kdaprof.probe.library_plan import GEMM_UTIL_SECONDS, LIBRARY_EFFORT, LibraryRequest
from kdaprof.workloads.gemm import facts as gemm
from kdaprof.workloads.mha import facts as mha

FLAGS = """\
mha: causal attention; --paths flash, cudnn, mem-efficient, math, composite (all by default), --shape B,H,T,D
(default 10,12,512,64), --dtype float32,bfloat16,float16, --phases fwd, bwd, fwdbwd.
gemm: one product; --paths fp32, tf32, fp16, bf16, fp8 (all by default), --shape M,K,N (default 5120,2048,8192).
Both: --preset field names the default sizes; tiny ones without a GPU. The tables: kdaprof report RUN --tables field."""

EXAMPLES = """\
  kdaprof probe --workload mha
      attention by backend (flash, cudnn, mem-efficient, math) and of its parts, float32, bfloat16, float16; a backend
      that torch has no kernel for is unavailable, with torch's own reason
  kdaprof probe --workload mha --paths flash,composite --dtype bfloat16 --phases fwd,fwdbwd --shape 2,16,2048,128
      two of them, forward and forward + backward, at another B,H,T,D
  kdaprof probe --workload gemm --paths fp32,tf32,bf16 --shape 4096,4096,4096
      one matrix product by precision (default fp32,tf32,fp16,bf16,fp8), M,K,N; clock and power beside each sample
"""


def library_request(args: argparse.Namespace, argv: tuple[str, ...]) -> LibraryRequest:
    """The request that these flags make. Errors: UsageError for whatever has no meaning on any machine."""
    attention = args.workload == "mha"
    if args.path is not None and args.path not in (known := mha.PATHS if attention else gemm.PATHS):
        raise UsageError(f"--path: {args.path!r} is unknown; choose from {', '.join(known)}")
    given = [flag for flag in ("batch", "seq", "max_iter", "ablate", "target") if getattr(args, flag) is not None]
    if given:
        raise UsageError(f"--{given[0].replace('_', '-')}: only with --workload step")
    paths = args.paths if args.path is None else args.path
    util_seconds = args.util_seconds
    if util_seconds is None:
        util_seconds = 0.0 if attention else GEMM_UTIL_SECONDS
    return LibraryRequest(
        workload=args.workload,
        preset=args.preset,
        paths=paths if paths is not None else ",".join(mha.PATHS if attention else gemm.PATHS),
        contexts=args.contexts,
        modes=args.modes or "eager",
        phases=args.phases or "fwd",
        shape=args.shape,
        chunk=args.chunk,
        dtype=args.dtype or (",".join(mha.DTYPES) if attention else ""),
        device=args.device,
        cache=args.cache,
        cold=args.cold,
        seed=args.seed,
        effort=replace(
            LIBRARY_EFFORT,
            rounds=args.rounds,
            samples=LIBRARY_EFFORT.samples if args.samples is None else args.samples,
            util_seconds=util_seconds,
            cold_limit_s=args.cold_limit,
            cell_seconds=LIBRARY_EFFORT.cell_seconds if args.cell_seconds is None else args.cell_seconds,
        ),
        out=args.out,
        force=args.force,
        anonymous=args.anonymous,
        command=("kdaprof", "probe", *argv),
    ).checked()

"""`kdaprof probe`: measure the op, prove the path, capture it into a graph, and say what may be quoted."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kdaprof.cli.parser import VerbParser, check_wait
from kdaprof.cli.probe_library import EXAMPLES as LIBRARY_EXAMPLES
from kdaprof.cli.probe_library import FLAGS as LIBRARY_FLAGS
from kdaprof.cli.probe_library import library_request
from kdaprof.cli.standing import add_store_flag, store_of
from kdaprof.cli.stopping import stoppable
from kdaprof.errors import UsageError
from kdaprof.kda.peers.presets import PRESETS
from kdaprof.probe.library_plan import LIBRARY_WORKLOADS
from kdaprof.probe.plan import RUNNABLE, Effort, Request, choices, default_paths, paths_of
from kdaprof.probe.step.plan import STEP_EFFORT, StepRequest
from kdaprof.workloads.delta.facts import DELTA

_MODES = "eager,graph"
_UTIL_SECONDS = 5.0
_CELL_SECONDS = 60.0
_STEP_FLAGS = ("batch", "seq", "max_iter", "ablate")
_OPS = ("kda", *DELTA)
_WORKLOADS = ("kda", "step", *(name.replace("_", "-") for name in DELTA), *LIBRARY_WORKLOADS)

EXAMPLES = f"""\
examples:
  kdaprof probe --path fused
      did my op take the fused kernels, is it bound by the host or the GPU, and what would a CUDA Graph buy?
  kdaprof probe --paths fused,tensor,compiled --phases fwd,fwdbwd
      three paths interleaved in the same rounds, forward and forward + backward
  kdaprof probe --paths tensor --contexts plain,checkpoint,autocast --shape 4,2048,16,128,128 --dtype bfloat16
      the same path as training wraps it, at another shape
  kdaprof probe --paths fused,fla --phases fwd,fwdbwd --cold-limit 300
      beside FLA's chunk_kda (pip install 'kdaprof[peers]'), whose kernels tune for minutes in the first call
  kdaprof probe --workload gdn2 --paths tensor,fla --cold-limit 300
      a relative of KDA beside FLA's kernels for it: gdn (chunk_gated_delta_rule), gdn2, precond-kda
  kdaprof probe --workload step --paths fused,tensor --ablate kda,iters
      a whole training step, phase by phase: forward, teacher, loss, backward, optimiser, average; KDA's part of each
  kdaprof probe --target my_package.training:make_step
      your own training step: docs/your-own-step.md
  kdaprof probe --path fused --json > run.json
      the whole run as one JSON document (schema kdaprof.run/1)
{LIBRARY_EXAMPLES}
exit codes: 0 ok · 1 a requested cell failed · 2 usage · 5 the only requested path cannot run here, or another run
measures on the card (wait for it: --wait S) · 130 interrupted
"""


def build_parser() -> argparse.ArgumentParser:
    """The flags of `probe`, as in the contract."""
    parser = VerbParser(
        "probe",
        description="Measure Kimi Delta Attention on each path: what a call takes (wall, host, GPU busy), which path "
        "really ran (three witnesses), what capturing it into a CUDA Graph buys, and which figures may be quoted.",
        epilog=EXAMPLES,
    )
    what = parser.add_argument_group("what is measured")
    what.add_argument(
        "--workload",
        default="kda",
        help="kda: the op (default); step: a training step around it; gdn, gdn2, precond-kda; mha; gemm",
    )
    what.add_argument(
        "--path", metavar="PATH", help="one path: fused, tensor, tensor-rows, compiled, reference, fla, flashkda"
    )
    what.add_argument(
        "--paths",
        metavar="A,B",
        help="several, interleaved (default: fused,tensor; gdn, gdn2: tensor,fla; precond-kda: reference,fla)",
    )
    what.add_argument("--shape", metavar="B,T,H,K,V", help="default 10,512,12,64,64 on a GPU, 1,40,2,32,32 without")
    what.add_argument(
        "--preset", metavar="P", help="production, fla-model, fla-registry: shape and dtype (step: below)"
    )
    what.add_argument("--chunk", type=int, default=16, metavar="C", help="tokens a chunk (default %(default)s)")
    what.add_argument("--dtype", help="float32, bfloat16, float16, float64 (default float32, or the preset's)")
    what.add_argument("--phases", metavar="P,P", help="default fwd,bwd,fwdbwd; of mha and gemm fwd")
    what.add_argument(
        "--modes",
        metavar="M,M",
        help="default eager,graph (mha, gemm: eager); of a step also graphed-callables and reduce-overhead; fused:M is "
        "for one path alone",
    )
    what.add_argument("--contexts", default="plain", metavar="C,C", help="how the op is wrapped (default %(default)s)")
    what.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default %(default)s)")
    step = parser.add_argument_group(
        "a training step (--workload step)", "--preset b8 and b10 (T 512), b32 (T 512), b4 (T 256), 4 iterations each"
    )
    step.add_argument("--batch", type=int, metavar="B", help="sequences a step (default 8; 2 without a GPU)")
    step.add_argument("--seq", type=int, metavar="T", help="tokens a sequence (default 512; 20 without a GPU)")
    step.add_argument("--max-iter", type=int, metavar="N", help="iterations of the looped block (default 4; 2)")
    step.add_argument(
        "--ablate", metavar="A,B", help="also, interleaved: kda, the op replaced by a copy; iters, half the iterations"
    )
    step.add_argument("--target", metavar="M:F", help="your own step: package.module:make_step, called with the device")
    parser.add_argument_group("attention and products (--workload mha, gemm)", LIBRARY_FLAGS)
    how = parser.add_argument_group("how")
    how.add_argument("--rounds", type=int, default=5, help="interleaved rounds, which give the interval (%(default)s)")
    how.add_argument("--samples", type=int, help="timed calls a round and cell (20), timed steps (8)")
    how.add_argument("--cell-seconds", type=float, metavar="S", help="most for a cell's rounds (60; mha, gemm 10)")
    how.add_argument("--util-seconds", type=float, metavar="S", help="sustained loop a path (5; mha 0, gemm 2.05)")
    how.add_argument("--cache", default="rotate", help="rotate: inputs are evicted from L2 (default); warm: one set")
    how.add_argument("--cold", action="store_true", help="also time first calls in fresh processes with empty caches")
    how.add_argument("--stacks", action="store_true", help="then each path again, untimed, under py-spy")
    how.add_argument("--cold-limit", type=float, metavar="S", help="end first calls of --cold and of peers after S s")
    how.add_argument("--seed", type=int, default=0, help="of the inputs (%(default)s)")
    how.add_argument("--wait", type=float, default=0.0, metavar="S", help="for a card that another run measures on")
    where = parser.add_argument_group("where it goes")
    where.add_argument("--out", type=Path, metavar="DIR", help="the run directory (default runs/<UTC>-<what>)")
    where.add_argument("--force", action="store_true", help="replace a run that is already in DIR")
    where.add_argument("--anonymous", action="store_true", help="leave out host name, user, home and paths")
    where.add_argument("--json", action="store_true", help="print the run as JSON, alone on stdout")
    add_store_flag(where)
    return parser


def run(argv: Sequence[str]) -> int:
    """Probe, write the run and its report, print the verdict; returns the exit code."""
    args = build_parser().parse_args(argv)
    request = _request(args, tuple(argv))  # refused without torch, before anything is imported
    store = None if args.store is None else store_of(args)  # a flag with no meaning is refused before, too
    if args.stacks and isinstance(request, StepRequest):
        raise UsageError("--stacks is the op's: for a step use `kdaprof stacks --steps RUN -- python train.py`")
    _require_torch()
    from kdaprof.cli.probe_run import probe_and_report

    with stoppable():
        return int(probe_and_report(request, as_json=args.json, wait_s=args.wait, store=store, stacks=args.stacks))


def _request(args: argparse.Namespace, argv: tuple[str, ...]) -> Request | StepRequest:
    if args.cell_seconds is not None and not 0 < args.cell_seconds <= 86400:
        raise UsageError(f"--cell-seconds {args.cell_seconds:g}: more than 0 and at most 86400 seconds")
    if args.cold_limit is not None and not 0 < args.cold_limit <= 86400:
        raise UsageError(f"--cold-limit {args.cold_limit:g}: more than 0 and at most 86400 seconds")
    check_wait(args.wait)
    if args.path is not None and args.paths is not None:
        raise UsageError("--path and --paths: give one of them")
    if args.path is not None and "," in args.path:
        raise UsageError(f"--path {args.path!r}: takes one path; --paths takes several")
    if args.workload in LIBRARY_WORKLOADS:
        return library_request(args, argv)
    workload = args.workload.replace("-", "_")
    if workload not in (*_OPS, "step"):
        raise UsageError(f"--workload: {args.workload!r} is unknown; choose {', '.join(_WORKLOADS)}")
    if args.path is not None:
        trained = workload == "step" or args.target is not None
        choices("--path", args.path, RUNNABLE if trained else paths_of(workload))
    if args.workload == "step" or args.target is not None:
        return _step_request(args, argv)
    given = [flag for flag in _STEP_FLAGS if getattr(args, flag) is not None]
    if given:
        raise UsageError(f"--{given[0].replace('_', '-')}: only with --workload step")
    shape, dtype = _shape_and_dtype(args)
    named = args.paths if args.path is None else args.path
    samples = 20 if args.samples is None else args.samples
    effort = Effort(
        rounds=args.rounds,
        samples=samples,
        util_seconds=_UTIL_SECONDS if args.util_seconds is None else args.util_seconds,
        cold_limit_s=args.cold_limit,
        cell_seconds=_CELL_SECONDS if args.cell_seconds is None else args.cell_seconds,
    )
    request = Request(
        workload=workload,
        paths=default_paths(workload) if named is None else named,
        contexts=args.contexts,
        modes=args.modes or _MODES,
        phases=args.phases or "fwd,bwd,fwdbwd",
        shape=shape,
        chunk=args.chunk,
        dtype=dtype,
        device=args.device,
        cache=args.cache,
        cold=args.cold,
        seed=args.seed,
        effort=effort,
        out=args.out,
        force=args.force,
        anonymous=args.anonymous,
        command=("kdaprof", "probe", *argv),
    )
    return request.checked()


def _shape_and_dtype(args: argparse.Namespace) -> tuple[str | None, str]:
    """What the op is measured on: the preset's, or the two flags' own."""
    dtype: str | None = args.dtype
    if args.preset is None:
        return args.shape, dtype or "float32"
    preset = PRESETS.get(args.preset)
    if preset is None:
        raise UsageError(f"--preset: {args.preset!r} is unknown for the op; choose from {', '.join(PRESETS)}")
    if args.shape is not None:
        raise UsageError("--preset and --shape: give one of them")
    return preset.shape, dtype or preset.dtype


def _step_request(args: argparse.Namespace, argv: tuple[str, ...]) -> StepRequest:
    ablate = choices("--ablate", args.ablate, ("kda", "iters")) if args.ablate is not None else ()
    if args.cold_limit is not None:
        raise UsageError("--cold-limit is the op's: a step's cold start is one step")
    if args.shape is not None:
        raise UsageError("--shape is the op's: a step takes --batch, --seq and --max-iter")
    if args.target is not None:
        _refuse_for_target(args)
    named = args.paths if args.path is None else args.path
    samples = STEP_EFFORT.samples if args.samples is None else args.samples
    request = StepRequest(
        paths="fused,tensor" if named is None else named,
        contexts=args.contexts,
        modes=(args.modes or _MODES) if args.target is None else "eager",
        preset=args.preset,
        batch=() if args.batch is None else (args.batch,),
        seq=() if args.seq is None else (args.seq,),
        max_iter=() if args.max_iter is None else (args.max_iter,),
        chunk=args.chunk,
        dtype=args.dtype or "float32",
        device=args.device,
        cold=args.cold,
        seed=args.seed,
        ablate="kda" in ablate,
        halve="iters" in ablate,
        target=args.target,
        effort=replace(
            STEP_EFFORT,
            rounds=args.rounds,
            samples=samples,
            util_seconds=_UTIL_SECONDS if args.util_seconds is None else args.util_seconds,
            cell_seconds=_CELL_SECONDS if args.cell_seconds is None else args.cell_seconds,
        ),
        out=args.out,
        force=args.force,
        anonymous=args.anonymous,
        command=("kdaprof", "probe", *argv),
    )
    return request.checked()


def _refuse_for_target(args: argparse.Namespace) -> None:
    """A user's step has its sizes, its op and its context in its code: a flag would only be a wrong label."""
    given = [flag for flag in (*_STEP_FLAGS, "preset", "path", "paths", "modes") if getattr(args, flag) is not None]
    given += ["contexts"] if args.contexts != "plain" else []
    if given:
        raise UsageError(f"--{given[0].replace('_', '-')} is the built-in step's: what --target names has its own")


def _require_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise UsageError("probe needs torch: pip install 'kdaprof[torch]'")

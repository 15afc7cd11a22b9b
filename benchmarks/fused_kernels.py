"""The fused kernels by themselves: resources of each, and the device time of each configuration.

    python benchmarks/fused_kernels.py compile [--arch 90] [--dims 64,64] [--dtype float32]
    python benchmarks/fused_kernels.py scan    [--shape 10,512,12,64,64] [--dtype float32]   (needs the GPU)
    python benchmarks/fused_kernels.py call    [--shape 10,512,12,64,64] [--dtype float32]   (needs the GPU)
    python benchmarks/fused_kernels.py cold    [--shape 10,512,12,64,64] [--dtype float32]   (needs the GPU)

`compile` needs Triton and no GPU: ptxas comes with Triton, and the cubin tells its resources. `scan` times every
configuration it lists, a kernel at a time; `call` times whole calls of the configuration in use; `cold` the first
forward and backward of a process with empty caches (limit 10 s), from the import of the kernels on.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from kdaprof.kda.fused.config import KernelConfig, choose

SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def specs(
    config: KernelConfig, k: int, v: int, dtype: str, precision: str, home: bool | None = None
) -> list[tuple[Any, dict[str, Any], dict[str, Any]]]:
    """(kernel, constants, Triton's options) of a forward and backward without states in or out.

    `home`: see `kernels/common.py`; None takes what a call of 32 tokens would.
    """
    import torch  # noqa: PLC0415

    from kdaprof.kda.fused.plan import backward_plan, forward_plan  # noqa: PLC0415
    from kdaprof.kda.fused.sizes import at_home  # noqa: PLC0415

    dtypes = (*(getattr(torch, dtype),) * 5, None)
    home = at_home(dtypes, k, v, 32) if home is None else home
    cpu = torch.device("cpu")
    forward = forward_plan(config, cpu, dtypes, k, v, False, precision)
    backward = backward_plan(config, cpu, dtypes, k, v, False, home, precision)
    found = []
    for stage in (forward.prepare, forward.recur, backward.recur, backward.state, backward.pairs):
        kernel = stage._kernel
        absent = {name: None for name in ("h0", "ht", "dht", "dh0") if name in kernel.arg_names}
        found.append((kernel, {**stage._constants, **absent}, stage._options))
    return found


def resources(kernel: Any, constants: dict[str, Any], options: dict[str, Any], dtype: str, arch: int) -> dict[str, int]:
    """Compile for `arch` and read what ptxas reports."""
    import triton  # noqa: PLC0415
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415
    from triton.compiler import ASTSource  # noqa: PLC0415

    signature, attrs = {}, {}
    for index, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name in {"T", "H", "NC", "zero"}:
            signature[name] = "i32"
        elif name == "scale":
            signature[name] = "fp32"
        else:
            signature[name] = "*fp32" if name in {"rec", "grec", "h0", "ht", "dht", "dh0"} else f"*{SHORT[dtype]}"
            attrs[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attrs)
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(compiled.asm["cubin"])
        tool = next(Path(triton.__file__).parent.glob("backends/nvidia/bin/cuobjdump"))
        text = subprocess.run([tool, "-res-usage", cubin], capture_output=True, text=True, check=True).stdout
        sass = subprocess.run([tool, "-sass", cubin], capture_output=True, text=True, check=True).stdout
    found = {key.lower(): int(value) for key, value in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", text)}
    found["smem"] = compiled.metadata.shared
    ops = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+ )?([A-Z0-9_]+)", sass, re.M)
    found["instr"] = len(ops)
    for op in ("HMMA", "FFMA", "MUFU", "SHFL", "LDS", "STS", "LDG", "STG", "LDGSTS", "BAR", "LDL", "STL"):
        found[op] = ops.count(op)
    return found


def make(shape: tuple[int, ...], dtype: str) -> list[Any]:
    """q, k, v, g, beta at the operating point of training (g about -0.054, beta 0.5), on the GPU."""
    import torch  # noqa: PLC0415

    B, T, H, K, V = shape
    kind = getattr(torch, dtype)
    torch.manual_seed(0)
    q, k = (torch.nn.functional.normalize(torch.randn(B, T, H, K, device="cuda"), dim=-1) for _ in range(2))
    v = torch.randn(B, T, H, V, device="cuda")
    g = -0.108 * torch.rand(B, T, H, K, device="cuda")
    beta = torch.full((B, T, H), 0.5, device="cuda")
    return [x.to(kind).requires_grad_() for x in (q, k, v, g, beta)]


def once(args: list[Any], precision: str) -> None:
    """One forward and one backward."""
    import torch  # noqa: PLC0415

    from kdaprof.kda.fused import fused_kda  # noqa: PLC0415

    o, _ = fused_kda(*args, scale=0.125, precision=precision)
    torch.autograd.grad(o, args, torch.ones_like(o))


def busy(args: list[Any], precision: str, repeats: int = 8) -> dict[str, float]:
    """Mean microseconds of each of our kernels."""
    import torch  # noqa: PLC0415

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(repeats):
            once(args, precision)
        torch.cuda.synchronize()
    found: dict[str, list[float]] = {}
    for event in seen.events():
        if event.name.startswith("kdaprof_"):
            found.setdefault(event.name.removeprefix("kdaprof_kda_"), []).append(event.device_time)
    return {name: sum(times) / len(times) for name, times in found.items()}


def variants(base: KernelConfig) -> list[KernelConfig]:
    """What `scan` tries: every kernel's knobs, the others held at the table's values."""
    found = [
        replace(base, prepare_channels=c, prepare_registers=r)
        for c, r in ((1, None), (1, 168), (1, 128), (1, 112), (2, None), (2, 208), (2, 168))
    ]
    found += [
        replace(base, recur_bv=bv, recur_warps=w, recur_stages=s)
        for bv, w, s in (
            (16, 1, 2), (16, 1, 3), (16, 1, 4), (32, 1, 3), (32, 2, 2), (32, 2, 3), (32, 2, 4), (32, 4, 2), (32, 4, 3),
            (64, 4, 2), (64, 4, 3),
        )
    ]  # fmt: skip
    found += [
        replace(base, back_bv=bv, back_warps=w, back_stages=s)
        for bv, w, s in ((16, 1, 2), (16, 1, 3), (32, 2, 2), (32, 2, 3), (32, 4, 2), (32, 4, 3), (64, 4, 2), (64, 4, 3))
    ]
    found += [
        replace(base, state_bv=bv, state_warps=w, state_stages=s, state_registers=r)
        for bv, w, s, r in (
            (16, 4, 2, None), (16, 4, 3, None), (16, 4, 4, None), (16, 4, 3, 168), (32, 4, 2, None), (32, 4, 2, 168),
            (32, 8, 2, None),
        )
    ]  # fmt: skip
    found += [replace(base, pairs_registers=r) for r in (None, 168)]
    return list(dict.fromkeys(found))


def force(config: KernelConfig) -> None:
    """Make the launcher take `config`."""
    from kdaprof.kda.fused import entries  # noqa: PLC0415

    entries.candidates = lambda *_: (config,)
    entries.choose_forward.cache_clear()
    entries.choose_backward.cache_clear()


def warm(job: tuple[KernelConfig, tuple[int, ...], str, str]) -> str | None:
    """Compile one configuration in a worker process, into Triton's cache."""
    config, shape, dtype, precision = job
    try:
        force(config)
        once(make((1, 32, 1, *shape[3:]), dtype), precision)
    except Exception as error:  # a configuration that does not fit is a result
        return f"{type(error).__name__}: {error}"[:100]
    return None


def scan(shape: tuple[int, ...], dtype: str, precision: str) -> None:
    """Print device time by configuration."""
    import torch  # noqa: PLC0415

    jobs = [(c, shape, dtype, precision) for c in variants(choose((9, 0), *shape[3:]))]
    with ProcessPoolExecutor(12, mp_context=get_context("spawn")) as pool:
        failures = list(pool.map(warm, jobs))
    args = make(shape, dtype)
    for (config, *_), failure in zip(jobs, failures, strict=True):
        if failure:
            print(config, failure)
            continue
        force(config)
        for _ in range(2):
            once(args, precision)
        torch.cuda.synchronize()
        row = " ".join(f"{name}={us:.1f}" for name, us in busy(args, precision).items())
        print(*(getattr(config, f.name) for f in fields(config)), "|", row, flush=True)


def call(shape: tuple[int, ...], dtype: str, precision: str) -> None:
    """Print host, wall, pipelined and busy times of whole calls, first call included."""
    import torch  # noqa: PLC0415

    from kdaprof.kda.fused import fused_kda, hooks  # noqa: PLC0415

    args = make(shape, dtype)
    start = time.perf_counter()
    once(args, precision)
    torch.cuda.synchronize()
    print(f"first call fwd+bwd {time.perf_counter() - start:.2f} s")
    do = torch.ones_like(args[2])

    def forward() -> Any:
        return fused_kda(*args, scale=0.125, precision=precision)[0]

    def untrained() -> Any:
        with torch.no_grad():
            return forward()

    def both() -> Any:
        return torch.autograd.grad(forward(), args, do)

    def alone() -> Any:
        with torch.autograd.set_multithreading_enabled(False):
            return both()

    begun: list[int] = []
    hooks.on_backward = lambda: begun.append(time.perf_counter_ns())
    bodies = {
        "fwd without gradients": untrained,
        "fwd": forward,
        "fwdbwd": both,
        "fwdbwd, no thread for the backward": alone,
    }
    for name, body in bodies.items():
        hosts, walls, begins = [], [], []
        for _ in range(150):
            begun.clear()
            torch.cuda.synchronize()
            t0 = time.perf_counter_ns()
            body()
            t1 = time.perf_counter_ns()
            torch.cuda.synchronize()
            walls.append(time.perf_counter_ns() - t0)
            hosts.append(t1 - t0)
            begins += [at - t0 for at in begun]
        t0 = time.perf_counter_ns()
        for _ in range(100):
            body()
        torch.cuda.synchronize()
        pipelined = (time.perf_counter_ns() - t0) / 100
        torch.cuda.reset_peak_memory_stats()
        at = torch.cuda.memory_allocated()
        body()
        peak = torch.cuda.max_memory_allocated() - at
        where = f"  the backward begins at {median(begins[50:]) / 1e3:.1f}" if begins else ""
        print(f"{name}: wall {median(walls[50:]) / 1e3:.1f} us  host {median(hosts[50:]) / 1e3:.1f}{where}  "
              f"pipelined {pipelined / 1e3:.1f}  peak beyond inputs {peak / 1e6:.1f} MB")  # fmt: skip
        print(f"    launches at {', '.join(f'{at:.0f}' for at in launches(body))} us")
    hooks.on_backward = None
    print({name: round(us, 1) for name, us in busy(args, precision, 30).items()})


def launches(body: Callable[[], Any], calls: int = 60) -> list[float]:
    """When the host comes to each launch of a call, in median microseconds after its start, the GPU idle before."""
    import torch  # noqa: PLC0415

    from kdaprof.kda.fused.stage import Stage  # noqa: PLC0415

    plain, seen, rows = Stage.__call__, [], []

    def noted(stage: Any, *arguments: Any) -> None:
        seen.append(time.perf_counter_ns())
        plain(stage, *arguments)

    Stage.__call__ = noted  # type: ignore[method-assign]
    try:
        for _ in range(calls):
            seen.clear()
            torch.cuda.synchronize()
            begin = time.perf_counter_ns()
            body()
            rows.append([(at - begin) / 1e3 for at in seen])
    finally:
        Stage.__call__ = plain  # type: ignore[method-assign]
    return [median(column) for column in zip(*rows, strict=True)]


def cold(shape: tuple[int, ...], dtype: str, precision: str) -> None:
    """Print the seconds of a first call in a process of its own, with an empty cache and with the one it filled."""
    program = (
        "import time, torch\n"
        "from benchmarks.fused_kernels import make, once\n"
        f"args = make({shape}, {dtype!r})\n"
        "torch.cuda.synchronize()\n"
        "start = time.perf_counter()\n"
        f"once(args, {precision!r})\n"
        "torch.cuda.synchronize()\n"
        "print(time.perf_counter() - start)\n"
    )
    root = str(Path(__file__).parents[1])
    with tempfile.TemporaryDirectory() as cache:
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "TRITON_CACHE_DIR": cache, "PYTHONPATH": path}
        for state in ("empty", "filled"):
            done = subprocess.run(
                [sys.executable, "-c", program], env=environment, check=True, stdout=subprocess.PIPE, text=True
            )
            print(f"first call fwd+bwd, {state} cache: {float(done.stdout):.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["compile", "scan", "call", "cold"])
    parser.add_argument("--arch", type=int, default=90)
    parser.add_argument("--dims", default="64,64")
    parser.add_argument("--shape", default="10,512,12,64,64")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--precision", default="tf32x3")
    args = parser.parse_args()
    shape = tuple(int(x) for x in args.shape.split(","))
    if args.what == "scan":
        scan(shape, args.dtype, args.precision)
        return
    if args.what == "cold":
        cold(shape, args.dtype, args.precision)
        return
    if args.what == "call":
        call(shape, args.dtype, args.precision)
        return
    k, v = (int(x) for x in args.dims.split(","))
    config = choose(divmod(args.arch, 10), k, v)
    for kernel, constants, options in specs(config, k, v, args.dtype, args.precision):
        found = resources(kernel, constants, options, args.dtype, args.arch)
        shape = f"warps={options['num_warps']} stages={options['num_stages']}"
        print(f"{kernel.__name__:28s} {shape} " + " ".join(f"{a}={b}" for a, b in found.items()))


if __name__ == "__main__":
    main()

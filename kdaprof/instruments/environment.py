"""What a run is made with: versions, variables, hardware, settings, the commit of the working directory.

Torch is looked at only if it can be imported; a missing part is None with its reason.
"""

from __future__ import annotations

import getpass
import importlib
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from kdaprof.instruments import host
from kdaprof.instruments.device import DeviceTraits
from kdaprof.instruments.nvml import Nvml
from kdaprof.instruments.reading import Reading
from kdaprof.runs.environment import (
    Environment,
    GpuHardware,
    HostHardware,
    Secrets,
    TorchSettings,
    Variable,
    Version,
)

_PACKAGES = (
    "kdaprof",
    "torch",
    "triton",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "msgspec",
    "nvidia-ml-py",
    "nvtx",
    "psutil",
    "ruptures",
    "py-spy",
    "flash-linear-attention",
    "fla-core",
    "flash-kda",
)
# Variables that decide what runs, on what, and how it is scheduled.
_RELEVANT = re.compile(
    r"CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|CUDA_LAUNCH_BLOCKING|CUDA_DEVICE_MAX_CONNECTIONS|CUDA_MODULE_LOADING"
    r"|CUDA_CACHE_\w+|CUDA_INJECTION64_PATH|NVTX_INJECTION64_PATH|CUBLAS\w*|CUDNN\w*|NVIDIA_TF32_OVERRIDE"
    r"|NVIDIA_VISIBLE_DEVICES|PYTORCH_\w+|TORCH\w*|TRITON_\w+|FLA_\w+|NCCL_\w+|KDAPROF_\w+|TEARDOWN_CUPTI"
    r"|DISABLE_CUPTI_LAZY_REINIT|OMP_\w+|MKL_\w+|OPENBLAS_NUM_THREADS|GOMP_CPU_AFFINITY|PYTHONHASHSEED"
    r"|WORLD_SIZE|RANK|LOCAL_RANK"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|_KEY$|APIKEY", re.IGNORECASE)

RunGit = Callable[[Sequence[str], Path], str]


def collect(
    *,
    argv: Sequence[str],
    device: DeviceTraits | None,
    device_missing: str | None,
    nvml: Reading[Nvml],
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    root: Path = host.ROOT,
    run_git: RunGit | None = None,
) -> Environment:
    """The environment of this process. `device` is the CUDA device used, or None with its reason."""
    cwd = Path.cwd() if cwd is None else cwd
    torch = _torch()
    commit, dirty, git_missing = _git(cwd, run_git or _run_git)
    _, total = host.memory_bytes(root)
    return Environment(
        versions=(*_package_versions(), *_driver_versions(torch, nvml)),
        variables=relevant_variables(os.environ if environ is None else environ),
        host=HostHardware(
            hostname=socket.gethostname() or None,
            cpu_model=host.cpu_model(root),
            cores_total=host.cores_total(root).value,
            platform=platform.platform(),
            machine=platform.machine(),
            mem_total_bytes=total.value,
        ),
        gpu=_gpu(device),
        gpu_missing=None if device is not None else device_missing or "the run used no CUDA device",
        torch=None if torch is None else _torch_settings(torch),
        torch_missing=None if torch is not None else "torch cannot be imported",
        argv=tuple(argv),
        cwd=str(cwd),
        git_commit=commit,
        git_dirty=dirty,
        git_missing=git_missing,
    )


def relevant_variables(environ: Mapping[str, str]) -> tuple[Variable, ...]:
    """The variables that matter to a measurement, by name; never one whose name speaks of a secret."""
    return tuple(
        Variable(name, value)
        for name, value in sorted(environ.items())
        if _RELEVANT.fullmatch(name) and not _SECRET.search(name)
    )


def secrets() -> Secrets:
    """What `anonymised` removes, as this process knows it."""
    try:
        user: str | None = getpass.getuser()
    except (OSError, KeyError):  # a uid without a name, as in some containers
        user = None
    return Secrets(cwd=str(Path.cwd()), home=str(Path.home()), hostname=socket.gethostname() or None, user=user)


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        return None


def _package_versions() -> list[Version]:
    found = [Version("python", platform.python_version(), None)]
    for name in _PACKAGES:
        try:
            found.append(Version(name, metadata.version(name), None))
        except metadata.PackageNotFoundError:
            module = sys.modules.get(name)
            version = getattr(module, "__version__", None)
            found.append(Version(name, version, None if version else "not installed"))
    return found


def _driver_versions(torch: Any, nvml: Reading[Nvml]) -> list[Version]:
    found = []
    cuda = torch.version.cuda if torch is not None else None
    found.append(Version("cuda", cuda, None if cuda else "torch was built without CUDA, or is absent"))
    cudnn = torch.backends.cudnn.version() if cuda else None
    found.append(Version("cudnn", str(cudnn) if cudnn else None, None if cudnn else "torch has no cuDNN"))
    for name in ("driver", "nvml"):
        if nvml.value is None:
            found.append(Version(name, None, nvml.reason))
        else:
            reading = nvml.value.driver_version() if name == "driver" else nvml.value.nvml_version()
            found.append(Version(name, reading.value, reading.reason))
    return found


def _gpu(device: DeviceTraits | None) -> GpuHardware | None:
    if device is None:
        return None
    return GpuHardware(
        name=device.name,
        uuid=device.uuid,
        pci_bus_id=device.pci_bus_id,
        capability=None if device.capability is None else f"{device.capability[0]}.{device.capability[1]}",
        sm_count=device.sm_count,
        l2_bytes=device.l2_bytes,
        total_memory_bytes=device.total_memory_bytes,
    )


def _torch_settings(torch: Any) -> TorchSettings:
    return TorchSettings(
        matmul_precision=torch.get_float32_matmul_precision(),
        allow_tf32_matmul=_flag(lambda: torch.backends.cuda.matmul.allow_tf32),
        allow_tf32_cudnn=_flag(lambda: torch.backends.cudnn.allow_tf32),
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        deterministic_algorithms=torch.are_deterministic_algorithms_enabled(),
        num_threads=torch.get_num_threads(),
    )


def _flag(read: Callable[[], bool]) -> bool | None:
    try:
        return bool(read())
    except RuntimeError:
        # torch refuses the old switch once a program has used the new one, `fp32_precision`.
        return None


def _git(cwd: Path, run: RunGit) -> tuple[str | None, bool | None, str | None]:
    try:
        commit = run(("rev-parse", "HEAD"), cwd).strip()
        changed = run(("status", "--porcelain", "--untracked-files=no"), cwd).strip()
    except FileNotFoundError:
        return None, None, "git is not installed"
    except subprocess.TimeoutExpired:
        return None, None, "git did not answer within 5 s"
    except (OSError, subprocess.CalledProcessError):
        return None, None, "the working directory is in no git repository with a commit"
    return commit, bool(changed), None


def _run_git(arguments: Sequence[str], cwd: Path) -> str:
    # No optional locks: looking at the tree must not disturb somebody who is committing.
    command = ("git", "--no-optional-locks", *arguments)
    done = subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=5)
    return done.stdout

"""Rules about what is installed and whether it works together."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from kdaprof.doctor.faults import in_range
from kdaprof.doctor.machine import Machine
from kdaprof.doctor.requirements import DRIVERS, DRIVERS_SOURCE, REQUIREMENTS, Requirement
from kdaprof.runs.checkup import Check, Group, Status

_GROUP: Group = "software"
_NVML_FIX = {
    "foreign-module": "pip uninstall pynvml nvidia-ml-py3, then pip install --force-reinstall nvidia-ml-py",
    "library-absent": "install the NVIDIA driver; without one, analysis and reports work and measuring does not",
    "driver-absent": "load the NVIDIA kernel driver (modprobe nvidia, or reboot after an update)",
    "driver-mismatch": "reboot: the driver's library was updated under the running kernel module",
}


def software_checks(machine: Machine) -> Iterator[Check]:
    """All rules of this file."""
    for requirement in REQUIREMENTS:
        yield _package(requirement, machine)
    yield from _triton_of_torch(machine)
    yield from _driver(machine)
    yield _nvml(machine)
    yield from _cupti(machine)
    yield _nvtx(machine)
    yield _ptrace(machine)
    yield _nsys(machine)
    yield _ncu(machine)
    yield from _compiler(machine)


def _check(id_: str, status: Status, text: str, next_: str | None = None, source: str | None = None) -> Check:
    return Check(id=id_, group=_GROUP, status=status, text=text, next=next_, source=source)


def _package(wanted: Requirement, machine: Machine) -> Check:
    version = machine.version(wanted.name)
    trouble: Status = "fail" if wanted.needed else "warn"
    if version is None:
        return _check(wanted.name, trouble, f"{wanted.name} is not installed: {wanted.purpose}", wanted.install)
    broken = machine.import_errors.get(wanted.name)
    if broken:
        return _check(wanted.name, trouble, f"{wanted.name} {version} cannot be imported: {broken}", wanted.install)
    if not in_range(version, wanted.versions):
        text = f"{wanted.name} {version} is older than what is tested ({wanted.versions})"
        return _check(wanted.name, trouble, text, f"pip install -U '{wanted.name}{wanted.versions}'")
    return _check(wanted.name, "ok", f"{wanted.name} {version}")


def _triton_of_torch(machine: Machine) -> Iterator[Check]:
    triton, wanted = machine.version("triton"), machine.torch_triton
    if triton is None or wanted is None:
        return
    if in_range(triton, wanted):
        yield _check("torch-triton", "ok", f"triton {triton} is what this torch asks for ({wanted})")
        return
    yield _check(
        "torch-triton",
        "warn",
        f"this torch asks for triton{wanted}, and {triton} is installed: torch.compile may fail or compile otherwise",
        f"pip install 'triton{wanted}', or take it as a deliberate choice and say so beside figures",
    )


def _driver(machine: Machine) -> Iterator[Check]:
    cuda, driver = machine.version("cuda"), machine.version("driver")
    if machine.version("torch") is None or machine.import_errors.get("torch"):
        return
    if cuda is None:
        if driver is not None:
            text = f"torch {machine.version('torch')} is built without CUDA, and driver {driver} is there"
            yield _check(
                "torch-cuda", "fail", text, "install torch's CUDA build: https://pytorch.org/get-started/locally"
            )
        return
    if driver is None:
        yield _check("torch-driver", "unknown", f"torch is built for CUDA {cuda}; the driver's version is not known")
        return
    try:
        needed = dict(DRIVERS).get(int(cuda.split(".")[0]))
        enough = needed is None or Version(driver) >= Version(str(needed))
    except (InvalidVersion, ValueError):
        yield _check("torch-driver", "unknown", f"driver version {driver!r} cannot be read")
        return
    if not enough:
        text = f"driver {driver} is too old for torch's CUDA {cuda}, which needs {needed} or newer"
        fix = "update the driver, or install a torch for an older CUDA"
        yield _check("torch-driver", "fail", text, fix, DRIVERS_SOURCE)
    elif machine.device_missing:
        text = f"torch sees no CUDA device though driver {driver} is there: {machine.device_missing}"
        yield _check("torch-device", "fail", text, "look at CUDA_VISIBLE_DEVICES and at the container's --gpus")
    else:
        yield _check("torch-driver", "ok", f"driver {driver} runs torch's CUDA {cuda}")


def _nvml(machine: Machine) -> Check:
    missing = machine.nvml_missing
    if missing is None:
        return _check("nvml", "ok", f"NVML {machine.version('nvml') or 'is there'}")
    status: Status = "warn" if machine.environment.gpu is not None or missing.kind == "foreign-module" else "unknown"
    source = "https://github.com/XuehaiPan/nvitop/issues/44" if missing.kind == "foreign-module" else None
    fix = _NVML_FIX.get(missing.kind, "see the reason; probes run without NVML, but Q03 and Q04 cannot judge")
    return _check("nvml", status, missing.reason, fix, source)


def _cupti(machine: Machine) -> Iterator[Check]:
    if machine.cupti_conflict:
        fix = "start kdaprof without that tool: one CUPTI subscriber a process"
        source = "https://github.com/pytorch/pytorch/issues/117935"
        yield _check("cupti", "fail", machine.cupti_conflict, fix, source)
    elif machine.cupti_in_torch is False and machine.environment.gpu is not None:
        text = "torch's profiler cannot record device activity: this build has no CUPTI, so GPU busy cannot be measured"
        yield _check("cupti", "warn", text, "install torch's official CUDA build")
    elif machine.cupti_in_torch:
        yield _check("cupti", "ok", "CUPTI is free, and torch's profiler can use it")


def _nvtx(machine: Machine) -> Check:
    path = machine.variable("NVTX_INJECTION64_PATH")
    if path and machine.nvtx_missing:
        text = f"NVTX_INJECTION64_PATH={path} is set and no tool listens: a wrong path is ignored without a word"
        return _check("nvtx-tool", "warn", text, "give the full path of the library, or unset it")
    if machine.nvtx_missing is None:
        text = "a tool collects NVTX in this process: ranges cost more than without"
        return _check("nvtx-tool", "warn", text, "measure without it")
    return _check("nvtx-tool", "ok", "no tool collects NVTX here: ranges cost next to nothing")


def _ptrace(machine: Machine) -> Check:
    if machine.ptrace_capability or machine.is_admin or machine.ptrace_scope == 0:
        return _check("ptrace", "ok", "py-spy may look at other processes")
    if machine.ptrace_scope is None:
        return _check("ptrace", "unknown", "whether py-spy may attach is not known: no yama on this kernel")
    if machine.ptrace_scope == 1:
        text = "py-spy may look at its own children alone (kernel.yama.ptrace_scope = 1): --pid needs root"
        fix = "kdaprof stacks -- COMMAND, or sudo, or docker run --cap-add=SYS_PTRACE"
    else:
        text = f"py-spy may look at no process (kernel.yama.ptrace_scope = {machine.ptrace_scope})"
        fix = "sudo sysctl kernel.yama.ptrace_scope=1, or docker run --cap-add=SYS_PTRACE"
    return _check("ptrace", "warn", text, fix, "https://github.com/benfred/py-spy/issues/12")


def _nsys(machine: Machine) -> Check:
    path = machine.tools.get("nsys")
    if path is None:
        return _check(
            "nsys", "ok", "nsys is not installed; kdaprof nsys --dry-run prints its line for a machine that has it"
        )
    return _check("nsys", "ok", f"nsys: {path}")


def _ncu(machine: Machine) -> Check:
    path = machine.tools.get("ncu")
    if path is None:
        return _check("ncu", "ok", "ncu is not installed; kdaprof ncu --read takes a CSV from elsewhere")
    if machine.counters_restricted and not machine.is_admin:
        text = "ncu is there and the driver lets only administrators read counters (RmProfilingAdminOnly: 1)"
        fix = "run as root or with --cap-add=SYS_ADMIN, or set NVreg_RestrictProfilingToAdminUsers=0 and reload it"
        return _check("ncu", "warn", text, fix, "https://developer.nvidia.com/ERR_NVGPUCTRPERM")
    return _check("ncu", "ok", f"ncu: {path}")


def _compiler(machine: Machine) -> Iterator[Check]:
    if machine.version("torch") is None or machine.tools.get("cc"):
        return
    text = "no C compiler (cc, gcc, clang): Triton builds its launchers with one, torch.compile on the CPU with g++"
    yield _check("compiler", "warn", text, "apt-get install g++")

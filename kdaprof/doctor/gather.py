"""Looks at the real machine, once, and leaves nothing changed; every part that is absent is a reason, not an error."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kdaprof.doctor.machine import AttentionAnswer, Card, Machine, PathAnswer
from kdaprof.errors import KdaprofError
from kdaprof.instruments import cupti, environment
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.conditions import BUSY_WINDOW_NS, snapshot
from kdaprof.instruments.device import DeviceTraits
from kdaprof.instruments.nsight.tool import find_tool
from kdaprof.instruments.nvml import Nvml, NvmlDevice, open_nvml
from kdaprof.instruments.nvtx import open_ranges
from kdaprof.instruments.reading import Reading, missing
from kdaprof.instruments.sensor import GpuSensor
from kdaprof.kda.decision import PATHS
from kdaprof.runs.conditions import ConditionsSnapshot
from kdaprof.runs.record import Ceiling

_PACKAGES = (
    "fla-core",
    "flash-linear-attention",
    "flash-kda",
    "tilelang",
    "flashinfer-python",
    "pynvml",
    "nvidia-ml-py3",
)
_MODULES = {"torch": "torch", "triton": "triton", "fla-core": "fla"}
_CAP_SYS_PTRACE, _CAP_SYS_ADMIN = 19, 21
_HEAD = 64


Alone = Callable[[str | None], AbstractContextManager[object]]
"""Keeps the card of that PCI id to us while the block lasts; None: there is no card."""


def gather(
    *, argv: tuple[str, ...], root: Path = Path("/"), watch: bool = True, measure: Alone | None = None
) -> Machine:
    """The machine here. `watch`: look at the card for a second; `measure`: take its ceilings too (seconds on a GPU).

    Errors: what `measure` raises where it cannot keep the card to us.
    """
    errors = _import_errors()
    torch = None if "torch" in errors or find_spec("torch") is None else importlib.import_module("torch")
    traits, device_missing = _device(torch)
    nvml = open_nvml()
    try:
        with nullcontext() if measure is None else measure(traits.pci_bus_id if traits else None):
            cards, lost = _cards(nvml, traits)
            capabilities = _capabilities(root)
            return Machine(
                environment=environment.collect(
                    argv=argv, device=traits, device_missing=device_missing, nvml=nvml, root=root
                ),
                packages=_packages(),
                import_errors=errors,
                torch_triton=_triton_of_torch(),
                nvml_missing=nvml.missing,
                cards=cards,
                cards_lost=lost,
                device_missing=device_missing,
                cupti_conflict=cupti.conflict(uses_cupti=True),
                cupti_in_torch=None if torch is None else _records_device(torch),
                nvtx_missing=open_ranges().missing,
                tools=_tools(),
                ptrace_scope=_number(root / "proc/sys/kernel/yama/ptrace_scope"),
                ptrace_capability=bool(capabilities >> _CAP_SYS_PTRACE & 1),
                is_admin=bool(capabilities >> _CAP_SYS_ADMIN & 1),
                counters_restricted=_counters_restricted(root),
                paths=_paths(torch, "cuda" if traits else "cpu"),
                attention=_attention(torch) if traits else (),
                conditions=_conditions(nvml, traits, root, watch),
                ceilings=_ceilings() if measure and traits else (),
            )
    finally:
        if nvml.value is not None:
            nvml.value.close()


def _import_errors() -> dict[str, str]:
    """Packages that are there and cannot be imported: the real reason, in one line."""
    found = {}
    for package, module in _MODULES.items():
        if find_spec(module) is None:
            continue
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken install raises anything
            found[package] = " ".join(f"{type(error).__name__}: {error}".split())
    return found


def _device(torch: Any) -> tuple[DeviceTraits | None, str | None]:
    if torch is None:
        return None, "torch is not installed, or cannot be imported"
    if not torch.cuda.is_available():
        built = torch.version.cuda is not None
        return None, "torch.cuda.is_available() is false" if built else "torch is built without CUDA"
    from kdaprof.instruments.cuda_device import CudaDevice  # noqa: PLC0415  imports torch

    try:
        return CudaDevice(torch.cuda.current_device()).traits, None
    except (KdaprofError, RuntimeError) as error:
        return None, " ".join(str(error).split())


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _triton_of_torch() -> str | None:
    """`==3.6.0` out of `triton==3.6.0; platform_system == "Linux"`."""
    try:
        wanted = metadata.requires("torch") or []
    except metadata.PackageNotFoundError:
        return None
    return next((m[1] for text in wanted if (m := re.match(r"triton\s*\(?([=<>!~][^;)]*)", text))), None)


def _cards(nvml: Reading[Nvml], traits: DeviceTraits | None) -> tuple[tuple[Card, ...], tuple[str, ...]]:
    """Cards by their own account, the one that torch uses first; and why some do not answer."""
    if nvml.value is None:
        if traits is None:
            return (), ()
        card = Card(
            name=traits.name,
            capability=traits.capability,
            sm_count=traits.sm_count,
            total_bytes=traits.total_memory_bytes,
        )
        return (card,), ()
    cards: list[Card] = []
    lost: list[str] = []
    for reading in nvml.value.devices():
        if reading.value is None:
            lost.append(reading.reason or "no reason was given")
            continue
        used = traits is not None and bool(traits.uuid) and str(traits.uuid) in (reading.value.uuid or "")
        card = _card(reading.value, traits if used else None)
        cards.insert(0 if used else len(cards), card)
    return tuple(cards), tuple(lost)


def _card(device: NvmlDevice, traits: DeviceTraits | None) -> Card:
    def ask(function: str, *arguments: Any) -> Any:
        return device.nvml.call(function, device.handle, *arguments).value

    clock, width, memory = (
        ask("nvmlDeviceGetMaxClockInfo", 2),
        ask("nvmlDeviceGetMemoryBusWidth"),
        device.memory().value,
    )
    capability = ask("nvmlDeviceGetCudaComputeCapability")
    return Card(
        name=device.name().value or (traits.name if traits else "unnamed card"),
        capability=tuple(capability) if capability else traits.capability if traits else None,
        sm_count=traits.sm_count if traits else None,
        total_bytes=memory.total_bytes if memory else None,
        # Two transfers a clock, a bit a line of the bus.
        bandwidth_bytes_per_s=clock * 1e6 * 2 * width / 8 if clock and width else None,
    )


def _records_device(torch: Any) -> bool:
    activity = torch.profiler.ProfilerActivity
    return activity.CUDA in torch.profiler.supported_activities()


def _tools() -> dict[str, str | None]:
    # A virtual environment's own py-spy is not on PATH when its Python is called by its full name.
    py_spy = shutil.which("py-spy") or shutil.which("py-spy", path=sysconfig.get_path("scripts"))
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    return {"nsys": find_tool("nsys"), "ncu": find_tool("ncu"), "py-spy": py_spy, "cc": compiler}


def _capabilities(root: Path) -> int:
    """The effective capabilities of this process as a bit mask; all for uid 0 where /proc does not say."""
    text = _text(root / "proc/self/status") or ""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)", text, re.MULTILINE)
    if match:
        return int(match[1], 16)
    return -1 if sys.platform != "win32" and os.geteuid() == 0 else 0


def _counters_restricted(root: Path) -> bool | None:
    match = re.search(r"^RmProfilingAdminOnly:\s*(\d)", _text(root / "proc/driver/nvidia/params") or "", re.MULTILINE)
    return bool(int(match[1])) if match else None


def _number(path: Path) -> int | None:
    text = (_text(path) or "").strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _paths(torch: Any, device_type: str) -> tuple[PathAnswer, ...]:
    if torch is None:
        reason = "torch is not installed, or cannot be imported (pip install 'kdaprof[torch]')"
        return tuple(PathAnswer(path, "float32", reason) for path in PATHS)
    from kdaprof.kda.gate import GateQuery, decide  # noqa: PLC0415  imports torch

    answers = []
    for path in PATHS:
        for dtype in ("float32", "bfloat16"):
            query = GateQuery("kda", path, device_type, getattr(torch, dtype), 64, 64, 16)
            answers.append(PathAnswer(path, dtype, _refusal(lambda query=query: decide(query))))  # type: ignore[misc]
    return tuple(answers)


def _refusal(decide: Callable[[], object]) -> str | None:
    try:
        decide()
    except KdaprofError as error:
        return str(error).partition(" cannot run: ")[2] or str(error)
    return None


def _attention(torch: Any) -> tuple[AttentionAnswer, ...]:
    """Try every backend on a tiny causal call. torch says why as a warning, and only then raises."""
    import warnings  # noqa: PLC0415

    from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415

    backends = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "mem-efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
    }
    answers = []
    for dtype in ("float32", "bfloat16", "float16"):
        q = torch.zeros(1, 1, _HEAD, _HEAD, device="cuda", dtype=getattr(torch, dtype))
        for name, backend in backends.items():
            refusal = None
            with warnings.catch_warnings(record=True) as said, sdpa_kernel(backend):
                warnings.simplefilter("always")
                try:
                    torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
                except RuntimeError as error:
                    refusal = attention_reason([str(warning.message) for warning in said], str(error))
            answers.append(AttentionAnswer(name, dtype, refusal))
    return tuple(answers)


def attention_reason(warned: list[str], error: str) -> str:
    """The telling line of torch's warnings about a backend, else the error's first line."""
    plain = [" ".join(text.split("(Triggered internally")[0].split()) for text in warned]
    telling = [text for text in plain if not re.search(r"not used because:?$|has been runtime disabled", text)]
    return (telling or [error.splitlines()[0]])[0].rstrip(".")


def _conditions(nvml: Reading[Nvml], traits: DeviceTraits | None, root: Path, watch: bool) -> ConditionsSnapshot:
    sensor: Reading[GpuSensor] = missing("not-found", "no card")
    if nvml.value is not None:
        found = nvml.value.device(traits.uuid, traits.pci_bus_id) if traits else next(iter(nvml.value.devices()), None)
        if found is not None:
            sensor = Reading(found.value, found.missing)
    return snapshot(sensor, MonotonicClock(), busy_window_ns=BUSY_WINDOW_NS if watch else 0, root=root)


def _ceilings() -> tuple[Ceiling, ...]:
    from kdaprof.instruments.cuda_device import open_device  # noqa: PLC0415  imports torch
    from kdaprof.probe.ceilings import measure_ceilings  # noqa: PLC0415

    return measure_ceilings(open_device(), MonotonicClock())

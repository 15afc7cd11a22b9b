"""Every rule of the doctor on machines on paper: what it says, how grave it is, and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from packaging.specifiers import SpecifierSet
from paper_machine import H200, machine, without_card

from kdaprof.doctor.declared import parse_declared
from kdaprof.doctor.examine import examine
from kdaprof.doctor.faults import FAULTS
from kdaprof.doctor.machine import AttentionAnswer, Card, Machine, PathAnswer
from kdaprof.errors import UsageError
from kdaprof.instruments.fakes.sensor import FakeSensor
from kdaprof.instruments.reading import Missing
from kdaprof.instruments.sensor import GpuProcess, Utilisation
from kdaprof.kda.peers.elsewhere import ELSEWHERE
from kdaprof.runs.checkup import Check, checkup_document, checkup_schema, unfit
from kdaprof.runs.record import Ceiling

COPY = Ceiling(name="copy", value=4.27e12, unit="B/s", provenance="measured", n=10)


def checks(on: Machine, *declared: str, card: str | None = None) -> dict[str, Check]:
    found = examine(on, parse_declared(card, declared))
    jsonschema.validate(checkup_document(found, command=["kdaprof", "doctor"]), checkup_schema())
    return {check.id: check for check in found}


def sensor(**values: Any) -> FakeSensor:
    made = FakeSensor()
    made.values |= values
    return made


def test_a_fit_machine_is_fit() -> None:
    found = checks(machine())
    assert not unfit(tuple(found.values()))
    # Triton 3.6 on Hopper is the one thing known against it.
    assert [check.id for check in found.values() if check.status == "warn"] == ["hopper-gated-backward"]


@pytest.mark.parametrize(
    ("changed", "id_", "status", "said", "todo"),
    [
        ({"versions": {"torch": None}}, "torch", "fail", "not installed", "kdaprof[torch]"),
        ({"versions": {"torch": "2.4.0"}}, "torch", "fail", "older than what is tested", "pip install -U"),
        ({"import_errors": {"torch": "OSError: libcudart.so.13"}}, "torch", "fail", "libcudart.so.13", "pip"),
        ({"versions": {"triton": None}}, "triton", "warn", "not installed", "pip install"),
        ({"import_errors": {"triton": "ImportError: x"}}, "triton", "warn", "cannot be imported", "pip"),
        ({"versions": {"py-spy": "0.3.14"}}, "py-spy", "warn", "older", "pip install -U 'py-spy>=0.4'"),
        ({"torch_triton": "==3.7.1"}, "torch-triton", "warn", "asks for triton==3.7.1, and 3.6.0", "triton==3.7.1"),
        ({"torch_triton": "==3.6.0"}, "torch-triton", "ok", "3.6.0", None),
        ({"versions": {"driver": "550.54"}}, "torch-driver", "fail", "needs 580", "update the driver"),
        ({"versions": {"driver": "570.1", "cuda": "12.8"}}, "torch-driver", "ok", "12.8", None),
        ({"versions": {"driver": None}}, "torch-driver", "unknown", "not known", None),
        ({"versions": {"cuda": None}}, "torch-cuda", "fail", "built without CUDA", "CUDA build"),
        ({"device_missing": "no device"}, "torch-device", "fail", "sees no CUDA device", "CUDA_VISIBLE_DEVICES"),
        (
            {"nvml_missing": Missing("foreign-module", "the installed module pynvml is not nvidia-ml-py")},
            "nvml", "warn", "not nvidia-ml-py", "pip uninstall pynvml",
        ),
        ({"nvml_missing": Missing("driver-mismatch", "18")}, "nvml", "warn", "18", "reboot"),
        (
            {"cupti_conflict": "Nsight Systems (nsys profile) holds CUPTI in this process"},
            "cupti", "fail", "Nsight Systems", "without that tool",
        ),
        ({"cupti_in_torch": False}, "cupti", "warn", "no CUPTI", "official CUDA build"),
        ({"nvtx_missing": None}, "nvtx-tool", "warn", "collects NVTX", "without it"),
        (
            {"variables": {"NVTX_INJECTION64_PATH": "collector.so"}},
            "nvtx-tool", "warn", "ignored without a word", "full path",
        ),
        ({"ptrace_scope": 1}, "ptrace", "warn", "own children alone", "SYS_PTRACE"),
        ({"ptrace_scope": 3}, "ptrace", "warn", "no process", "SYS_PTRACE"),
        ({"ptrace_scope": None}, "ptrace", "unknown", "not known", None),
        ({"ptrace_scope": 3, "ptrace_capability": True}, "ptrace", "ok", "may look", None),
        ({"tools": {"ncu": "/n"}, "counters_restricted": True}, "ncu", "warn", "administrators", "SYS_ADMIN"),
        ({"tools": {"ncu": "/n"}, "counters_restricted": True, "is_admin": True}, "ncu", "ok", "/n", None),
        ({"tools": {}}, "compiler", "warn", "no C compiler", "g++"),
        ({"cards_lost": ("GPU is lost",)}, "card-lost", "warn", "GPU is lost", "leave it out"),
        ({"paths": (PathAnswer("fused", "float32", "no x"),)}, "path-fused", "warn", "cannot run: no x", "dispatch"),
        (
            {"paths": (PathAnswer("fused", "float32", None), PathAnswer("fused", "float64", "dtype float64"))},
            "path-fused", "ok", "can run in float32; not in float64: dtype float64", None,
        ),
    ],
)  # fmt: skip
def test_a_rule_speaks(changed: dict[str, Any], id_: str, status: str, said: str, todo: str | None) -> None:
    check = checks(machine(**changed))[id_]
    assert check.status == status
    assert said in check.text
    assert (todo is None) or (check.next is not None and todo in check.next)


@pytest.mark.parametrize(
    ("readings", "id_", "status", "said"),
    [
        (
            {"processes": (GpuProcess(77, 15 << 30),)},
            "card-shared",
            "warn",
            "process 77 (python) held 16.1 GB of the card now",
        ),
        ({"throttle_reasons": ("sw_power_cap",)}, "clocks", "warn", "sw_power_cap now"),
        ({"mig": True}, "mig", "warn", "MIG is on"),
        ({"persistence": False}, "persistence", "warn", "persistence mode is off"),
        ({"power_limit_w": 180.0}, "power-limit", "warn", "180 W"),
        ({"compute_mode": "prohibited"}, "compute-mode", "fail", "no program may use the card"),
        ({"compute_mode": "exclusive_process"}, "compute-mode", "warn", "one process at a time"),
        ({"processes": Missing("not-supported", "MIG")}, "card-processes", "unknown", "not known"),
    ],
)
def test_the_card_s_state_is_judged(readings: dict[str, Any], id_: str, status: str, said: str) -> None:
    check = checks(machine(sensor=sensor(**readings)))[id_]
    assert (check.status, said in check.text) == (status, True), check.text


def test_a_busy_card_and_a_loaded_host_are_no_place_to_measure() -> None:
    busy = FakeSensor(utilisations=[Utilisation(0.9, 0.2)])
    seen = checks(machine(sensor=busy))
    assert "90 % busy now (Q03" in seen["card-shared"].text
    loaded = machine()
    assert loaded.conditions is not None
    host = replace(loaded.conditions.host, load1=44.0, cores_total=20, steal=0.2)
    full = checks(replace(loaded, conditions=replace(loaded.conditions, host=host)))
    assert "load average 44.0 on 20 cores now" in full["host-load"].text
    stolen = checks(replace(loaded, conditions=replace(loaded.conditions, host=replace(host, load1=0.0))))
    assert "20 % of the CPU time now" in stolen["host-load"].text
    # The doctor looks once: nothing that it says is of a run.
    assert not [check.text for checked in (seen, full, stolen) for check in checked.values() if "the run" in check.text]


def test_a_laptop_without_torch_is_unfit_and_says_what_works() -> None:
    laptop = without_card(nvml_missing=Missing("library-absent", "no libnvidia-ml"), device_missing="no torch")
    card = checks(laptop)["card"]
    assert card.status == "fail"
    assert "no libnvidia-ml" in card.text
    assert "kdaprof analyze" in (card.next or "")
    assert checks(laptop)["faults"].status == "unknown"


@pytest.mark.parametrize(
    ("capability", "versions", "expected"),
    [
        ("9.0", {"triton": "3.6.0"}, {"hopper-gated-backward"}),
        ("9.0", {"triton": "3.7.1"}, set()),
        (
            "9.0",
            {"triton": "3.4.0+git1", "fla-core": "0.5.2"},
            {"hopper-gated-backward", "hopper-delta-rule-wy-backward"},
        ),
        ("9.0", {"triton": "3.3.1"}, set()),
        ("12.0", {"triton": "3.6.0"}, {"blackwell-dot-recurrence"}),
        ("12.0", {"triton": "3.8.0"}, set()),
        (
            "12.0",
            {"triton": "3.6.0", "fla-core": "0.5.2"},
            {"blackwell-dot-recurrence", "blackwell-gated-backward-hang"},
        ),
        (
            "10.0",
            {"triton": "3.7.0", "fla-core": "0.6.0"},
            {
                "blackwell-dot-recurrence",
                "blackwell-chunk-o-nondeterministic",
                "sm100-kda-backward-tuning",
                "blackwell-gated-forward-nan",
            },
        ),
        ("8.0", {"triton": "3.6.0", "fla-core": "0.5.2"}, set()),
        ("9.0", {"triton": "not a version"}, set()),
    ],
)
def test_known_faults_strike_by_card_and_versions(
    capability: str, versions: dict[str, str | None], expected: set[str]
) -> None:
    found = checks(machine(capability=capability, versions=versions))
    struck = {id_ for id_, check in found.items() if check.group == "faults" and check.status == "warn"}
    assert struck == expected
    assert all(found[id_].source and found[id_].next for id_ in struck)
    assert ("faults" in found) is not bool(expected)


def test_the_tables_are_sound() -> None:
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
        assert fault.archs
        assert fault.source.startswith("https://")
        for wanted in fault.packages.values():
            SpecifierSet(wanted)  # raises on a typing error
    for other in ELSEWHERE:
        assert set(other.trains_on) <= set(other.runs_on)
        assert other.source


def test_what_cannot_run_here_says_why() -> None:
    consumer, hopper = checks(machine(capability="12.0")), checks(machine())
    lethe = consumer["elsewhere-lethe"].text
    assert "cannot run on sm_120" in lethe
    assert "tcgen05" in lethe
    assert "Tensor Memory" in consumer["elsewhere-flashinfer-gdn-blackwell"].text
    assert "forward only" in consumer["elsewhere-flashqla"].text
    assert "with a backward" in hopper["elsewhere-flashqla"].text
    assert "forward only" in hopper["elsewhere-flashkda"].text
    assert all(check.status == "ok" for check in hopper.values() if check.group == "elsewhere")


@pytest.mark.parametrize(
    ("packages", "variables", "status", "said"),
    [
        ({}, {}, "ok", "not installed"),
        ({"fla-core": "0.6.0"}, {}, "ok", "no FLA_ variable is set"),
        ({"fla-core": "0.6.0", "flash-kda": "0.1"}, {}, "warn", "may hand a call to FlashKDA"),
        ({"fla-core": "0.6.0", "tilelang": "0.1.9", "flash-kda": "0.1"}, {}, "warn", "FlashKDA or TileLang"),
        ({"fla-core": "0.6.0", "flash-kda": "0.1"}, {"FLA_FLASH_KDA": "0"}, "ok", "FLA_FLASH_KDA=0"),
        ({"fla-core": "0.6.0", "tilelang": "0.1.9"}, {"FLA_DISABLE_BACKEND_DISPATCH": "1"}, "ok", "FLA's own Triton"),
    ],
)
def test_fla_s_dispatch_settings(packages: dict[str, str], variables: dict[str, str], status: str, said: str) -> None:
    check = checks(machine(packages=packages, variables=variables, versions={"triton": "3.7.1"}))["path-fla"]
    assert (check.status, said in check.text) == (status, True), check.text


def test_attention_by_trial_and_by_table() -> None:
    by_table = checks(machine())["attention-float32"]
    assert "flash UNAVAILABLE" in by_table.text
    tried = tuple(
        AttentionAnswer(name, dtype, None if name == "math" else "No available kernel")
        for name in ("flash", "cudnn", "mem-efficient", "math")
        for dtype in ("float32", "bfloat16", "float16")
    )
    check = checks(machine(attention=tried))["attention-float32"]
    assert check.status == "warn"
    assert "tried here" in check.text
    assert "cudnn UNAVAILABLE: No available kernel" in check.text


def test_the_field_report_s_card_cannot_have_its_declared_figures() -> None:
    """`RTX 5060 Ti, sm_120, 170 SM, 16 GB, 1792 GB/s`: two of them are another card's."""
    found = checks(
        without_card(), "capability=12.0", "sms=170", "memory=16GB", "bandwidth=1792GB/s", card="RTX 5060 Ti"
    )
    assert found["declared-capability"].status == "ok"
    assert found["declared-memory"].status == "ok"
    for name, own in (("sms", "36"), ("bandwidth", "448 GB/s")):
        check = found[f"declared-{name}"]
        assert check.status == "fail"
        assert f"which has {own} as NVIDIA sells it" in check.text
        assert "it is that of GeForce RTX 5090" in check.text
        assert "retract" in (check.next or "")


def test_declared_figures_of_the_card_here_are_held_against_its_own_account_and_what_was_measured() -> None:
    here = machine(ceilings=(COPY,))
    found = checks(here, "bandwidth=4.8TB/s", "sms=132", "memory=141GB")
    assert {found[f"declared-{name}"].status for name in ("bandwidth", "sms", "memory", "reachable")} == {"ok"}
    assert "89 % of the declared 4.80 TB/s" in found["declared-reachable"].text
    assert "by its own account" in found["declared-sms"].text
    assert checks(here, "bandwidth=3.35TB/s")["declared-below-measured"].status == "fail"
    assert checks(here, "bandwidth=9TB/s")["declared-out-of-reach"].status == "warn"
    assert checks(here, "sms=108")["declared-sms"].status == "fail"


def test_a_measured_ceiling_is_held_against_the_memory_s_own() -> None:
    assert checks(machine(ceilings=(COPY,)))["ceiling-copy"].status == "ok"
    slow = replace(COPY, value=1e12)
    assert checks(machine(ceilings=(slow,)))["ceiling-copy"].status == "warn"
    assert checks(machine(ceilings=(replace(COPY, value=6e12),)))["ceiling-copy"].status == "warn"
    silent = machine(ceilings=(COPY,), cards=(replace(H200, bandwidth_bytes_per_s=None),))
    assert "names no bandwidth" in checks(silent)["ceiling-copy"].text


def test_an_unknown_card_and_a_laptop_s_are_not_guessed() -> None:
    for name in ("Voodoo 2", "GeForce RTX 5090 Laptop GPU"):
        assert checks(without_card(), "sms=170", card=name)["declared"].status == "unknown"
    assert checks(without_card(), "sms=170")["declared"].status == "unknown"
    only_name = machine(cards=(Card(name="NVIDIA Paper"),))
    assert checks(only_name, "sms=170")["declared-sms"].status == "unknown"


@pytest.mark.parametrize("text", ["speed=3", "sms", "sms=", "bandwidth=fast", "memory=16 apples", "sms=-1"])
def test_a_declared_figure_that_is_none_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--declare"):
        parse_declared(None, [text])
    with pytest.raises(UsageError, match="--card"):
        parse_declared("H200", [])


@pytest.mark.parametrize(
    ("text", "value"),
    [("bandwidth=1,792GB/s", 1.792e12), ("memory=16GiB", 16 * 2**30), ("memory=1.6e10", 1.6e10), ("sms=170", 170)],
)
def test_figures_may_have_units(text: str, value: float) -> None:
    assert list(parse_declared(None, [text]).values.values()) == [pytest.approx(value)]

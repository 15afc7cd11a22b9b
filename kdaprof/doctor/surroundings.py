"""Rules about the machine as it is now: cards that answer, quiet or not, limits, and what a container hides."""

from __future__ import annotations

from collections.abc import Iterator

from kdaprof import __version__
from kdaprof.analysis.guards.machine import clock_limits, loaded_host, shared_card
from kdaprof.doctor.machine import Card, Machine
from kdaprof.runs.checkup import Check, Status
from kdaprof.runs.conditions import Conditions
from kdaprof.runs.record import RunRecord
from kdaprof.runs.units import format_bytes, format_rate

POWER_BELOW_DEFAULT = 0.95


def card_checks(machine: Machine) -> Iterator[Check]:
    """The cards themselves."""
    if not machine.cards and machine.environment.gpu is None:
        yield Check(
            id="card", group="card", status="fail", text=f"no NVIDIA GPU: {_why_no_card(machine)}",
            next="measure on a machine with one; here `kdaprof report reports/h200-kda` and `kdaprof analyze` work",
        )  # fmt: skip
    for index, card in enumerate(machine.cards):
        yield Check(id=f"card-{index}", group="card", status="ok", text=_describe(card))
    for reason in machine.cards_lost:
        yield Check(
            id="card-lost", group="card", status="warn", text=f"a card of this machine does not answer: {reason}",
            next="nvidia-smi -r needs root; leave it out with CUDA_VISIBLE_DEVICES until then",
        )  # fmt: skip


def quiet_checks(machine: Machine) -> Iterator[Check]:
    """Whether figures taken now could be quoted, by the rules Q03 to Q05."""
    seen = machine.conditions
    if seen is None:
        return
    run = RunRecord(
        run="doctor", tool=f"kdaprof {__version__}", command=("kdaprof", "doctor"), started_unix_ns=seen.unix_ns,
        started_monotonic_ns=seen.monotonic_ns, complete=True, environment=machine.environment,
        conditions=Conditions(before=seen, during=(), after=None),
    )  # fmt: skip
    if seen.gpu is not None:
        yield _quiet("card-shared", shared_card(run, now=True), "nobody else uses the card", "Q03",
                     "wait for it, or use another card (CUDA_VISIBLE_DEVICES)")  # fmt: skip
        yield _quiet("clocks", clock_limits(run, now=True), "no limit holds the clocks down", "Q04",
                     "let it cool, or raise the power limit; samples taken meanwhile are refused")  # fmt: skip
        yield from _settings(machine)
    yield _quiet("host-load", loaded_host(run, now=True), "the host is quiet", "Q05",
                 "stop what runs beside it: host-bound figures are refused")  # fmt: skip
    if seen.gpu is not None and seen.gpu.foreign is None:
        yield Check(
            id="card-processes", group="machine", status="unknown",
            text=f"whose processes are on the card is not known: {seen.reason('gpu.foreign')}",
            next="start the container with --pid=host",
            source="https://github.com/NVIDIA/nvidia-docker/issues/1483",
        )  # fmt: skip


def _settings(machine: Machine) -> Iterator[Check]:
    gpu = machine.conditions.gpu if machine.conditions else None
    if gpu is None:
        return
    if gpu.mig:
        yield Check(
            id="mig", group="card", status="warn", text="MIG is on: no utilisation, and others share the card",
            next="take figures as those of the instance; ceilings of the whole card do not hold",
        )  # fmt: skip
    if gpu.persistence is False:
        yield Check(
            id="persistence", group="card", status="warn",
            text="persistence mode is off: the driver unloads between programs, and first calls take longer",
            next="nvidia-smi -pm 1 (root), or hold a context in another process",
        )  # fmt: skip
    if (
        gpu.power_limit_w
        and gpu.power_limit_default_w
        and gpu.power_limit_w < POWER_BELOW_DEFAULT * gpu.power_limit_default_w
    ):
        yield Check(
            id="power-limit", group="card", status="warn",
            text=f"the power limit is {format_rate(gpu.power_limit_w, 'W')}, "
            f"below the card's own {format_rate(gpu.power_limit_default_w, 'W')}",
            next="say so beside figures: they are not those of the card at its own limit",
        )  # fmt: skip
    if gpu.compute_mode in ("prohibited", "exclusive_process"):
        prohibited = gpu.compute_mode == "prohibited"
        yield Check(
            id="compute-mode", group="card", status="fail" if prohibited else "warn",
            text=f"compute mode is {gpu.compute_mode}: "
            + ("no program may use the card" if prohibited else "one process at a time, so no profiled repeats"),
            next="nvidia-smi -c DEFAULT (root)",
        )  # fmt: skip


def _quiet(id_: str, disturbed: str | None, quiet: str, rule: str, fix: str) -> Check:
    status: Status = "warn" if disturbed else "ok"
    text = f"{disturbed} ({rule} refuses figures taken now)" if disturbed else quiet
    return Check(id=id_, group="machine", status=status, text=text, next=fix if disturbed else None)


def _why_no_card(machine: Machine) -> str:
    if machine.nvml_missing is not None:
        return machine.nvml_missing.reason
    return machine.device_missing or "NVML lists none"


def _describe(card: Card) -> str:
    parts = [card.name]
    if card.capability is not None:
        parts.append(f"sm_{card.capability[0]}{card.capability[1]}")
    if card.sm_count is not None:
        parts.append(f"{card.sm_count} SMs")
    if card.total_bytes is not None:
        parts.append(format_bytes(card.total_bytes))
    if card.bandwidth_bytes_per_s is not None:
        parts.append(f"{format_rate(card.bandwidth_bytes_per_s, 'B/s')} by memory clock and bus")
    return ", ".join(parts)

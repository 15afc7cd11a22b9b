"""The ceilings of a stored run, with the card that they are of."""

from __future__ import annotations

from dataclasses import replace

from kdaprof.doctor.cards import by_name
from kdaprof.doctor.machine import Card, Machine
from kdaprof.runs.record import RunRecord


def with_stored(machine: Machine, record: RunRecord) -> Machine:
    """The machine with what a run measured. A run stores no memory clock: the bandwidth is that of the card as sold."""
    gpu = record.environment.gpu
    if gpu is None:
        return replace(machine, ceilings=record.ceilings)
    known = by_name(gpu.name)
    major, _, minor = (gpu.capability or "").partition(".")
    card = Card(
        name=gpu.name,
        capability=(int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None,
        sm_count=gpu.sm_count,
        total_bytes=gpu.total_memory_bytes,
        bandwidth_bytes_per_s=known.bandwidth_bytes_per_s if known else None,
        account="by the stored run and NVIDIA's data sheet",
    )
    return replace(machine, ceilings=record.ceilings, measured_card=card)

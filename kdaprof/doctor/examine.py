"""All rules over one machine, in the order in which they are read. To add a rule: a function in one of these files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kdaprof.doctor.declared import Declared, ceiling_checks, declared_checks
from kdaprof.doctor.machine import Machine
from kdaprof.doctor.paths import elsewhere_checks, fault_checks, path_checks
from kdaprof.doctor.software import software_checks
from kdaprof.doctor.surroundings import card_checks, quiet_checks
from kdaprof.runs.checkup import Check

RULES: Final[tuple[Callable[[Machine], Iterator[Check]], ...]] = (
    card_checks,
    ceiling_checks,
    quiet_checks,
    software_checks,
    path_checks,
    fault_checks,
    elsewhere_checks,
)


def examine(machine: Machine, declared: Declared | None = None) -> tuple[Check, ...]:
    """Every check that speaks about this machine; declared figures first among those of the card."""
    checks = [check for rule in RULES for check in rule(machine)]
    claims = [] if declared is None else list(declared_checks(declared, machine))
    return (*claims, *checks)

"""A machine as the doctor sees it: plain values, so that a rule can be tested on any machine on paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kdaprof.instruments.reading import Missing
from kdaprof.runs.conditions import ConditionsSnapshot
from kdaprof.runs.environment import Environment
from kdaprof.runs.record import Ceiling

Capability = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card: bytes, bytes a second; None where it does not say.

    `bandwidth_bytes_per_s` is memory clock × 2 × bus width, what the memory could move at most.
    """

    name: str
    capability: Capability | None = None
    sm_count: int | None = None
    total_bytes: int | None = None
    bandwidth_bytes_per_s: float | None = None
    account: str = "by its own account"
    """Where the figures are from."""


@dataclass(frozen=True, slots=True)
class PathAnswer:
    """What the gate says to a path at the production shape in one dtype; `refusal` None: it can run."""

    path: str
    dtype: str
    refusal: str | None


@dataclass(frozen=True, slots=True)
class AttentionAnswer:
    """Whether a backend of scaled_dot_product_attention took a call in one dtype; None: it did."""

    backend: str
    dtype: str
    refusal: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Everything that the rules look at."""

    environment: Environment
    packages: Mapping[str, str] = field(default_factory=dict)
    """Installed packages that matter beyond the environment's versions: name → version."""
    import_errors: Mapping[str, str] = field(default_factory=dict)
    """Packages that are installed and cannot be imported: name → the error."""
    torch_triton: str | None = None
    """The Triton version that the installed torch asks for (`==3.6.0`), None where it names none."""
    nvml_missing: Missing | None = None
    cards: tuple[Card, ...] = ()
    cards_lost: tuple[str, ...] = ()
    """Reasons of cards that NVML lists and cannot open."""
    device_missing: str | None = None
    """Why torch sees no CUDA device; None where it sees one."""
    cupti_conflict: str | None = None
    cupti_in_torch: bool | None = None
    """Whether torch's profiler can record device activity; None without torch."""
    nvtx_missing: str | None = None
    tools: Mapping[str, str | None] = field(default_factory=dict)
    """Paths of nsys, ncu, py-spy, cc; None where not found."""
    ptrace_scope: int | None = None
    ptrace_capability: bool = False
    is_admin: bool = False
    counters_restricted: bool | None = None
    """The driver's RmProfilingAdminOnly; None where it cannot be read."""
    paths: tuple[PathAnswer, ...] = ()
    attention: tuple[AttentionAnswer, ...] = ()
    conditions: ConditionsSnapshot | None = None
    ceilings: tuple[Ceiling, ...] = ()
    """Measured ones, of now or of a stored run."""
    measured_card: Card | None = None
    """The card of the stored run that the ceilings are from; None: the first card here."""

    def version(self, name: str) -> str | None:
        """Version of a component or package, None when it is not there."""
        return self.environment.version(name) or self.packages.get(name)

    def variable(self, name: str) -> str | None:
        """Value of an environment variable that matters, None when it is not set."""
        return next((v.value for v in self.environment.variables if v.name == name), None)

    @property
    def spoken_of(self) -> Card | None:
        """The card whose ceilings and declared figures are looked at."""
        return self.measured_card or next(iter(self.cards), None)

    @property
    def capability(self) -> Capability | None:
        """Of the card that torch uses, else of the first card."""
        gpu = self.environment.gpu
        if gpu is not None and gpu.capability is not None:
            major, minor = gpu.capability.split(".")
            return int(major), int(minor)
        return self.cards[0].capability if self.cards else None

"""The roofline on paper: what each path computes and moves on each byte basis, and what bounds it under given ceilings.

Pure arithmetic: operations and bytes come from the cost model's listings, rates from ceilings that were measured or
declared. The serial chain is a bound of its own: a sequence and head is one dependent chain of chunks, and a chain
runs on one multiprocessor, however many there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kdaprof.analysis.figure import whole
from kdaprof.analysis.floor import COPY, floor_of, intensity
from kdaprof.errors import UsageError
from kdaprof.kda.cost import OpSize, SerialChain, Tensor, compulsory, flops, forward_products, moved_bytes, serial_chain
from kdaprof.kda.peers import PEERS
from kdaprof.kda.traffic import field_report_tensors, path_traffic, rate_name
from kdaprof.runs.facts import Fact, Provenance, Reason, absent
from kdaprof.runs.record import Ceiling

Bound = Literal["compute", "memory"]

COMPULSORY: Final = "compulsory"
PATH: Final = "path"
FIELD: Final = "field-report"
BASES: Final = (COMPULSORY, PATH, FIELD)
FIELD_RATE: Final = "matmul_float16"
"""The field report held its kernel against cuBLAS with float16 inputs and float32 sums."""

CHAINED: Final = ("V' = U − W S", "O += scale (Q exp G) S", "S += (K exp(G_C − G))ᵀ V'")
"""The products of a chunk that wait for the state of the chunk before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What one path computes in one phase, and the bytes of one way to count them.

    `tensors` is None where there is no listing, and `why` says why; `times` multiplies the listing (the field report
    counts each tensor one way and doubles the sum).
    """

    name: str
    path: str
    phase: str
    flops: int
    rate: str
    tensors: tuple[Tensor, ...] | None
    why: str | None = None
    times: int = 1

    @property
    def bytes(self) -> int | None:
        """Bytes moved; None without a listing."""
        return None if self.tensors is None else self.times * moved_bytes(self.tensors)

    @property
    def intensity(self) -> float | None:
        """FLOP per byte; None without a listing."""
        return None if self.bytes is None else intensity(self.flops, self.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serial:
    """The dependent chain: `programs` at once, `steps` chunks one after the other, and how they fill the card.

    `sms` is None where the number of multiprocessors is not known. `waves`: chains that one multiprocessor must run
    one after the other, or share itself between; `busy_share`: multiprocessors with a chain, of all.
    """

    chain: SerialChain
    flops_per_step: int
    sms: int | None

    @property
    def waves(self) -> int | None:
        """Chains on the fullest multiprocessor."""
        return None if self.sms is None else math.ceil(self.chain.programs / self.sms)

    @property
    def busy_share(self) -> float | None:
        """Multiprocessors that have a chain at all: 1 when there are enough."""
        return None if self.sms is None else min(1.0, self.chain.programs / self.sms)

    def ns(self, rate: Ceiling) -> float | None:
        """Least time of the fullest multiprocessor, which has its share of the card's rate; None without `sms`."""
        if self.sms is None or self.waves is None:
            return None
        return self.waves * self.chain.steps * self.flops_per_step / (rate.value / self.sms) * 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A basis under the ceilings: its floor, the side that binds, and the bound of the serial chain beside it.

    `balance`: FLOP per byte at which both sides of the floor are equal. Figures that the ceilings do not give are
    missing, with the reason in the fact.
    """

    basis: Basis
    floor: Fact
    compute_ns: float | None
    memory_ns: float | None
    balance: float | None
    bound: Bound | None
    serial: Fact


def bases_of(
    size: OpSize, dtype: str, *, paths: Sequence[str], phases: Sequence[str], names: Sequence[str]
) -> tuple[Basis, ...]:
    """Every named basis of every path and phase; the field report's listing stands once, for the forward.

    UsageError for a basis that is not known.
    """
    for name in names:
        if name not in BASES:
            raise UsageError(f"--bytes {name!r}: choose among {', '.join(BASES)}")
    found = [
        _basis(name, path, phase, size, dtype) for name in names if name != FIELD for path in paths for phase in phases
    ]
    return (*found, *([field_basis(size, dtype)] if FIELD in names else []))


def field_basis(size: OpSize, dtype: str) -> Basis:
    """The field report's bytes for its own forward kernels, from its listing; float32 alone, as it lists them."""
    listed = field_report_tensors(size) if dtype == "float32" else None
    return Basis(
        name=FIELD,
        path=FIELD,
        phase="fwd",
        flops=flops("fwd", size),
        rate=FIELD_RATE,
        tensors=listed,
        why=None if listed else f"the field report lists float32 tensors, not {dtype}",
        times=2,
    )


def serial_of(size: OpSize, sms: int | None, v_block: int | None = None) -> Serial:
    """The serial chain of a forward: a program a sequence, head and block of `v_block` value channels."""
    width = min(v_block or size.V, size.V)
    block = OpSize(size.B, size.T, size.H, size.K, width, size.C)
    chained = sum(product.flops for product in forward_products(block) if product.name in CHAINED)
    return Serial(chain=serial_chain(size, v_block), flops_per_step=chained, sms=sms)


def roof(basis: Basis, ceilings: Sequence[Ceiling], serial: Serial, *, why_none: str | None = None) -> Row:
    """The basis under the ceilings. `why_none` says why there are none at all (no device, nothing declared)."""
    named = {ceiling.name: ceiling for ceiling in ceilings if ceiling.value > 0}
    gone = [name for name in (basis.rate, COPY) if name not in named]
    if gone:
        lacking = why_none or f"no ceiling {' and no ceiling '.join(gone)}"
        missing = absent("ns", "no-device" if why_none else "not-supported", lacking)
        chain = _serial(serial, named.get(basis.rate), lacking) if basis.phase == "fwd" else _forward_only()
        if basis.bytes is None:
            missing = absent("ns", "not-supported", basis.why or "the bytes are not listed")
        return Row(basis=basis, floor=missing, compute_ns=None, memory_ns=None, balance=None, bound=None, serial=chain)
    rate, copy = named[basis.rate], named[COPY]
    chain = _serial(serial, rate, "") if basis.phase == "fwd" else _forward_only()
    balance = rate.value / copy.value
    if basis.bytes is None:
        missing = absent("ns", "not-supported", basis.why or "the bytes are not listed")
        compute = basis.flops / rate.value * 1e9
        return Row(
            basis=basis, floor=missing, compute_ns=compute, memory_ns=None, balance=balance, bound=None, serial=chain
        )
    floor = floor_of(basis.flops, basis.bytes, rate, copy)
    fact = Fact(value=whole(floor.ns, "ns"), unit="ns", provenance=floor.provenance, sources=(rate.name, copy.name))
    return Row(
        basis=basis,
        floor=_declared(fact, rate, copy),
        compute_ns=floor.compute_ns,
        memory_ns=floor.memory_ns,
        balance=balance,
        bound=floor.bound,
        serial=chain,
    )


def _basis(name: str, path: str, phase: str, size: OpSize, dtype: str) -> Basis:
    rate = rate_name(path, dtype)
    work = flops(phase, size)
    gone = _not_computed(path, phase, dtype)
    if gone is not None:
        return Basis(name=name, path=path, phase=phase, flops=work, rate=rate, tensors=None, why=gone)
    if name == COMPULSORY:
        listed = compulsory(phase, size, dtype)
        return Basis(name=name, path=path, phase=phase, flops=work, rate=rate, tensors=listed)
    traffic = path_traffic(path, phase, size, dtype)
    return Basis(name=name, path=path, phase=phase, flops=work, rate=rate, tensors=traffic.tensors, why=traffic.why)


def _not_computed(path: str, phase: str, dtype: str) -> str | None:
    """Why a peer has no such call at all; None for every other path."""
    peer = PEERS.get(path)
    if peer is None:
        return None
    if dtype not in peer.dtypes:
        return f"path {path!r} takes {', '.join(peer.dtypes)}, not {dtype}"
    return None if peer.trains or phase == "fwd" else f"path {path!r} has no backward"


def _serial(serial: Serial, rate: Ceiling | None, lacking: str) -> Fact:
    if rate is None:
        return absent("ns", "not-supported", lacking)
    least = serial.ns(rate)
    if least is None:
        return absent("ns", "no-device", "the number of multiprocessors is not known: --sms N")
    provenance: Provenance = "declared" if rate.provenance == "declared" else "derived"
    fact = Fact(value=whole(least, "ns"), unit="ns", provenance=provenance, sources=(rate.name,))
    return _declared(fact, rate)


def _forward_only() -> Fact:
    return absent("ns", "not-applicable", "the chain is worked out for the forward")


def _declared(fact: Fact, *used: Ceiling) -> Fact:
    """Q11: what rests on a ceiling that nobody measured on this card may not be quoted."""
    names = sorted(ceiling.name for ceiling in used if ceiling.provenance == "declared")
    if not names:
        return fact
    text = f"rests on a ceiling that was declared, not measured on this card: {', '.join(names)}"
    return fact.refuse(Reason("Q11", text))

"""One peer as an op of the workload: what it cannot take refused with the reason, where its calls went written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import torch
from torch import Tensor

from kdaprof.errors import UnavailableError
from kdaprof.kda.decision import Decision
from kdaprof.kda.ledger import Tally, note_forward, tally_of
from kdaprof.kda.peers.facts import PeerFacts, facts_of
from kdaprof.kda.peers.fla import FlaOp
from kdaprof.kda.peers.flashkda import FlashKda
from kdaprof.kda.peers.loading import Installed, load, mismatch
from kdaprof.kda.peers.records import DispatchRecords, watch_dispatch
from kdaprof.kda.runners import watch_backward
from kdaprof.kda.shapes import dtype_name
from kdaprof.runs.record import Refusal

PeerRun = Callable[..., Tensor]
"""The op's tensors in order → o."""

_ADAPTERS: Final[dict[str, Callable[[Installed], PeerRun]]] = {"fla": FlaOp, "flashkda": FlashKda}
_PATH_OF_BACKEND: Final = {"flash_kda": "flashkda", "flashkda": "flashkda"}
"""FLA's names of backends that are paths here; any other backend speaks under its own name."""


class Load(Protocol):
    """`loading.load`; a test passes its own."""

    def __call__(self, facts: PeerFacts, device_type: str) -> Installed:
        """The peer, imported."""
        ...


def peer_op(
    path: str, device: str, *, op: str = "kda", context: str = "plain", trains: bool = False, loader: Load = load
) -> PeerCall:
    """The workload `op` on the peer `path`: its tensors in order (q, k, v, …) → o.

    Errors: UnavailableError with the reason when it cannot run here, in this context or with a backward.
    """
    facts = facts_of(path, op)
    if trains and not facts.trains:
        raise UnavailableError(f"path {path!r} has no backward")
    if facts.contexts is not None and context not in facts.contexts:
        raise UnavailableError(f"path {path!r} cannot run in context {context}: only in {', '.join(facts.contexts)}")
    installed = loader(facts, device.partition(":")[0])
    return PeerCall(installed, _ADAPTERS[path](installed))


class PeerCall:
    """Calls the peer and keeps our ledger of it, as thinly as for our own paths.

    The first call of each kind (shape, dtype, gradients on or off) is watched: the peer's dispatcher may hand one to
    another backend and not the next. The later ones of that kind are counted where it went.
    """

    __slots__ = ("_installed", "_run", "_tallies")

    def __init__(self, installed: Installed, run: PeerRun) -> None:
        self._installed, self._run = installed, run
        self._tallies: dict[tuple[object, ...], Tally | None] = {}

    def __call__(self, *tensors: Tensor) -> Tensor:
        """One call, o [B, T, H, V].

        Errors: UnavailableError when this peer cannot take such tensors, or does not match the torch it runs on.
        """
        if torch.compiler.is_compiling():
            return self._run(*tensors)
        q, v = tensors[0], tensors[2]
        kind = (q.shape, q.dtype, v.shape, torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        if kind not in self._tallies:
            return self._first(kind, *tensors)
        tally = self._tallies[kind]
        o = self._run(*tensors)
        return self._counted(tally, o)

    def _counted(self, tally: Tally | None, o: Tensor) -> Tensor:
        if tally is not None:
            note_forward(tally)
            watch_backward(tally, (o, None))
        return o

    def _first(self, kind: tuple[object, ...], *tensors: Tensor) -> Tensor:
        q, v = tensors[0], tensors[2]
        refuse_operands(self._installed, q, v)
        try:
            with watch_dispatch() as records:
                o = self._run(*tensors)
        except RuntimeError as error:
            reason = mismatch(self._installed, error)
            if reason is None:
                raise
            raise UnavailableError(reason) from error
        self._tallies[kind] = self._tally(records, q, v)
        return self._counted(self._tallies[kind], o)

    def _tally(self, records: DispatchRecords, q: Tensor, v: Tensor) -> Tally | None:
        """Where the call went; None when the peer keeps no record that could be read, so that nobody vouches."""
        facts = self._installed.facts
        chosen = facts.path
        if facts.path == "fla":
            if not records.readable:
                return None
            backend = records.handed_to(facts.function)
            if backend is not None:
                chosen = _PATH_OF_BACKEND.get(backend, backend)
        refused = tuple(
            Refusal(path=_PATH_OF_BACKEND.get(backend, backend), reason=why) for backend, why in records.refused
        )
        return tally_of(
            Decision(
                op=facts.op,
                asked=facts.path,
                chosen=chosen,
                refused=refused,
                device=q.device.type,
                dtype=dtype_name(q.dtype),
                k_dim=q.shape[-1],
                v_dim=v.shape[-1],
                chunk=64 if facts.path == "fla" else 16,
                traced=False,
            )
        )


def refuse_operands(installed: Installed, q: Tensor, v: Tensor) -> None:
    """Raise UnavailableError for tensors that the peer's kernels do not exist for."""
    facts = installed.facts
    if dtype_name(q.dtype) not in facts.dtypes:
        raise UnavailableError(f"path {facts.path!r} takes {', '.join(facts.dtypes)}, not {dtype_name(q.dtype)}")
    only = facts.only_k_v
    if only is not None and (q.shape[-1], v.shape[-1]) != (only, only):
        raise UnavailableError(
            f"path {facts.path!r} exists for K = V = {only} alone, not K = {q.shape[-1]}, V = {v.shape[-1]}"
        )

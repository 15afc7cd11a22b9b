"""Rules about what can run: our paths by the gate, the peers with their settings, the backends of attention."""

from __future__ import annotations

from collections.abc import Iterator

from kdaprof.doctor.faults import FAULTS
from kdaprof.doctor.machine import Machine
from kdaprof.doctor.requirements import ATTENTION, ATTENTION_SOURCE, FLA_SETTINGS, FLA_SOURCE, HANDED_ON_SOURCE
from kdaprof.kda.peers.elsewhere import ELSEWHERE, place_of
from kdaprof.runs.checkup import Check


def path_checks(machine: Machine) -> Iterator[Check]:
    """Our paths, then FLA and FlashKDA, then attention."""
    yield from _ours(machine)
    yield _fla(machine)
    yield _flashkda(machine)
    yield from _attention(machine)


def fault_checks(machine: Machine) -> Iterator[Check]:
    """Known faults that this card and these versions have."""
    capability = machine.capability
    if capability is None:
        yield Check(
            id="faults", group="faults", status="unknown",
            text=f"{len(FAULTS)} known faults of versions on cards: none can be ruled out without a card",
        )  # fmt: skip
        return
    struck = [fault for fault in FAULTS if fault.strikes(capability, machine.version)]
    for fault in struck:
        versions = ", ".join(f"{name} {machine.version(name)}" for name in fault.packages)
        yield Check(
            id=fault.id,
            group="faults",
            status="warn",
            text=f"sm_{capability[0]}{capability[1]} with {versions}: {fault.text}",
            next=fault.next,
            source=fault.source,
        )
    if not struck:
        text = f"none of {len(FAULTS)} known faults is that of sm_{capability[0]}{capability[1]} with these versions"
        yield Check(id="faults", group="faults", status="ok", text=text)


def elsewhere_checks(machine: Machine) -> Iterator[Check]:
    """Implementations of others: which of them this card runs, and why it does not run the rest."""
    for other in ELSEWHERE:
        yield Check(
            id=f"elsewhere-{other.id}",
            group="elsewhere",
            status="unknown" if machine.capability is None else "ok",
            text=f"{other.name}: {place_of(other, machine.capability)}",
            source=other.source,
        )


def _ours(machine: Machine) -> Iterator[Check]:
    for path in dict.fromkeys(answer.path for answer in machine.paths):
        answers = [answer for answer in machine.paths if answer.path == path]
        free = [answer.dtype for answer in answers if answer.refusal is None]
        refused = {answer.refusal: answer.dtype for answer in answers if answer.refusal is not None}
        if not refused:
            yield Check(id=f"path-{path}", group="paths", status="ok", text=f"{path} can run in {', '.join(free)}")
            continue
        why = "; ".join(reason if not free else f"not in {dtype}: {reason}" for reason, dtype in refused.items())
        can = f"{path} can run in {', '.join(free)}" if free else f"{path} cannot run"
        yield Check(
            id=f"path-{path}",
            group="paths",
            status="ok" if free else "warn",
            text=f"{can}{'; ' if free else ': '}{why}",
            next=None if free else "see the reason; `kdaprof dispatch` shows it in every context",
        )


def _fla(machine: Machine) -> Check:
    version = machine.version("fla-core") or machine.version("flash-linear-attention")
    if version is None:
        return Check(
            id="path-fla", group="paths", status="ok",
            text="fla is not installed: nothing of ours needs it (pip install 'kdaprof[peers]' to compare with it)",
        )  # fmt: skip
    broken = machine.import_errors.get("fla-core")
    if broken:
        return Check(
            id="path-fla", group="paths", status="warn", text=f"fla {version} cannot be imported: {broken}",
            next="pip install -U fla-core, or remove it",
        )  # fmt: skip
    set_ = [(s, machine.variable(s.name)) for s in FLA_SETTINGS if machine.variable(s.name) is not None]
    settings = "; ".join(f"{s.name}={value} ({s.meaning})" for s, value in set_) or "no FLA_ variable is set"
    others = _may_take_over(machine)
    if others:
        return Check(
            id="path-fla",
            group="paths",
            status="warn",
            text=f"fla {version} may hand a call to {' or '.join(others)} without saying so: {settings}",
            next="FLA_DISABLE_BACKEND_DISPATCH=1 for FLA's own kernels, or let the kernel names decide (Q15)",
            source=f"{FLA_SOURCE}, {HANDED_ON_SOURCE}",
        )
    return Check(id="path-fla", group="paths", status="ok", text=f"fla {version}; {settings}", source=FLA_SOURCE)


def _may_take_over(machine: Machine) -> list[str]:
    if machine.variable("FLA_DISABLE_BACKEND_DISPATCH") == "1":
        return []
    backends = (("flash-kda", "FlashKDA", "FLA_FLASH_KDA"), ("tilelang", "TileLang", "FLA_TILELANG"))
    return [name for package, name, variable in backends
            if machine.version(package) is not None and machine.variable(variable) != "0"]  # fmt: skip


def _flashkda(machine: Machine) -> Check:
    version = machine.version("flash-kda")
    if version is None:
        text = "flashkda is not installed: forward only, K = V = 128, bfloat16, sm_90 and above"
        return Check(
            id="path-flashkda", group="paths", status="ok", text=text, source="https://github.com/MoonshotAI/FlashKDA"
        )
    off = machine.variable("FLA_FLASH_KDA") == "0" or machine.variable("FLA_DISABLE_BACKEND_DISPATCH") == "1"
    text = f"flash-kda {version} is installed; " + (
        "FLA does not hand calls to it (switched off)" if off else "FLA hands inference calls that fit to it"
    )
    return Check(
        id="path-flashkda", group="paths", status="ok", text=text, source="https://github.com/MoonshotAI/FlashKDA"
    )


def _attention(machine: Machine) -> Iterator[Check]:
    tried = bool(machine.attention)
    for dtype in ("float32", "bfloat16", "float16"):
        if tried:
            answers = {a.backend: a.refusal for a in machine.attention if a.dtype == dtype}
        else:
            answers = {name: None if dtype in dtypes else "not for this dtype" for name, dtypes in ATTENTION}
        free = [name for name, refusal in answers.items() if refusal is None]
        fused = [name for name in free if name != "math"]
        absent = "; ".join(f"{name} UNAVAILABLE: {refusal}" for name, refusal in answers.items() if refusal is not None)
        how = "tried here" if tried else "by the table, there is no GPU to try it on"
        yield Check(
            id=f"attention-{dtype}",
            group="paths",
            status="ok" if fused or not tried else "warn",
            text=f"scaled_dot_product_attention in {dtype} ({how}): {', '.join(free) or 'nothing'}"
            + (f"; {absent}" if absent else ""),
            next=None if fused or not tried else "only the unfused math is left: its times say nothing about attention",
            source=ATTENTION_SOURCE,
        )

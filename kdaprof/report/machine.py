"""Sections of report.md about the machine: conditions, ceilings, what measuring costs, environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kdaprof.report.gfm import code, plain, text_table
from kdaprof.report.rules import rule_title
from kdaprof.report.scene import Scene
from kdaprof.runs.conditions import ConditionsSnapshot
from kdaprof.runs.environment import TorchSettings
from kdaprof.runs.record import RunRecord
from kdaprof.runs.units import format_bytes, format_fraction, format_ns, format_rate

# Rules about the machine rather than about a cell.
_MACHINE_RULES = ("Q03", "Q04", "Q05")

Say = Callable[[Sequence[ConditionsSnapshot]], str]


def conditions(scene: Scene) -> list[str]:
    """Card and host before, during and after, and whether a rule took offence."""
    headers, rows = conditions_table(scene.record)
    if not rows:
        return ["Not recorded."]
    return [*text_table(headers, rows), "", judged(scene), *_without_card(scene.record)]


def ceilings(scene: Scene) -> list[str]:
    """Rates that floors are computed from."""
    rows = [
        (c.name, format_rate(c.value, c.unit), c.provenance, str(c.n) if c.n else "—", c.detail)
        for c in scene.record.ceilings
    ]
    return text_table(("ceiling", "rate", "origin", "n", "how"), rows, right=(1, 3)) if rows else []


def overhead(scene: Scene) -> list[str]:
    """What one use of each instrument costs on this machine."""
    rows = [(cost.name, format_ns(cost.ns), f"{cost.n:,}") for cost in scene.record.overhead]
    if not rows:
        return []
    legend = "Unprofiled samples carry at most one NVTX range each; the other instruments have repeats of their own."
    return [*text_table(("instrument", "cost of one use", "n"), rows, right=(1, 2)), "", legend]


def environment(scene: Scene) -> list[str]:
    """Versions, card, host, settings and the command."""
    rows = environment_rows(scene)
    return [f"- **{name}:** {code(text) if name == 'command' else plain(text)}" for name, text in rows]


def environment_rows(scene: Scene) -> list[tuple[str, str]]:
    """What the run was made with: (name, text)."""
    env = scene.record.environment
    rows = [("command", " ".join(scene.record.command))]
    if env.gpu:
        gpu = env.gpu
        parts = (
            gpu.name,
            f"compute capability {gpu.capability}" if gpu.capability else None,
            f"{gpu.sm_count} SMs" if gpu.sm_count else None,
            format_bytes(gpu.total_memory_bytes) if gpu.total_memory_bytes else None,
            f"L2 {format_bytes(gpu.l2_bytes)}" if gpu.l2_bytes else None,
        )
        rows.append(("GPU", ", ".join(part for part in parts if part)))
    host = (env.host.cpu_model, f"{env.host.cores_total} cores" if env.host.cores_total else None, env.host.platform)
    rows.append(("host", ", ".join(part for part in host if part)))
    have = [f"{v.name} {v.version}" for v in env.versions if v.version]
    lack = [f"{v.name} ({v.missing})" for v in env.versions if not v.version]
    rows += [("versions", ", ".join(have))] if have else []
    rows += [("absent", ", ".join(lack))] if lack else []
    rows += [("torch settings", _settings(env.torch))] if env.torch else []
    rows += [("variables", " ".join(f"{v.name}={v.value}" for v in env.variables))] if env.variables else []
    dirty = " with uncommitted changes" if env.git_dirty else ""
    rows.append(("commit", f"{env.git_commit}{dirty}" if env.git_commit else env.git_missing or "unknown"))
    return rows


def _settings(torch: TorchSettings) -> str:
    parts = (
        f"fp32 matmul precision {torch.matmul_precision}",
        f"TF32 {_yes(torch.allow_tf32_matmul)}",
        f"deterministic {_yes(torch.deterministic_algorithms)}",
        f"{torch.num_threads} threads",
    )
    return ", ".join(parts)


def conditions_table(record: RunRecord) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of what was read of card and host; no rows when nothing was."""
    taken = record.conditions
    every = (("before", [taken.before]), ("during", list(taken.during)), ("after", [taken.after]))
    groups = [(name, found) for name, snaps in every if (found := [snap for snap in snaps if snap])]
    columns: dict[str, Say] = {
        "card busy before": _span(lambda s: s.gpu.util_before if s.gpu else None, format_fraction),
        "SM clock": _span(lambda s: s.gpu.sm_clock_hz if s.gpu else None, lambda v: format_rate(v, "Hz")),
        "limits": _words(_limits),
        "power": _span(lambda s: s.gpu.power_w if s.gpu else None, lambda v: f"{v:.0f} W"),
        "temperature": _span(lambda s: s.gpu.temperature_c if s.gpu else None, lambda v: f"{v:.0f} °C"),
        "other processes": _words(_foreign),
        "load": _span(lambda s: s.host.load1, lambda v: f"{v:.1f}"),
        "cores": _span(lambda s: s.host.cores_available, lambda v: f"{v:.0f}"),
        "steal": _span(lambda s: s.host.steal, format_fraction),
    }
    texts = {name: [say(snaps) for _, snaps in groups] for name, say in columns.items()}
    kept = [name for name, column in texts.items() if any(column)]
    when = [name if len(snaps) == 1 else f"{name} ({len(snaps)} times)" for name, snaps in groups]
    return ["when", *kept], [[when[i], *(texts[name][i] or "—" for name in kept)] for i in range(len(groups))]


def _span(read: Callable[[ConditionsSnapshot], float | None], text: Callable[[float], str]) -> Say:
    """`118 W to 240 W` over snapshots; empty where none has the value."""

    def say(snaps: Sequence[ConditionsSnapshot]) -> str:
        values = [value for snap in snaps if (value := read(snap)) is not None]
        ends = dict.fromkeys((text(min(values)), text(max(values)))) if values else ()
        return " to ".join(ends)

    return say


def _words(read: Callable[[ConditionsSnapshot], str | None]) -> Say:
    return lambda snaps: "; ".join(dict.fromkeys(text for snap in snaps if (text := read(snap))))


def _limits(snap: ConditionsSnapshot) -> str | None:
    if snap.gpu is None or snap.gpu.throttle_reasons is None:
        return None
    return ", ".join(snap.gpu.throttle_reasons) or "none"


def _foreign(snap: ConditionsSnapshot) -> str | None:
    if snap.gpu is None:
        return None
    if snap.gpu.foreign is None:
        return f"unknown: {snap.reason('gpu.foreign') or 'not told'}"
    held = [f"{p.name or 'pid'} {format_bytes(p.used_bytes) if p.used_bytes else ''}".strip() for p in snap.gpu.foreign]
    return ", ".join(held) or "none"


def judged(scene: Scene) -> str:
    """Whether a rule about the machine took offence."""
    tripped = {r.rule for cell in scene.cells for f in cell.result.facts.values() for r in f.reasons}
    told = [f"{rule} {rule_title(rule)}" for rule in _MACHINE_RULES if rule in tripped]
    if told:
        return f"The machine was not fit to quote everything: {', '.join(told)}."
    if scene.record.environment.gpu is None:
        return "No GPU: the rules about the card had nothing to look at."
    return f"No rule about the machine was tripped: {_card(scene.record)} (Q03), clocks steady (Q04), host quiet (Q05)."


def _card(record: RunRecord) -> str:
    """What is known of others on the card: in a container their processes may be out of sight."""
    cards = [snap.gpu for snap in (record.conditions.before, record.conditions.after) if snap and snap.gpu]
    if all(card.foreign is not None for card in cards):
        return "card not shared"
    idle = "card idle before the run, " if cards[0].util_before is not None else ""
    return f"{idle}others' processes out of sight here"


def _without_card(record: RunRecord) -> list[str]:
    why = record.environment.gpu_missing
    return ["", f"GPU: {plain(why)}."] if why else []


def _yes(value: bool | None) -> str:
    return "unknown" if value is None else "on" if value else "off"

"""One sentence for one figure: value, interval, conditions and run, as it may stand in somebody's text."""

from __future__ import annotations

from kdaprof.report.labels import FIGURES
from kdaprof.report.pairs import shape_text
from kdaprof.report.rules import rule_title
from kdaprof.report.units import utc
from kdaprof.runs.facts import Fact
from kdaprof.runs.history import machine_of
from kdaprof.runs.record import CellRecord, RunRecord
from kdaprof.runs.results import CellResult
from kdaprof.runs.units import format_value

_CACHE = {"rotate": "inputs rotated past the L2 cache", "warm": "inputs warm in the cache"}
_PROOF = {"confirmed": "path confirmed by", "partial": "path partly proven, by"}


def citation(record: RunRecord, cell: CellRecord, result: CellResult, name: str) -> str:
    """The sentence for a figure that may be quoted."""
    fact = result.facts[name]
    title, how = FIGURES.get(name, (name, ""))
    key = cell.key
    where = f"{key.workload} {key.path}, {key.phase}, {key.mode}, {key.context}, {shape_text(key)}, {key.dtype}"
    proof = _proof(result)
    cache = _CACHE.get(cell.observed.cache, cell.observed.cache) if cell.observed else ""
    parts = (_spread(fact), fact.provenance, how.removesuffix(f"; {fact.provenance}"))
    conditions = (machine_of(record.environment), *_versions(record), cache, proof)
    return (
        f"{title[:1].upper()}{title[1:]} of {where}: {_value(fact)} ({'; '.join(part for part in parts if part)}) on "
        f"{', '.join(part for part in conditions if part)}; {record.tool}, {utc(record.started_unix_ns)}"
        f"{_commit(record)}, run {record.run}{'' if record.complete else ' (partial)'}."
    )


def refusal(place: str, fact: Fact) -> str:
    """Why a figure may not be cited: missing and why, or each rule with its sentence."""
    if fact.value is None:
        return f"{place} is missing: {fact.detail or fact.missing}"
    rules = "; ".join(f"{_rule(reason.rule)}: {reason.text}" for reason in fact.reasons)
    return f"{place} may not be cited. {rules}"


def _rule(rule: str) -> str:
    title = rule_title(rule)
    return rule if title == rule else f"{rule} {title}"


def _value(fact: Fact) -> str:
    return "" if fact.value is None else format_value(fact.value, fact.unit)


def _spread(fact: Fact) -> str:
    count = f"n = {fact.n:,}" if fact.n else ""
    if fact.ci95 is None or fact.ci95[0] == fact.ci95[1]:
        return count
    low, high = (format_value(end, fact.unit) for end in fact.ci95)
    return f"95 % interval {low} to {high}{', ' if count else ''}{count}"


def _versions(record: RunRecord) -> tuple[str, ...]:
    names = (("torch", "torch"), ("triton", "Triton"), ("driver", "driver"))
    return tuple(f"{title} {version}" for name, title in names if (version := record.environment.version(name)))


def _proof(result: CellResult) -> str:
    words = _PROOF.get(result.evidence.verdict)
    names = [witness.name for witness in result.evidence.witnesses if witness.says == result.evidence.expected]
    return f"{words} {', '.join(names)}" if words and names else ""


def _commit(record: RunRecord) -> str:
    env = record.environment
    return f", commit {env.git_commit[:12]}{' with changes' if env.git_dirty else ''}" if env.git_commit else ""

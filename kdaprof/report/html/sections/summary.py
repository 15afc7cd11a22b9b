"""What a team lead reads: tiles, the verdict, what was retracted, under which conditions, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.analysis.verdict import PARTIAL, sentence
from kdaprof.report.html.grids import plain_grid, row_id
from kdaprof.report.html.model import Block, Folded, Grid, Head, Item, Items, Prose, Section, Spot, Subject, Tiles
from kdaprof.report.labels import SEVERITY, label
from kdaprof.report.machine import conditions_table, judged
from kdaprof.report.named import named_values
from kdaprof.report.pairs import Cell
from kdaprof.report.places import place_of
from kdaprof.report.scene import Scene
from kdaprof.report.trouble import troubles
from kdaprof.runs.facts import Fact
from kdaprof.runs.results import Finding
from kdaprof.runs.retractions import RULE
from kdaprof.runs.units import format_value

RETRACTED = RULE
"""The rule of a reason that somebody gave by hand, with `kdaprof retract`."""
_RETRACTED_SHOWN = 20
"""More than these fold away below their reasons: a whole run was retracted."""
TONES = {"confirmed": "good", "partial": "warn", "gate-only": "warn", "contradicted": "bad", "none": "bad"}
_SEVERITY_TONE = {"error": "bad", "warn": "warn", "info": "note"}


def verdict(subject: Subject) -> Section:
    """Tiles that say how far the run may be trusted, then the verdict's sentences."""
    scene = subject.scene
    blocks: list[Block] = [_tiles(subject)]
    known = {cell.key.path: _proof(subject, cell.key.path) for cell in scene.cells}
    items = []
    for text in sentence(scene.record, scene.results):
        head, colon, rest = text.partition(":")
        if colon and head in known:
            items.append(Item(head, _capital(rest.strip()), *known[head]))
        else:
            tone = "warn" if head == PARTIAL else ""
            items.append(Item(head if colon else "", _capital(rest.strip()) if colon else text, tone))
    blocks.append(Items(tuple(items), large=True) if items else Prose(("Nothing was measured.",), "warn"))
    told = [f"{trouble.cells}: {trouble.status}. {trouble.why}" for trouble in troubles(scene)]
    if told:
        blocks.append(Prose(tuple(told), "warn"))
    if scene.record.notes:
        blocks.append(Prose(tuple(dict.fromkeys(scene.record.notes)), "note"))
    return Section("verdict", "Verdict", tuple(blocks), group="Read first")


def corrections(subject: Subject) -> Section:
    """What was retracted after it was published, and by what."""
    rows = [
        _retraction(subject, cell, name, fact, reason.text)
        for cell in subject.scene.cells
        for name, fact in cell.result.facts.items()
        for reason in fact.reasons
        if reason.rule == RETRACTED
    ]
    lead = "Figures of this run that somebody withdrew after they had been read, cited or compared."
    if not rows:
        return Section("corrections", "Corrections", (Prose(("Nothing was retracted.",), "good"),), lead)
    heads = (
        Head("cell", "cell", right=False),
        Head("figure", "fact", right=False),
        Head("value", "value"),
        Head("why", "why", right=False),
    )
    grid = Grid("corrections-table", "Retracted figures", heads, tuple(rows), row_heads=2)
    if len(rows) <= _RETRACTED_SHOWN:
        return Section("corrections", "Corrections", (grid,), lead)
    whys = tuple(dict.fromkeys(row[3].text for row in rows))
    said = Prose((f"{len(rows)} figures were retracted.", *whys[:_RETRACTED_SHOWN]), "bad")
    folded = Folded(((f"All {len(rows)}", grid),), "corrections.csv")
    return Section("corrections", "Corrections", (said, folded), lead)


def conditions(subject: Subject) -> Section:
    """Card and host before, during and after; whether a rule took offence."""
    scene = subject.scene
    headers, rows = conditions_table(scene.record)
    said = judged(scene)
    quiet = said.startswith("No rule")
    blocks: list[Block] = [Prose((said,), "good" if quiet else "warn")]
    if rows:
        blocks.append(plain_grid("conditions-table", "Card and host", headers, rows))
    missing = scene.record.environment.gpu_missing
    if missing:
        blocks.append(Prose((f"GPU: {missing}.",)))
    return Section("conditions", "Conditions", tuple(blocks), "The machine while it was measured.")


def findings(subject: Subject) -> Section | None:
    """Each diagnosis with its numbers, its threshold and the next step; the most severe first."""
    scene = subject.scene
    if not scene.results.findings:
        return None
    order = list(_SEVERITY_TONE)
    kinds: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in sorted(scene.results.findings, key=lambda one: order.index(one.severity)):
        kinds.setdefault((finding.severity, finding.id, finding.next), []).append(finding)
    items = tuple(_item(found, scene) for found in kinds.values())
    return Section("findings", "Findings", (Items(items),), "Diagnoses, each with its numbers and what to do.")


def _item(found: Sequence[Finding], scene: Scene) -> Item:
    """Findings of one kind with one remedy: what each says, the remedy once, the numbers folded away."""
    first = found[0]
    more = [f"next: {first.next}"] if first.next else []
    told = []
    for finding in found:
        place = place_of(finding, scene)
        parts = [named_values(finding.evidence)] if finding.evidence else []
        parts += [f"threshold {named_values(finding.threshold)}"] if finding.threshold else []
        told.append((f"{place}: {finding.text}" if place else finding.text, "; ".join(parts)))
    numbers = tuple(dict.fromkeys(text for _, text in told if text))
    texts = [text for text, _ in told]
    return Item(
        first.id, texts[0], _SEVERITY_TONE[first.severity], SEVERITY[first.severity], tuple(more), (), "",
        tuple(texts[1:]), numbers,
    )  # fmt: skip


def _tiles(subject: Subject) -> Tiles:
    scene = subject.scene
    facts = [fact for cell in scene.cells for fact in cell.result.facts.values() if fact.value is not None]
    refused = sum(not fact.quotable for fact in facts)
    done = sum(cell.record.status == "ok" for cell in scene.cells)
    whole = "whole" if scene.record.complete else "partial"
    proven = [c for c in scene.cells if c.result.evidence.verdict in ("confirmed", "partial")]
    against = sum(cell.result.evidence.verdict == "contradicted" for cell in scene.cells)
    gone = sum(any(r.rule == RETRACTED for r in fact.reasons) for fact in facts)
    return Tiles(
        (
            ("run", whole, "good" if scene.record.complete else "warn"),
            ("cells measured", f"{done} of {len(scene.cells)}", "good" if done == len(scene.cells) else "warn"),
            (
                "path proven",
                f"{len(proven)} of {done}",
                "bad" if against else "good" if done and len(proven) == done else "warn",
            ),
            (
                "figures that may be quoted",
                f"{len(facts) - refused:,} of {len(facts):,}",
                "warn" if refused or not facts else "good",
            ),
            ("retracted", str(gone), "bad" if gone else "good"),
        )
    )


def _proof(subject: Subject, path: str) -> tuple[str, str]:
    """Tone and badge of a path: its worst verdict, or in how many cells it is proven where some are and some not."""
    order = list(TONES)
    found = [c.result.evidence for c in subject.scene.cells if c.key.path == path and c.record.status == "ok"]
    if not found:
        return "", ""
    worst = max(found, key=lambda evidence: order.index(evidence.verdict)).verdict
    proven = sum(evidence.verdict in ("confirmed", "partial") for evidence in found)
    if proven and worst in ("gate-only", "none"):
        return "warn", f"proven in {proven} of {len(found)} cells"
    return TONES[worst], worst


def _retraction(subject: Subject, cell: Cell, name: str, fact: Fact, why: str) -> tuple[Spot, ...]:
    value = "—" if fact.value is None else format_value(fact.value, fact.unit)
    rules = tuple(sorted({reason.rule for reason in fact.reasons}))
    return (
        Spot(subject.scene.naming.name(cell.key, mode=True)),
        Spot(label(name), raw=name),
        Spot(value, raw=str(fact.value), fact=row_id(cell, name), rules=rules),
        Spot(why, raw=why),
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

"""Why a figure may or may not be believed: witnesses, refusals, the rules, and every figure with its whole record."""

from __future__ import annotations

from collections.abc import Iterable

from kdaprof.analysis.guards import PENDING, RULES, PendingRule, Rule
from kdaprof.report.html.grids import breaks, row_id
from kdaprof.report.html.model import Folded, Grid, Head, Item, Items, Prose, Section, Spot, Subject
from kdaprof.report.html.sections.summary import RETRACTED, TONES
from kdaprof.report.labels import FIGURES, label
from kdaprof.report.named import named_values
from kdaprof.report.pairs import Cell
from kdaprof.report.proof import VERDICTS, who, witness_text
from kdaprof.report.rules import refused_figures, rule_title
from kdaprof.report.tables import DASH, missing_text
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_value

_ALL: tuple[Rule | PendingRule, ...] = (*RULES, *PENDING)
_EVERY = (
    Head("figure", "fact", right=False),
    Head("value", "value"),
    Head("n", "n"),
    Head("min", "min"),
    Head("p10", "p10"),
    Head("p90", "p90"),
    Head("max", "max"),
    Head("95 % interval", "ci95"),
    Head("origin", "provenance", right=False),
    Head("made from", "sources", right=False),
    Head("remark", "detail", right=False),
)


def evidence(subject: Subject) -> Section | None:
    """Three witnesses a cell, and whether they agree."""
    scene = subject.scene
    ran = [cell for cell in scene.cells if cell.record.status in {"ok", "failed"} and cell.result.evidence.witnesses]
    if not ran:
        return None
    heads = [Head(header, header, right=False) for header, _ in scene.naming.columns]
    heads += [Head(name, name, right=False) for name in ("mode", "verdict", "gate", "kernels", "counts")]
    rows = []
    for cell in ran:
        said = {witness.name: witness for witness in cell.result.evidence.witnesses}
        row = [Spot(get(cell.key)) for _, get in scene.naming.columns] + [Spot(cell.key.mode)]
        row.append(Spot(cell.result.evidence.verdict, tone=TONES[cell.result.evidence.verdict]))
        for name in ("gate", "kernels", "counts"):
            witness = said.get(name)
            agrees = witness is not None and witness.says == cell.key.path
            tone = "dim" if witness is None or witness.says is None else "" if agrees else "bad"
            row.append(Spot(witness_text(witness, cell.key.path), tone=tone))
        rows.append(tuple(row))
    lead = "Three witnesses that do not know of each other: the dispatcher, the kernels on the device, and the counts."
    grid = Grid(
        "evidence-table",
        "Witnesses",
        tuple(heads),
        tuple(rows),
        (VERDICTS,),
        len(scene.naming.columns) + 1,
        breaks([row[0].text for row in rows]),
    )
    return Section("evidence", "Which path ran", (grid,), lead, "Why believe it")


def refusals(subject: Subject) -> Section:
    """Every figure that a rule refuses, with the numbers that tripped it."""
    found = refused_figures(subject.scene.cells, subject.scene.naming)
    lead = "Struck out wherever they stand on this page. No ratio and no verdict is made from what is wrong in itself."
    if not found:
        return Section("refused", "Refused figures", (Prose(("No figure is refused.",), "good"),), lead)
    items = tuple(Item(_title(one.rule), one.text, more=(who(one),), rules=(one.rule,)) for one in found)
    return Section("refused", "Refused figures", (Items(items),), lead)


def rules(subject: Subject) -> Section:
    """All rules, each with the figure it comes from, its limits, and what it refuses here."""
    counts: dict[str, int] = {}
    for cell in subject.scene.cells:
        for fact in cell.result.facts.values():
            for name in {reason.rule for reason in fact.reasons} if fact.value is not None else ():
                counts[name] = counts.get(name, 0) + 1
    items = []
    for rule in sorted(_ALL, key=lambda one: one.id):
        more = [f"limits: {named_values(rule.thresholds)}"] if rule.thresholds else []
        here = counts.pop(rule.id, 0)
        badge = f"refuses {here} {'figure' if here == 1 else 'figures'} here" if here else "nothing refused here"
        head = f"{rule.id} {rule.title}"
        items.append(Item(head, rule.explanation, "warn" if here else "", badge, tuple(more), id=f"rule-{rule.id}"))
    for rule_id, here in sorted(counts.items()):
        text = "Withdrawn by hand, with `kdaprof retract`, and everything that was made from it."
        items.append(Item(rule_id, text, "bad", f"refuses {here} here", id=f"rule-{rule_id}"))
    lead = "Each rule comes from a figure that had to be withdrawn after it was published."
    return Section("rules", "The rules", (Items(tuple(items)),), lead)


def every_figure(subject: Subject) -> Section:
    """All figures of all cells with n, spread, interval, origin and sources."""
    scene = subject.scene
    parts = []
    for number, cell in enumerate(scene.cells):
        facts = {name: fact for name, fact in cell.result.facts.items() if cell.record.status == "ok"}
        if not facts:
            continue
        name = f"{scene.naming.name(cell.key)} {cell.key.mode}"
        have = sum(fact.value is not None for fact in facts.values())
        refused = sum(fact.value is not None and not fact.quotable for fact in facts.values())
        summary = f"{name}: {have} of {len(facts)} figures" + (f", {refused} refused" if refused else "")
        rows = tuple(_full(subject, cell, fact_name, fact) for fact_name, fact in facts.items())
        ids = tuple(row_id(cell, fact_name) for fact_name in facts)
        parts.append((summary, Grid(f"every-{number}", cell.record.id, _EVERY, rows, row_ids=ids)))
    lead = "Press a figure anywhere on the page to see its record from here."
    blocks = (Folded(tuple(parts), "every-figure.csv"),) if parts else ()
    return Section("every", "Every figure", blocks, lead, "Look up")


def rule_titles(cells: Iterable[Cell]) -> dict[str, str]:
    """Short names of the rules, of those too that are not among Q01 to Q16."""
    known = {rule.id: rule.title for rule in _ALL}
    for cell in cells:
        for fact in cell.result.facts.values():
            for reason in fact.reasons:
                known.setdefault(reason.rule, reason.rule)
    return known


def _title(rule: str) -> str:
    return rule if rule == RETRACTED else rule_title(rule)


def _full(subject: Subject, cell: Cell, name: str, fact: Fact) -> tuple[Spot, ...]:
    if fact.value is None:
        blank = tuple(Spot("") for _ in range(7))
        return (_named(name), Spot(DASH, missing=missing_text(fact)), *blank, Spot(""), Spot(missing_text(fact)))
    rules = () if fact.quotable else tuple(sorted({reason.rule for reason in fact.reasons}))
    ends = [_number(end, fact) for end in (fact.min, fact.p10, fact.p90, fact.max)]
    interval = (
        Spot(" … ".join(format_value(end, fact.unit) for end in fact.ci95), f"{fact.ci95[0]:.10g} {fact.ci95[1]:.10g}")
        if fact.ci95
        else Spot("")
    )
    remarks = list(dict.fromkeys([*(reason.text for reason in fact.reasons), *([fact.detail] if fact.detail else [])]))
    value = Spot(format_value(fact.value, fact.unit), f"{fact.value:.10g}", rules=rules)
    made = ", ".join(_source(subject, cell, source) for source in fact.sources)
    count = Spot(f"{fact.n:,}" if fact.n else "", str(fact.n or ""))
    return (_named(name), value, count, *ends, interval, Spot(fact.provenance), Spot(made), Spot("; ".join(remarks)))


def _named(name: str) -> Spot:
    return Spot(label(name) if name in FIGURES else name, raw=name)


def _number(end: float | None, fact: Fact) -> Spot:
    return Spot("") if end is None else Spot(format_value(end, fact.unit), f"{end:.10g}")


def _source(subject: Subject, cell: Cell, source: str) -> str:
    """A source as a reader names it: the figure alone where it is of the same cell."""
    rest = source.removeprefix(f"{subject.scene.record.run}/")
    place, _, name = rest.rpartition("/")
    if place == cell.record.id:
        return name
    names = {c.record.id: subject.scene.naming.name(c.key, mode=True) for c in subject.scene.cells}
    return f"{name} of {names[place]}" if place in names else f"{name} ({place})" if place else name

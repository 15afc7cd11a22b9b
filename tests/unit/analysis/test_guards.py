"""When a number may be quoted: each rule trips alone in its scene and not in its near miss."""

from __future__ import annotations

from dataclasses import replace

import guard_scenes
import pytest
import scenes
from guard_scenes import SCENES, RuleScene
from scenes import US, figure, view

from kdaprof.analysis.guards import PENDING, RULES, apply_rules, direct_reasons, judge_run, may_enter_ratio, rule_of
from kdaprof.analysis.guards.families import COUNTED, DEVICE_TIMED, ERRORS, FLOOR, TIMED
from kdaprof.analysis.view import CellView
from kdaprof.runs.facts import EAGER_FACTS, GRAPH_FACTS, Fact, Reason, absent

LIVE = [rule.id for rule in RULES]
CASES = [pytest.param(rule, one, id=f"{rule}-{one.what}") for rule, many in SCENES.items() for one in many]


def rules_against(shown: CellView) -> dict[str, set[str]]:
    """Rules by figure, sources apart."""
    found = {name: {r.rule for r in direct_reasons(shown, name, fact)} for name, fact in shown.facts.items()}
    return {name: rules for name, rules in found.items() if rules}


def test_a_good_cell_is_quotable_throughout() -> None:
    for mode in ("eager", "graph"):
        judged = apply_rules(view(scenes.scene(mode=mode)))
        assert {name for name, fact in judged.items() if fact.reasons} == set()
        assert all(fact.quotable for fact in judged.values() if fact.value is not None)


@pytest.mark.parametrize("rule", LIVE)
def test_every_live_rule_has_scenes(rule: str) -> None:
    assert SCENES.get(rule), f"{rule} has no scene that trips it and no near miss"


@pytest.mark.parametrize(("rule", "scene"), CASES)
def test_the_scene_trips_its_rule_alone(rule: str, scene: RuleScene) -> None:
    against = rules_against(scene.trips)
    assert rule in against.get(scene.figure, set())
    assert set().union(*against.values()) == {rule}
    judged = apply_rules(scene.trips)[scene.figure]
    assert not judged.quotable
    assert judged.value is not None, "a refused figure keeps its value: reports strike it out"


@pytest.mark.parametrize(("rule", "scene"), CASES)
def test_the_near_miss_trips_nothing(rule: str, scene: RuleScene) -> None:
    assert rules_against(scene.spares) == {}
    assert apply_rules(scene.spares)[scene.figure].quotable


@pytest.mark.parametrize(("rule", "scene"), CASES)
def test_a_refusal_gives_its_numbers_or_its_words(rule: str, scene: RuleScene) -> None:
    text = next(r.text for r in apply_rules(scene.trips)[scene.figure].reasons if r.rule == rule)
    assert len(text) > 15
    assert "\n" not in text
    assert not text.endswith(".")


def test_the_sixteen_rules_are_all_there_once() -> None:
    known = [*LIVE, *(rule.id for rule in PENDING)]
    assert sorted(known) == [f"Q{number:02}" for number in range(1, 17)]
    for rule_id in known:
        rule = rule_of(rule_id)
        assert rule.anchor == rule_id.lower()
        assert rule.title
        assert rule.explanation.endswith(".")


def test_every_figure_belongs_to_a_family() -> None:
    assert EAGER_FACTS.keys() | GRAPH_FACTS.keys() == TIMED | FLOOR | COUNTED | ERRORS


def test_a_missing_figure_is_never_refused() -> None:
    shown = guard_scenes.seen(check=guard_scenes.check(1.0))
    facts = {name: absent(unit, "no-device", "no GPU") for name, unit in EAGER_FACTS.items()}
    assert all(not fact.reasons for fact in apply_rules(replace(shown, facts=facts)).values())


def test_a_loaded_host_leaves_device_times_counts_and_errors() -> None:
    judged = apply_rules(guard_scenes.in_conditions(host={"load1": 60.0}))
    assert not judged["host_ns"].quotable
    for name in (*DEVICE_TIMED, "launches", "error_l2", "floor_ns"):
        assert not judged[name].reasons, name


def test_a_cpu_run_keeps_its_errors_and_loses_its_times() -> None:
    judged = apply_rules(guard_scenes.seen(device="cpu", interpreted=True))
    assert judged["error_l2"].quotable
    assert {
        name for name, fact in judged.items() if fact.value is not None and name in TIMED and fact.quotable
    } == set()


def test_the_rules_say_the_same_when_applied_twice() -> None:
    shown = guard_scenes.in_conditions(host={"load1": 60.0})
    once = apply_rules(shown)
    assert apply_rules(replace(shown, facts=once)) == once


# ---------------------------------------------------------------- sources


def derived(*sources: str, value: float = 72 * US) -> Fact:
    return figure(value, half=0.02, provenance="derived", sources=sources)


def test_a_derived_figure_falls_with_its_source_through_two_steps() -> None:
    cell = scenes.key().id
    wall, idle = (f"{scenes.RUN_ID}/{cell}/{name}" for name in ("wall_ns", "idle_ns"))
    shown = guard_scenes.with_facts(
        wall_ns=figure(200 * US, half=0.3),
        idle_ns=derived(wall),
        host_bound=figure(0.36, "fraction", provenance="derived", sources=(idle,)),
    )
    judged = apply_rules(shown)
    for name in ("idle_ns", "host_bound"):
        assert [reason.rule for reason in judged[name].reasons] == ["Q02", "Q13"], name
    assert judged["idle_ns"].reasons[0].text.startswith("through wall_ns: 95 % interval")
    assert judged["host_bound"].reasons[0].text == judged["idle_ns"].reasons[0].text
    assert "wall_ns (Q02)" in judged["idle_ns"].reasons[1].text
    assert judged["gpu_busy_ns"].quotable


def test_a_figure_with_a_source_in_another_cell_falls_with_it() -> None:
    eager, graph = scenes.scene(), scenes.scene(mode="graph")
    source = f"{scenes.RUN_ID}/{graph.id}/wall_ns"
    first = guard_scenes.with_facts(graph_removed=figure(0.9, "fraction", provenance="derived", sources=(source,)))
    good = view(graph)
    bad = replace(good, facts={**good.facts, "wall_ns": figure(70 * US, half=0.5)})
    assert judge_run([first, good])[eager.id]["graph_removed"].quotable
    assert [r.rule for r in judge_run([first, bad])[eager.id]["graph_removed"].reasons] == ["Q02", "Q13"]
    elsewhere = {source: judge_run([bad])[graph.id]["wall_ns"]}
    assert not apply_rules(first, elsewhere)["graph_removed"].quotable


def test_a_source_that_the_run_does_not_hold_refuses() -> None:
    shown = guard_scenes.with_facts(idle_ns=derived(f"{scenes.RUN_ID}/no/such/cell/wall_ns"))
    assert "not in this run" in judge_run([shown])[shown.cell.id]["idle_ns"].reasons[0].text


def test_a_floor_has_the_runs_ceilings_for_sources() -> None:
    for name, quotable in (("copy", True), ("no-such-rate", False)):
        floor = figure(19 * US, half=0.0, provenance="derived", sources=(f"{scenes.RUN_ID}/ceilings/{name}",))
        shown = guard_scenes.with_facts(floor_ns=floor)
        assert judge_run([shown])[shown.cell.id]["floor_ns"].quotable is quotable


def test_a_circle_of_sources_ends() -> None:
    place = f"{scenes.RUN_ID}/{scenes.key().id}/"
    shown = guard_scenes.with_facts(
        idle_ns=derived(place + "host_bound"), host_bound=derived(place + "idle_ns", value=1.0)
    )
    assert apply_rules(shown)["idle_ns"].quotable


# ---------------------------------------------------------------- ratios


def refused(*rules: str) -> Fact:
    return figure(200 * US).refuse(*(Reason(rule=rule, text="a reason") for rule in rules))


@pytest.mark.parametrize("rule", ["Q06", "Q07", "Q08", "Q09", "Q15", "Q16"])
def test_no_ratio_from_what_is_no_measurement(rule: str) -> None:
    assert not may_enter_ratio(refused(rule))
    assert not may_enter_ratio(refused("Q02", rule))


@pytest.mark.parametrize("rules", [("Q02",), ("Q05",), ("Q02", "Q05"), ("Q02", "Q13")])
def test_spread_and_load_may_enter_an_interleaved_ratio_only(rules: tuple[str, ...]) -> None:
    assert may_enter_ratio(refused(*rules))
    assert not may_enter_ratio(refused(*rules), interleaved=False)


def test_other_refusals_stay_out_and_good_figures_enter() -> None:
    assert may_enter_ratio(figure(200 * US), interleaved=False)
    for rule in ("Q01", "Q03", "Q04", "Q14"):
        assert not may_enter_ratio(refused(rule))
    assert not may_enter_ratio(absent("ns", "failed", "no"))

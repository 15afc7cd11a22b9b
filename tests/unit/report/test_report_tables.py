"""Tables before they are drawn, and how cells are named and paired."""

from __future__ import annotations

from dataclasses import replace

import paper_runs
import pytest

from kdaprof.report.pairs import Pair, cells_of, naming, pairs_of
from kdaprof.report.sheets import graph_table, idle_table, main_table, watched_table
from kdaprof.report.tables import FigureColumn, entry_of, figure_table, missing_text
from kdaprof.report.units import scale_for
from kdaprof.runs.facts import Reason, absent
from kdaprof.runs.results import RunResults


def test_one_unit_for_all_times_of_a_table() -> None:
    big, small = paper_runs.measured(7_250_000), paper_runs.measured(49_300)
    table = figure_table([("path", ["a"])], [FigureColumn("wall", "ns", (big,)), FigureColumn("floor", "ns", (small,))])
    assert [column.header for column in table.columns] == ["path", "wall ms", "floor ms"]
    assert [entry.text for entry in table.rows[0]] == ["a", "7.25", "0.0493"]


def test_a_column_without_any_value_is_left_out_with_its_reasons() -> None:
    none = absent("ns", "no-device", "no card")
    broken = absent("ns", "failed", "it fell over")
    table = figure_table(
        [("path", ["a", "b"])],
        [
            FigureColumn("wall", "ns", (paper_runs.measured(1e6), broken)),
            FigureColumn("busy", "ns", (none, broken)),
            FigureColumn("floor", "ns", (none, broken)),
            FigureColumn("cold", "ns", (broken, broken)),
        ],
    )
    assert [column.header for column in table.columns] == ["path", "wall ms"]
    assert [(left.headers, left.reasons) for left in table.left_out] == [
        (("busy", "floor"), ("no device: no card",)),
        (("cold",), ("failed: it fell over",)),
    ]


def test_an_entry_says_whether_it_may_be_quoted() -> None:
    fact = paper_runs.measured(7_250_000)
    scale = scale_for("ns", [7_250_000])
    assert entry_of(fact, scale, "ci95").text == "7.25 [7.18, 7.32]"
    assert entry_of(fact, scale, "ci95").rules == ()
    refused = fact.refuse(Reason(rule="Q02", text="x"), Reason(rule="Q02", text="y"), Reason(rule="Q05", text="z"))
    assert entry_of(refused, scale).rules == ("Q02", "Q05")
    # A reason that does not refuse (partial evidence is quotable with its name) strikes nothing out.
    assert entry_of(replace(refused, quotable=True), scale).rules == ()


def test_no_interval_where_there_is_none_or_where_it_says_nothing() -> None:
    scale = scale_for("ns", [7_250_000])
    fact = paper_runs.measured(7_250_000)
    assert entry_of(replace(fact, ci95=None), scale, "ci95").text == "7.25"
    assert entry_of(replace(fact, ci95=(7_250_000, 7_250_000)), scale, "ci95").text == "7.25"
    assert entry_of(replace(fact, min=None), scale, "range").text == "7.25"


@pytest.mark.parametrize(
    ("kind", "detail", "text"),
    [
        ("no-device", "no CUDA device: not found", "no CUDA device: not found"),
        ("no-device", "NVML is absent", "no device: NVML is absent"),
        ("failed", "boom", "failed: boom"),
        ("not-applicable", "not asked for", "not applicable: not asked for"),
    ],
)
def test_a_reason_does_not_say_its_kind_twice(kind: str, detail: str, text: str) -> None:
    assert missing_text(absent("ns", kind, detail)) == text  # type: ignore[arg-type]


def test_cells_are_paired_by_mode_in_the_order_of_the_record() -> None:
    record, results = paper_runs.h200_run()
    pairs = pairs_of(cells_of(record, results))
    assert [(pair.key.path, pair.key.phase) for pair in pairs] == [
        (path, phase) for path in ("fused", "tensor") for phase in ("fwd", "bwd", "fwdbwd")
    ]
    assert all(pair.eager and pair.graph and pair.graph.key.mode == "graph" for pair in pairs)
    with pytest.raises(ValueError, match="at least one"):
        _ = Pair(None, None).key


def test_a_cell_without_results_is_shown_as_missing() -> None:
    record, results = paper_runs.laptop_run()
    cells = cells_of(record, RunResults(run=results.run))
    assert len(cells) == len(record.cells)
    assert all(fact.value is None for cell in cells for fact in cell.result.facts.values())


def test_names_hold_only_what_differs() -> None:
    record, results = paper_runs.h200_run()
    cells = cells_of(record, results)
    names = naming(cells)
    assert [header for header, _ in names.columns] == ["path", "phase"]
    assert names.common == "kda · B 10, T 512, H 12, K 64, V 64, C 16 · float32"
    assert names.name(cells[1].key, mode=True) == "fused fwd graph"
    assert names.name(cells[1].key) == "fused fwd"
    other = replace(cells[0].record, key=replace(cells[0].key, dtype="bfloat16", context="checkpoint"))
    wider = naming([*cells, replace(cells[0], record=other)])
    assert [header for header, _ in wider.columns] == ["path", "phase", "context", "dtype"]
    assert wider.name(other.key) == "fused fwd checkpoint bfloat16"


def test_the_tables_of_a_run() -> None:
    record, results = paper_runs.h200_run()
    cells = cells_of(record, results)
    pairs, names = pairs_of(cells), naming(cells)
    main = main_table(pairs, names)
    assert [entry.text for entry in main.rows[3]] == [
        "tensor", "fwd", "7.25 [7.18, 7.32]", "7.22", "1.17", "84 %", "287", "282", "173", "1.9e-7",
    ]  # fmt: skip
    graph = graph_table(pairs, names)
    shown = dict(zip([column.header for column in graph.columns], graph.rows[3], strict=True))
    assert shown["eager wall ms"].text == "7.25"
    assert shown["graph wall ms"].text == "1.33 [1.32, 1.34]"
    assert shown["floor ms"].text == "0.0493"
    assert shown["input copy ms"].text == "0.0610"
    idle = idle_table(pairs, names)
    assert [column.header for column in idle.columns] == [
        "path", "phase", "idle ms", "dispatch ms", "launch call ms", "drain ms", "drained by sync ms",
    ]  # fmt: skip


def test_the_busy_share_is_the_other_side_of_host_bound_and_as_refused() -> None:
    record, results = paper_runs.h200_run()
    cells = cells_of(record, results)
    table = watched_table(pairs_of(cells), naming(cells))
    assert [entry.text for entry in table.rows[3]][2:5] == ["16 %", "17 %", "0 %"]
    assert table.rows[0][2].rules == ("Q02",)

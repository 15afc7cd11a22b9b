"""The field report's tables of attention and of a product: every row measured or named with its reason."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kdaprof.analysis.derive import derive
from kdaprof.analysis.library import achieved, card_state
from kdaprof.analysis.view import RawRun
from kdaprof.report.field.page import field_tables
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.record import CellError, CellRecord
from kdaprof.runs.util import UtilReading
from kdaprof.workloads.gemm import facts as gemm
from kdaprof.workloads.mha import facts as mha

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "analysis"))
import scenes

MS = scenes.MS


def attention_key(path: str) -> CellKey:
    return CellKey("mha", path, "plain", "eager", "fwd", make_shape("mha", mha.FIELD_SHAPE), "float32")


def product_key(path: str) -> CellKey:
    shape = make_shape("gemm", gemm.FIELD_SHAPE)
    return CellKey("gemm", path, "plain", "eager", "fwd", shape, gemm.DTYPE_OF[path])


def cell(key: CellKey, wall_ns: int, kernel: str, **seen: Any) -> scenes.Scene:
    """A cell whose call is one kernel that takes all but 40 µs of its wall."""
    busy_ns = wall_ns - 40_000
    one = scenes.Kernel(kernel, call_ns=5_000, at_ns=20_000, busy_ns=busy_ns)
    line = scenes.timeline([one], wall_ns=wall_ns, spacing_ns=wall_ns + MS)
    facts = mha if key.workload == "mha" else gemm
    return scenes.scene(
        cell_key=key,
        wall_ns=wall_ns,
        host_ns=30_000,
        profiled_wall_ns=wall_ns,
        warm=(wall_ns,) * 5,
        timelines={"profiled-cuda": line, "profiled-full": line},
        **{"work": facts.work(key), "signatures": facts.signatures(key), "declared": None, "gate": None} | seen,
    )


def unavailable(key: CellKey, text: str) -> scenes.Scene:
    error = CellError(type="UnavailableError", text=text)
    return scenes.Scene(CellRecord(key=key, status="unavailable", error=error))


def section(text: str, heading: str) -> str:
    return re.split(r"(?m)^## ", text.split(heading, 1)[1], maxsplit=1)[0]


def rows(text: str, header: str) -> dict[str, list[str]]:
    """Rows of the first table whose header holds `header`, by their first column."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|") and header in line)
    found: dict[str, list[str]] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        first, *rest = (part.strip() for part in line.strip("|").split("|"))
        found[first] = rest
    return found


def attention_run() -> RawRun:
    words = "UNAVAILABLE: Expected query, key and value to all be of dtype: {Half, BFloat16}. Got Query dtype: float"
    return scenes.raw(
        unavailable(attention_key("flash"), words),
        cell(attention_key("mem-efficient"), 656_000, "fmha_cutlassF_f32_aligned_64x64_rf_sm80"),
        cell(attention_key("math"), 3_729_000, "ampere_sgemm_128x64_nn"),
    )


def products_run(**power: Any) -> RawRun:
    fp32 = cell(product_key("fp32"), 10_881_000, "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_ffma")
    bf16 = cell(product_key("bf16"), 3_615_000, "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NNT")
    beside = [
        UtilReading(t_ns=s.t_ns, uuid=scenes.GPU_UUID, field=field, value=value, stale=False, missing=None)
        for s in fp32.samples
        if s.repeat == "unprofiled"
        for field, value in (("power_w", 180.0), ("temperature_c", 47.0))
    ]
    own = [
        UtilReading(t_ns=8 * scenes.SECOND, uuid=scenes.GPU_UUID, field="power_w", value=v, stale=False, missing=None)
        for v in power.get("own", ())
    ]
    return scenes.raw(replace(fp32, util=(*beside, *own)), bf16)


def field(raw: RawRun) -> str:
    return field_tables(raw, derive(raw))


def test_attention_names_each_kernel_its_rate_and_what_is_unavailable() -> None:
    text = section(field(attention_run()), ". Attention (MHA)")
    assert "causal, float32, fwd" in text
    table = rows(text, "implementation")
    assert set(table) == {"mem-efficient", "math"}
    assert "fmha_cutlassF_f32_aligned_64x64_rf_sm80" in table["mem-efficient"][0]
    assert "rate TFLOP/s" in text
    assert table["mem-efficient"][-1] == "6.55"  # 4.03 GFLOP in 0.616 ms of GPU work
    gone = rows(text, "not measured")
    assert gone["flash"] == [
        "UNAVAILABLE",
        "Expected query, key and value to all be of dtype: {Half, BFloat16}. Got Query dtype: float",
    ]
    assert "mem-efficient is ahead" in text


def test_products_stand_with_clock_power_and_temperature() -> None:
    text = section(field(products_run()), ". GEMM")
    table = rows(text, "precision")
    assert "MHz" in text
    assert table["fp32"][-3].startswith("1,980")
    assert table["fp32"][-2:] == ["180", "47.0"]
    assert table["fp32"][-4] == "15.8"  # the field report's 15.79 TFLOP/s
    assert rows(text, "verdict")["fp32"] == ["established"]
    assert "averaged by NVML over a second" in text


def test_power_of_a_loop_of_ones_own_comes_before_what_was_interleaved() -> None:
    raw = products_run(own=(410.0,))
    state = card_state(raw, raw.record.cells[0])
    assert (state.power.value, state.power_is_shared) == (410.0, False)
    assert "own loop" in section(field(raw), ". GEMM")


@pytest.mark.parametrize(("spread", "verdict"), [(0.3, "not established: Q02 spread"), (0.0, "established")])
def test_a_product_that_spreads_is_not_established(spread: float, verdict: str) -> None:
    """One fixed product took 4.8 to 71 ms; its median says nothing."""
    raw = products_run()
    fp32 = raw.record.cells[0].id
    wide = tuple(
        replace(s, wall_ns=round(s.wall_ns * (1 + spread * (s.round - 2))))
        if s.repeat == "unprofiled" and s.round >= 0 and s.wall_ns is not None
        else s
        for s in raw.samples[fp32]
    )
    told = rows(section(field(replace(raw, samples={**raw.samples, fp32: wide})), ". GEMM"), "verdict")["fp32"][0]
    assert told.startswith("not established") == (spread > 0)
    assert verdict.split(": ", maxsplit=1)[0] in told


def test_a_rate_is_refused_with_its_busy_and_missing_without_work() -> None:
    raw = attention_run()
    results = derive(raw)
    cell_record = raw.record.cells[1]
    facts = results.cells[1].facts
    busy = facts["gpu_busy_ns"]
    refused = {**facts, "gpu_busy_ns": replace(busy, quotable=False)}
    assert achieved("run", cell_record, facts).quotable == busy.quotable
    assert not achieved("run", cell_record, refused).quotable
    assert cell_record.observed is not None
    without = replace(cell_record, observed=replace(cell_record.observed, work=None))
    assert achieved("run", without, facts).missing == "not-applicable"


def test_what_nvml_did_not_give_is_missing_with_the_reason() -> None:
    raw = products_run()
    text = section(field(replace(raw, util=())), ". GEMM")
    assert "Not shown: power, temperature (not supported: NVML was not read beside the samples)" in text
    assert card_state(raw, raw.record.cells[0]).clock.value == 1_980_000_000

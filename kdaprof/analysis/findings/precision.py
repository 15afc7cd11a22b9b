"""Findings about precisions of one product: a lower one that buys no time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdaprof.analysis.findings.compare import enters, groups_of, rounds_of
from kdaprof.analysis.findings.figures import between, quoted, times
from kdaprof.analysis.interleaved import MIN_ROUNDS, compare_interleaved
from kdaprof.analysis.view import CellView
from kdaprof.runs.results import Finding

SLOWER_ABOVE = 1.0


def tf32_slower(views: Sequence[CellView]) -> Iterator[Finding]:
    """A float32 product that tf32 makes slower, by the rounds that both share."""
    for group in groups_of(views):
        fit = {v.cell.key.path: v for v in group if enters(v.facts, "wall_ns")}
        full, less = fit.get("fp32"), fit.get("tf32")
        if full is None or less is None:
            continue
        ratio = compare_interleaved(rounds_of(full), rounds_of(less))
        if ratio.verdict != "slower" or ratio.value is None or ratio.interval is None:
            continue
        low, high = ratio.interval
        yield Finding(
            id="lower-precision-slower",
            severity="warn",
            cell=less.cell.id,
            text=(
                f"tf32 takes {times(ratio.value)} ({between(low, high)}) the time of fp32 for the same product, at "
                "less accuracy: the library has no good tf32 kernel for this card and size"
            ),
            evidence={
                "wall_ratio": ratio.value,
                "wall_ratio_low": low,
                "wall_ratio_high": high,
                "fp32_busy_ns": quoted(full.facts, "gpu_busy_ns"),
                "tf32_busy_ns": quoted(less.facts, "gpu_busy_ns"),
            },
            threshold={"wall_ratio_above": SLOWER_ABOVE, "rounds_min": MIN_ROUNDS},
            next="Keep float32 products at torch.set_float32_matmul_precision('highest') here, or use bfloat16.",
        )

"""The fused path without a GPU: Triton's interpreter in a child, for correctness. Its times are never speed (Q08)."""

from __future__ import annotations

from dataclasses import replace

from kdaprof.probe.benches import make_bench
from kdaprof.probe.child import ChildCell, ChildSpec
from kdaprof.probe.declared import observed_before
from kdaprof.probe.group import GroupMeasurement
from kdaprof.workloads.op import CaseSpec

ENVIRONMENT = {"TRITON_INTERPRET": "1"}
"""Must be set before Triton is imported; interpreted and compiled kernels do not mix in a process."""


def interpret_cell(spec: CaseSpec, child: ChildSpec) -> ChildCell:
    """Measure one cell as any other, in this process, whose Triton interprets."""
    bench = make_bench(spec.device, util=False)
    observed = replace(observed_before(spec, bench, cache="warm"), interpreted=True)
    group = GroupMeasurement([spec], {spec.key.id: observed}, bench, child.effort, lambda _number, _live: None)
    outcome = group.run()
    record = outcome.cells[0]
    return ChildCell(cell=spec.key.id, samples=outcome.samples.get(spec.key.id, ()), record=record, error=record.error)

"""The timed part of an experiment, by kind: probes of paths, commands in worktrees, or targets in warm processes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from kdaprof.analysis.ab.contract import Shape
from kdaprof.analysis.ab.evidence import Evidence, ShapeEvidence
from kdaprof.analysis.ab.outcome import GateResult
from kdaprof.analysis.ab.result import Party
from kdaprof.probe.ab.blocks import SIDES, Interleaved, Side, SideError, SideName
from kdaprof.probe.ab.command import CommandSide
from kdaprof.probe.ab.messages import Start
from kdaprof.probe.ab.order import Hands, Order
from kdaprof.probe.ab.target import TargetSide
from kdaprof.probe.ab.warm import steady_only


@dataclass(slots=True)
class Seen:
    """What the experiment has seen so far; filled as it goes, so that an interruption loses nothing."""

    gates: list[GateResult]
    shapes: list[ShapeEvidence] = field(default_factory=list)
    running: Interleaved | None = None

    def evidence(self) -> Evidence | None:
        """Everything timed so far; None before the first block."""
        shapes = (*self.shapes, *(self.running.evidence() if self.running is not None else ()))
        return Evidence(shapes=shapes) if shapes else None


@dataclass(frozen=True, slots=True)
class Setting:
    """Where each side stands: folders for what is frozen, who they are, and a folder for logs."""

    folders: Mapping[SideName, Path]
    parties: Mapping[SideName, Party]
    logs: Path


def measure(order: Order, hands: Hands, setting: Setting, seen: Seen) -> None:
    """Time both sides on every shape into `seen`; a side that fails leaves its reason there.

    Errors: KeyboardInterrupt, with what was timed until then in `seen`.
    """
    if order.contract.kind == "revisions":
        _commands(order, hands, setting, seen)
        return
    for shape in order.contract.shapes:
        if order.contract.kind == "targets":
            _targets(order, hands, setting, seen, shape)
        else:
            hands.progress.advance(f"{shape.name}: probing {order.base} and {order.cand}")
            seen.shapes.append(hands.probe(order, shape))


def _commands(order: Order, hands: Hands, setting: Setting, seen: Seen) -> None:
    contract = order.contract
    assert contract.repository is not None
    shapes = [shape.name for shape in contract.shapes]
    # What a command writes is read at once and thrown away: the evidence keeps it.
    with tempfile.TemporaryDirectory(prefix="kdaprof-ab-out-") as scratch:
        sides: dict[SideName, Side] = {
            side: CommandSide(
                side,
                contract.repository.command,
                setting.folders[side],
                shapes=shapes,
                target=Path(scratch) / f"{side}.jsonl",
                log=setting.logs / f"{side}.log",
                timeout_s=contract.measure.timeout_s,
                run=hands.run,
            )
            for side in SIDES
        }
        _interleave(order, hands, seen, shapes, sides)
    seen.shapes += seen.running.evidence() if seen.running is not None else ()
    seen.running = None


def _targets(order: Order, hands: Hands, setting: Setting, seen: Seen, shape: Shape) -> None:
    contract = order.contract
    names: dict[SideName, str] = {"base": order.base, "cand": order.cand}
    sides: dict[SideName, TargetSide] = {}
    failed: dict[SideName, str] = {}
    with ExitStack() as stack:
        for side in SIDES:
            log = setting.logs / f"{side}-{shape.name}.log"
            ask = stack.enter_context(hands.worker(shape.env, log, contract.measure.timeout_s))
            start = Start(target=names[side], device=contract.measure.device, warmup=contract.measure.warmup)
            try:
                sides[side] = TargetSide(shape.name, ask, start)
            except SideError as error:
                failed[side] = str(error)
        if not failed:
            _interleave(order, hands, seen, [shape.name], dict(sides))
    found = seen.running if seen.running is not None else Interleaved([shape.name], {}, hands.progress, failed)
    seen.running = None
    row = found.evidence()[0]
    if not failed:
        warm = {side: sides[side].warm_ns for side in SIDES}
        row = replace(row, base=steady_only(row.base, warm["base"]), cand=steady_only(row.cand, warm["cand"]))
    seen.shapes.append(row)


def _interleave(order: Order, hands: Hands, seen: Seen, shapes: list[str], sides: Mapping[SideName, Side]) -> None:
    measure = order.contract.measure
    seen.running = Interleaved(shapes, sides, hands.progress)
    seen.running.run(measure.rounds, measure.samples, measure.seed)

"""Contracts and machines of the A/B tests: an experiment that needs no clock and no card."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "report"))
import paper_runs

from kdaprof.analysis.ab.contract import Contract, Shape
from kdaprof.analysis.ab.evidence import ShapeEvidence, SideEvidence, Summary
from kdaprof.analysis.ab.reading import parse_contract
from kdaprof.analysis.recompute import recompute
from kdaprof.instruments.device import Device
from kdaprof.probe.ab.messages import Answer, Ask, Start
from kdaprof.probe.ab.order import Hands, Order
from kdaprof.probe.ab.process import run_command
from kdaprof.probe.ab.target import Asker
from kdaprof.runs.conditions import ConditionsSnapshot
from kdaprof.runs.environment import Environment

HEAD = 'schema = "kdaprof.ab-contract/1"\nname = "trial"\n'
SHAPES = '[[shapes]]\nname = "big"\n[[shapes]]\nname = "small"\nrole = "control"\n'
GATE = '[[gates]]\nkind = "speedup"\nshapes = ["big"]\nmin = 1.1\n'
TARGETS = 'kind = "targets"\nbase = "m:a"\ncand = "m:b"\n'
REVISIONS = 'kind = "revisions"\nbase = "one"\ncand = "two"\n'


def contract(body: str = TARGETS + SHAPES + GATE) -> Contract:
    return parse_contract(HEAD + body, "contract.toml")


def rounds(factor: float = 1.0, *, spread: float = 0.004, count: int = 6) -> dict[int, tuple[int, ...]]:
    """Walls of `count` rounds around 1 ms × factor; levels wander with the round, as both sides' do."""
    level = [1.0, 1.2, 0.9, 1.1, 1.05, 0.95, 1.15, 0.85]
    wobble = [0, 1, -1, 1, -1, 0, 1, -1]
    return {
        number: tuple(round(1e6 * factor * level[number] * (1 + spread * wobble[number] + step)) for step in (0, 1e-4))
        for number in range(count)
    }


def row(shape: str, cand: SideEvidence, base: SideEvidence | None = None) -> ShapeEvidence:
    return ShapeEvidence(shape=shape, base=base or SideEvidence(rounds=rounds(spread=0.0)), cand=cand)


def faster(times: float, *, spread: float = 0.004, peak: int | None = None) -> SideEvidence:
    """A side whose speedup is `times`."""
    return SideEvidence(rounds=rounds(1 / times, spread=spread), peak_bytes=() if peak is None else (peak, peak))


def known(median_ns: float) -> SideEvidence:
    return SideEvidence(summary=Summary(median_ns=median_ns, n=150))


class PaperMachine:
    def __init__(self, device: Device | None = None) -> None:
        self.device = device
        self.looks = 0

    def environment(self, command: Sequence[str]) -> Environment:
        return paper_runs.environment()

    def conditions(self) -> ConditionsSnapshot:
        self.looks += 1
        return paper_runs.snapshot(self.looks)


class Told:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def advance(self, text: str) -> None:
        self.lines.append(text)


class PaperWorkers:
    """Workers that answer from a table: target → wall in ns; a str is an error, None a process that died."""

    def __init__(self, walls: Mapping[str, int | str | None], *, stop_after: int | None = None) -> None:
        self.walls, self.stop_after = walls, stop_after
        self.blocks: list[str] = []
        self.open = 0
        self.env: list[Mapping[str, str]] = []

    @contextmanager
    def __call__(self, env: Mapping[str, str], log: Path, timeout_s: float) -> Iterator[Asker]:
        target = ""
        self.env.append(env)
        self.open += 1

        def ask(question: Start | Ask) -> Answer:
            nonlocal target
            if isinstance(question, Start):
                target = question.target
            else:
                self.blocks.append(target)
            if self.stop_after is not None and len(self.blocks) > self.stop_after:
                raise KeyboardInterrupt
            wall = self.walls[target]
            if isinstance(wall, str):
                return Answer(error=wall)
            count = question.warmup if isinstance(question, Start) else question.samples
            # The levels of rounds, so that both sides share them and no interval has zero width.
            level = 1 + 0.001 * (len(self.blocks) // 4 % 3)
            return Answer(wall_ns=(round((wall or 0) * level),) * count, peak_bytes=wall)

        try:
            yield ask
        finally:
            self.open -= 1


def hands(worker: PaperWorkers | None = None, *, now: int = 10**18, **changes: object) -> Hands:
    parts: dict[str, object] = {
        "machine": PaperMachine(),
        "run": run_command,
        "worker": worker or PaperWorkers({}),
        "probe": _no_probe,
        "load": recompute,
        "unix_ns": lambda: now,
        "progress": Told(),
    }
    return Hands(**(parts | changes))  # type: ignore[arg-type]


def order(tmp_path: Path, what: Contract, base: str = "m:a", cand: str = "m:b") -> Order:
    return Order(
        contract=what,
        folder=tmp_path,
        base=base,
        cand=cand,
        out=tmp_path / "out",
        store=tmp_path / "store",
        command=("kdaprof", "ab"),
    )


def _no_probe(_order: Order, _shape: Shape) -> ShapeEvidence:
    raise AssertionError("no path is to be probed here")


def git(folder: Path, *arguments: str) -> str:
    settings = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(("git", *settings, *arguments), cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


MEASURE = """\
wall=$(cat wall.txt)
test -e broken && { echo it is broken; exit 3; }
: > "$KDAPROF_AB_OUT"
echo "$KDAPROF_AB_SIDE" >> order.txt
for shape in $(echo "$KDAPROF_AB_SHAPES" | tr , ' '); do
  walls=$wall; i=1
  while [ $i -lt $KDAPROF_AB_SAMPLES ]; do
    walls="$walls,$((wall + i * 10 + KDAPROF_AB_ROUND * 1000))"; i=$((i + 1))
  done
  echo "{\\"shape\\": \\"$shape\\", \\"wall_ns\\": [$walls], \\"peak_bytes\\": $wall}" >> "$KDAPROF_AB_OUT"
done
"""


def repository(folder: Path, *, one: int = 1_000_000, two: int = 800_000) -> Path:
    """A repository with the tags `one` and `two`: a script that reports `wall.txt` of its own tree."""
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "measure.sh").write_text(MEASURE)
    for tag, wall in (("one", one), ("two", two)):
        (folder / "wall.txt").write_text(str(wall))
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", tag)
        git(folder, "tag", tag)
    return folder


REPOSITORY = '[repository]\npath = "repo"\ncommand = ["sh", "measure.sh"]\n[measure]\nrounds = 5\nsamples = 4\n'

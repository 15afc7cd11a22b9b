"""Peers of a run: how each that was asked for ended, and implementations of others that this run does not hold."""

from __future__ import annotations

from kdaprof.kda.peers.elsewhere import ELSEWHERE, place_of
from kdaprof.kda.peers.facts import PEERS, PeerFacts
from kdaprof.report.gfm import table_lines
from kdaprof.report.scene import Scene
from kdaprof.report.tables import DASH, Column, Entry, Table
from kdaprof.runs.arch import parse_capability
from kdaprof.runs.cells import PEER_PATHS

NOT_HERE = "What this run did not ask for is given as it is known for its card; none of it was measured here."
_COLUMNS = ("implementation", "version", "in this run", "source")


def peers(scene: Scene) -> list[str]:
    """Lines of report.md; none for a run in which no peer was asked for."""
    table = peers_table(scene)
    return [*table_lines(table), "", NOT_HERE] if table else []


def peers_table(scene: Scene) -> Table | None:
    """A row a peer of the run, then a row for each implementation of others; None without a peer."""
    asked = [path for path in PEER_PATHS if any(cell.key.path == path for cell in scene.cells)]
    if not asked:
        return None
    rows = [_asked(scene, PEERS[path]) for path in asked]
    gpu = scene.record.environment.gpu
    capability = parse_capability(gpu.capability) if gpu is not None else None
    rows += [(o.name, DASH, place_of(o, capability), o.source) for o in ELSEWHERE if o.id not in asked]
    columns = tuple(Column(name, right=False, figures=False) for name in _COLUMNS)
    return Table(columns, tuple(tuple(map(Entry, row)) for row in rows))


def _asked(scene: Scene, facts: PeerFacts) -> tuple[str, str, str, str]:
    cells = [cell.record for cell in scene.cells if cell.key.path == facts.path and cell.key.mode == "eager"]
    phases = [cell.key.phase for cell in cells if cell.status == "ok"]
    ended = [f"measured: {', '.join(dict.fromkeys(phases))}"] if phases else []
    ended += dict.fromkeys(f"{cell.status}: {cell.error.text}" for cell in cells if cell.error is not None)
    versions = (scene.record.environment.version(name) for name in facts.distributions)
    version = next((one for one in versions if one is not None), DASH)
    return facts.path, version, "; ".join(ended), facts.source

"""A run of many ranks: one run directory a rank, and a manifest by rank 0 that says how many there must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kdaprof import __version__
from kdaprof.errors import BadFileError, UsageError
from kdaprof.runs.codec import read_document, write_document
from kdaprof.runs.store import RUN_FILE

MANIFEST_FILE = "ranks.json"
_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A process among the ranks of its job."""

    rank: int
    world_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankManifest:
    """`ranks.json`, written by rank 0 before the loop: the run of rank r lies in `rank<r, five digits>/`."""

    world_size: int


def rank_of(environ: Mapping[str, str]) -> Rank | None:
    """The rank that torchrun gave this process; None without torchrun. UsageError for values that make no sense."""
    rank, size = environ.get("RANK"), environ.get("WORLD_SIZE")
    if rank is None or size is None:
        return None
    if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        raise UsageError(f"RANK={rank!r}, WORLD_SIZE={size!r}: not a rank of a job; start with torchrun, or unset both")
    return Rank(rank=int(rank), world_size=int(size))


def write_manifest(base: Path, manifest: RankManifest) -> None:
    """Write `ranks.json`. Errors: TargetError."""
    body = {"tool": f"kdaprof {__version__}", "world_size": manifest.world_size}
    write_document(base / MANIFEST_FILE, "ranks", body)


def rank_folders(base: Path) -> list[Path]:
    """The runs of all ranks under `base`, in order; [] when it holds none.

    A folder of another name (`rank00001-old`) is none of them. Errors: BadFileError that names ranks which are
    missing, there twice (`rank1` beside `rank00001`), and those beyond the manifest's count.
    """
    found: dict[int, Path] = {}
    for folder in sorted(part.parent for part in base.glob(f"rank[0-9]*/{RUN_FILE}")):
        number = folder.name.removeprefix("rank")
        if not number.isdecimal():
            continue
        first = found.setdefault(int(number), folder)
        if first != folder:
            raise BadFileError(
                f"{base}: rank {int(number)} twice, {first.name} and {folder.name}; take one of them away"
            )
    manifest = base / MANIFEST_FILE
    if not manifest.exists():
        return [found[rank] for rank in sorted(found)]
    size = read_document(manifest, "ranks", RankManifest).world_size
    missing = [rank for rank in range(size) if rank not in found]
    beyond = [rank for rank in sorted(found) if rank >= size]
    if missing or beyond:
        parts = [f"rank {_listed(missing)} missing of {size}"] if missing else []
        parts += [f"rank {_listed(beyond)} beyond the {size} of the last job"] if beyond else []
        raise BadFileError(f"{base}: {'; '.join(parts)}; name the ranks that are there one by one ({base}/rank00000)")
    return [found[rank] for rank in range(size)]


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:_SHOWN])) + (", …" if len(ranks) > _SHOWN else "")

"""`kdaprof.load(run)`: a stored run as tidy pandas frames, for notebooks and questions that no table answers."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from kdaprof.analysis.celldata import gather
from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.analysis.view import RawRun
from kdaprof.analysis.withdrawn import derive_standing
from kdaprof.errors import UsageError
from kdaprof.runs.cells import CellKey
from kdaprof.runs.facts import Fact
from kdaprof.runs.history import read_history, sources_of
from kdaprof.runs.place import find_store
from kdaprof.runs.results import RunResults
from kdaprof.runs.retractions import read_retractions
from kdaprof.runs.samples import Sample
from kdaprof.timeline.columns import Timeline
from kdaprof.timeline.parquet import to_table

KEY = ("workload", "path", "context", "mode", "phase", "shape", "dtype")
"""Columns that name a cell, beside `cell`, its id."""

RECORDINGS = MappingProxyType({"cuda": "profiled-cuda", "full": "profiled-full"})
"""How a profiled repeat was recorded: CUDA activity alone, or CPU and CUDA."""

# Nanoseconds and counts stay integers, missing values and all.
_SAMPLE_TYPES: dict[str, str] = {
    field.name: "string" if field.name in {"cell", "repeat"} else "Float64" if field.name == "load1" else "Int64"
    for field in fields(Sample)
} | {"steady": "boolean"}


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A stored run. Every frame is made anew: change it as you like.

    `raw` and `results` are the typed parts that the frames are made from, for `kdaprof.report.figures`.
    """

    path: Path
    raw: RawRun
    results: RunResults

    @property
    def id(self) -> str:
        """The run id."""
        return self.raw.record.run

    @property
    def cells(self) -> pd.DataFrame:
        """One row a cell: id, key, status, which path ran, where the steady segment begins and why."""
        proof = {result.id: result.evidence.verdict for result in self.results.cells}
        rows: list[dict[str, object]] = []
        for cell in self.raw.record.cells:
            warm = gather(self.raw, cell).warmup
            error = f"{cell.error.type}: {cell.error.text}" if cell.error else None
            own: dict[str, object] = {"status": cell.status, "error": error, "evidence": proof.get(cell.id)}
            rows.append(_key(cell.key) | own | {"steady_from": warm.steady_from, "warmup": warm.detail})
        return pd.DataFrame(rows).astype({"steady_from": "Int64"})

    @property
    def samples(self) -> pd.DataFrame:
        """One row a sample, from step 0: key of its cell, `repeat`, `round`, `index`, times in ns, `steady`.

        `steady` says of unprofiled samples whether they lie in the steady segment; of others it is missing.
        """
        rows: list[dict[str, object]] = []
        for cell in self.raw.record.cells:
            steady_from = gather(self.raw, cell).warmup.steady_from
            key = _key(cell.key)
            for sample in self.raw.samples.get(cell.id, ()):
                watched = sample.repeat == "unprofiled"
                steady = steady_from is not None and sample.index >= steady_from if watched else None
                rows.append(asdict(sample) | {"steady": steady} | key)
        columns = [*(field.name for field in fields(Sample)), "steady", *KEY]
        return pd.DataFrame(rows, columns=columns).astype(_SAMPLE_TYPES)

    @property
    def facts(self) -> pd.DataFrame:
        """One row a figure: key of its cell, `fact`, value in base units, spread, interval, and what refuses it."""
        keys = {cell.id: cell.key for cell in self.raw.record.cells}
        rows = [
            _key(keys[cell.id]) | {"fact": name} | _figure(fact)
            for cell in self.results.cells
            for name, fact in cell.facts.items()
        ]
        return pd.DataFrame(rows)

    @property
    def findings(self) -> pd.DataFrame:
        """One row a finding, the gravest first: id, severity, cell, text and what to do next."""
        columns = ("id", "severity", "cell", "text", "next")
        return pd.DataFrame(
            [[getattr(f, name) for name in columns] for f in self.results.findings], columns=list(columns)
        )

    def timeline(self, cell: str, kind: str = "full") -> pd.DataFrame:
        """Events of a cell's profiled repeats, one row each: kind, name, start_ns, end_ns, device, stream, thread, …

        `cell` is an id, or a part of one that only one recorded cell has (`fused/plain/eager/fwd`); `kind` is `cuda`
        (CUDA activity alone) or `full` (CPU and CUDA). Errors: UsageError that names what there is.
        """
        frame: pd.DataFrame = to_table(self.recording(cell, kind)).to_pandas()
        return frame

    def recording(self, cell: str, kind: str = "full") -> Timeline:
        """The same as columns of numpy, as the analysis takes them. Errors as `timeline`."""
        if kind not in RECORDINGS:
            raise UsageError(f"kind {kind!r}: there are {', '.join(RECORDINGS)}")
        known = {of for of, recorded in self.raw.timelines if recorded == RECORDINGS[kind]}
        return self.raw.timelines[_one(cell, known, f"recorded with {kind}"), RECORDINGS[kind]]


def load(run: str | Path, *, store: str | Path | None = None) -> LoadedRun:
    """Open a stored run: samples as they were taken, everything else derived from them now.

    `store` is where retractions lie, the project's own when None: what was retracted is marked in `facts`. Errors:
    BadFileError naming the file that is absent, damaged, or newer than this kdaprof.
    """
    path = Path(run)
    raw = load_raw(path)
    results = derive(raw)
    place = find_store(Path(store) if store is not None else None, Path.cwd())
    retractions = read_retractions(place)
    if retractions:
        results = derive_standing(raw, results, retractions, sources_of(read_history(place)))
    return LoadedRun(path, raw, results)


def _one(part: str, known: set[str], what: str) -> str:
    found = [part] if part in known else sorted(cell for cell in known if f"/{part.strip('/')}/" in f"/{cell}/")
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{part!r} fits {len(found)} cells: {', '.join(found)}")
    near = difflib.get_close_matches(part, sorted(known), n=3, cutoff=0.3) or sorted(known)
    raise UsageError(f"no cell {what} has {part!r} in its id; there are: {', '.join(near) or 'none'}")


def _key(key: CellKey) -> dict[str, object]:
    return {"cell": key.id} | {name: getattr(key, name) for name in KEY} | {"shape": key.extents}


def _figure(fact: Fact) -> dict[str, object]:
    low, high = fact.ci95 or (None, None)
    spread = {name: getattr(fact, name) for name in ("unit", "n", "min", "max", "p10", "p90", "provenance", "quotable")}
    return {
        "value": fact.value,
        **spread,
        "ci_low": low,
        "ci_high": high,
        "refused_by": " ".join(dict.fromkeys(reason.rule for reason in fact.reasons)),
        "why": "; ".join(reason.text for reason in fact.reasons) or fact.detail,
        "missing": fact.missing,
        "sources": fact.sources,
    }

"""Evidence on disk, so that an experiment can be judged again, by another contract or by a later kdaprof."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kdaprof.analysis.ab.evidence import Evidence, SideEvidence
from kdaprof.errors import BadFileError
from kdaprof.runs.codec import read_document, to_json, write_document

EVIDENCE_FILE = "evidence.json"
_KIND = "ab-evidence"


def write_evidence(folder: Path, evidence: Evidence) -> None:
    """Write evidence.json into `folder`, atomically."""
    write_document(folder / EVIDENCE_FILE, _KIND, to_json(evidence))


def read_evidence(path: Path) -> Evidence:
    """The evidence in a file, or in the folder that `ab --out` made.

    Errors: BadFileError with path, reason and way out, also for a time or size that cannot be one.
    """
    file = path / EVIDENCE_FILE if path.is_dir() else path
    evidence = read_document(file, _KIND, Evidence)
    for row in evidence.shapes:
        for name, side in (("base", row.base), ("cand", row.cand)):
            for fault in _faults(side):
                raise BadFileError(f"{file}: {name} of shape {row.shape!r}: {fault}")
    return evidence


def _faults(side: SideEvidence) -> Iterator[str]:
    if side.summary is not None and (side.summary.median_ns <= 0 or side.summary.n < 1):
        yield f"a median of {side.summary.median_ns} ns over {side.summary.n} samples; both must be above 0"
    if side.summary is not None and side.rounds:
        yield "has rounds and a summary; give one of them"
    if any(wall < 0 for walls in side.rounds.values() for wall in walls):
        yield "a wall below 0 ns"
    if any(peak < 0 for peak in side.peak_bytes):
        yield "a peak below 0 bytes"

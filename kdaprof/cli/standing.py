"""What the store has against a run: the flag that names the store, and runs as they stand after retractions."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kdaprof.analysis.view import RawRun
    from kdaprof.runs.results import RunResults


def add_store_flag(parser: argparse._ActionsContainer) -> None:
    """`--store DIR`, the same for every verb that looks at history or retractions."""
    parser.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help="where history and retractions lie (default: [tool.kdaprof] store of the nearest pyproject.toml, "
        "else .kdaprof beside it)",
    )


def store_of(args: argparse.Namespace) -> Path:
    """The store that the flag, the project or the default names."""
    from kdaprof.runs.place import find_store

    return find_store(args.store, Path.cwd())


def as_it_stands(raw: RawRun, results: RunResults, store: Path) -> RunResults:
    """The results with what was retracted struck; the same object where the store has nothing against the run."""
    from kdaprof.analysis.withdrawn import derive_standing
    from kdaprof.runs.history import read_history, sources_of
    from kdaprof.runs.retractions import read_retractions

    retractions = read_retractions(store)
    if not retractions:
        return results
    return derive_standing(raw, results, retractions, sources_of(read_history(store)))


def load_standing(path: Path, store: Path) -> tuple[RawRun, RunResults]:
    """A stored run read whole, derived, and struck where the store says so. Errors as `load_raw`."""
    from kdaprof.analysis.derive import derive
    from kdaprof.analysis.recompute import load_raw

    raw = load_raw(path)
    return raw, as_it_stands(raw, derive(raw), store)


def record_finished(run_path: Path, store: Path | None = None) -> None:
    """Add a run that was just measured to the history. A store that cannot take it costs a line, never the run."""
    from kdaprof.cli.console import err_console
    from kdaprof.errors import KdaprofError
    from kdaprof.runs.history import record_run
    from kdaprof.runs.place import find_store

    try:
        record_run(find_store(store, Path.cwd()), run_path)
    except KdaprofError as error:
        err_console().print(f"not recorded in the history: {error}", soft_wrap=True)

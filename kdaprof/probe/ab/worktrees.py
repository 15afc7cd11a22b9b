"""Git revisions, each in a worktree of its own that is gone when the experiment ends, however it ends."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kdaprof.errors import UsageError

_GIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision as asked for, its commit, and the folder of its worktree that stands for the repository's path."""

    asked: str
    commit: str
    folder: Path


def commit_of(repository: Path, revision: str) -> str:
    """The commit that `revision` names; UsageError when it names none, or `repository` is none."""
    done = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if done.returncode == 0:
        return done.stdout.strip()
    if _git(repository, "rev-parse", "--git-dir").returncode != 0:
        raise UsageError(f"repository.path {repository}: is in no git repository")
    raise UsageError(f"{revision!r} names no commit of {repository}; `git -C {repository} log --oneline` lists them")


@contextmanager
def worktrees(repository: Path, revisions: Sequence[str]) -> Iterator[tuple[Revision, ...]]:
    """A detached worktree for each revision, in a temporary folder outside the repository.

    Errors: UsageError for a revision that names no commit, or when git refuses a worktree.
    """
    commits = [commit_of(repository, revision) for revision in revisions]
    prefix = _git(repository, "rev-parse", "--show-prefix").stdout.strip()
    with tempfile.TemporaryDirectory(prefix="kdaprof-ab-") as folder:
        places = [Path(folder) / f"{number}-{commit[:12]}" for number, commit in enumerate(commits)]
        try:
            for place, commit, revision in zip(places, commits, revisions, strict=True):
                done = _git(repository, "worktree", "add", "--detach", "--quiet", str(place), commit)
                if done.returncode != 0:
                    raise UsageError(f"git worktree add for {revision!r}: {_said(done)}")
            yield tuple(
                Revision(revision, commit, place / prefix)
                for revision, commit, place in zip(revisions, commits, places, strict=True)
            )
        finally:
            for place in places:
                if place.exists():
                    _git(repository, "worktree", "remove", "--force", "--force", str(place))
            _git(repository, "worktree", "prune")


def _git(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Git in a session of its own: Ctrl-C stops the experiment, not git in the middle of a removal."""
    try:
        return subprocess.run(
            ("git", *arguments),
            cwd=repository,
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            check=False,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        what = "git is not installed" if repository.is_dir() else f"repository.path {repository}: no such folder"
        raise UsageError(what) from error
    except NotADirectoryError as error:
        raise UsageError(f"repository.path {repository}: is not a folder") from error


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stderr.split())[:300] or f"exit code {done.returncode}"

"""Priors of the benchmark, each learned without the runs of one repository."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rollcast.config.errors import UserError


def prior_file(folder: Path, repository: str) -> Path:
    """The prior for runs of a repository, as `python -m benchmarks.world_prior` names it."""
    return folder / f"{repository.replace('/', '__')}.json"


def check_priors(folder: Path, repositories: Iterable[str]) -> None:
    """Raises UserError: a repository has no prior."""
    for repository in sorted(set(repositories)):
        path = prior_file(folder, repository)
        if not path.is_file():
            raise UserError(
                f"--priors {folder}: lacks {path.name}; add a prior for each repository of the "
                "corpus"
            )

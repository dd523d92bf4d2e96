"""What git knows: the files of the working tree, and those that changed since a commit."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


class NoHistoryError(Exception):
    """git does not answer, or does not know the commit."""


def git(*arguments: str, root: Path = ROOT) -> str:
    """The output of a git command. Raises NoHistoryError if it fails."""
    try:
        done = subprocess.run(
            # Seconds for git, on a busy machine
            ["git", *arguments],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=60.0,
            check=False,
        )
    except FileNotFoundError as error:
        raise NoHistoryError("git is not installed") from error
    if done.returncode != 0:
        raise NoHistoryError(done.stderr.strip() or f"git {arguments[0]} failed")
    return done.stdout


def tracked_files(root: Path = ROOT) -> list[str]:
    """Files that git tracks and new ones that it does not ignore, relative to the root; without
    deleted ones.
    """
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", root=root).splitlines()
    return sorted(file for file in set(listed) if (root / file).is_file())


def changed_files(commit: str, paths: Sequence[str] = (), root: Path = ROOT) -> list[str]:
    """Files that differ between a commit and the working tree, new and deleted ones included."""
    changed = git(
        "diff", "--name-only", "--no-renames", commit, "--", *paths, root=root
    ).splitlines()
    new = git("ls-files", "--others", "--exclude-standard", "--", *paths, root=root).splitlines()
    return sorted({*changed, *new})


def base_commit(root: Path = ROOT) -> tuple[str, str]:
    """The commit that a change begins at, and which rule chose it: the merge base of origin/main;
    without one, on another branch than main, that of main; else HEAD~1.
    """
    head = git("rev-parse", "HEAD", root=root).strip()
    # Empty if HEAD is no branch.
    branch = git("branch", "--show-current", root=root).strip()
    for main in ("origin/main", "main") if branch not in ("", "main") else ("origin/main",):
        try:
            base = git("merge-base", main, "HEAD", root=root).strip()
        except NoHistoryError:
            continue  # a clone without that branch
        if base != head or changed_files("HEAD", root=root):
            return base, f"the merge base of {main}"
        break
    return git("rev-parse", "HEAD~1", root=root).strip(), "HEAD~1"


def is_ancestor(commit: str, root: Path = ROOT) -> bool:
    """Whether a commit is in the history of HEAD."""
    try:
        git("merge-base", "--is-ancestor", commit, "HEAD", root=root)
    except NoHistoryError:
        return False
    return True

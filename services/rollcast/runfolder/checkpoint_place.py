"""Where the checkpoints of a run are: in its folder, in another, or behind a URL."""

from __future__ import annotations

from pathlib import Path

from rollcast.runfolder.files import CHECKPOINTS

Place = Path | str
"""A folder, or a URL."""


def place_of(text: str) -> Place:
    """As a run file says it."""
    return text.rstrip("/") if "://" in text else Path(text)


def earlier_run_place(text: str) -> Place:
    """Of the checkpoints of a run that is named by its folder, or by their own."""
    place = place_of(text)
    inner = place / CHECKPOINTS if isinstance(place, Path) else None
    return inner if inner is not None and inner.is_dir() else place


def checkpoint_place(run_folder: Path, checkpoints: str | None) -> Place:
    """Of one run: runs that name the same place have a part of it each. `checkpoints`: trainer.checkpoints."""
    if checkpoints is None:
        return run_folder / CHECKPOINTS
    place = place_of(checkpoints)
    return place / run_folder.name if isinstance(place, Path) else f"{place}/{run_folder.name}"

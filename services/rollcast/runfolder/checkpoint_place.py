"""The location of a run's checkpoints: its own folder, another folder, or a URL."""

from pathlib import Path

from rollcast.runfolder.files import CHECKPOINTS

Place = Path | str
"""A folder, or a URL."""


def place_of(text: str) -> Place:
    """The location that a run file names."""
    return text.rstrip("/") if "://" in text else Path(text)


def earlier_run_place(text: str) -> Place:
    """The checkpoints of an earlier run, given its folder or the checkpoints' own location."""
    place = place_of(text)
    inner = place / CHECKPOINTS if isinstance(place, Path) else None
    return inner if inner is not None and inner.is_dir() else place


def checkpoint_place(run_folder: Path, checkpoints: str | None) -> Place:
    """The location for one run: runs that share one each have a subfolder of it. `checkpoints`: trainer.checkpoints."""
    if checkpoints is None:
        return run_folder / CHECKPOINTS
    place = place_of(checkpoints)
    return place / run_folder.name if isinstance(place, Path) else f"{place}/{run_folder.name}"

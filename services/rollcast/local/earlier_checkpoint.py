"""`rollcast up --resume --step N`: the run goes on from a kept checkpoint, and later ones are set
aside.
"""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.runfolder.files import Place
from rollcast.runfolder.kept_checkpoints import SET_ASIDE, kept_in_words, kept_versions

Undo = list[Callable[[], object]]


def go_back(location: Place, step: int, undo: Undo) -> list[str]:
    """Set the checkpoints later than the newest of `step` aside; returns a line on it.

    `undo` gets what puts them back. Raises UserError if no checkpoint of that step can be continued
    from here, or if the disk refuses.
    """
    if not isinstance(location, Path):
        raise UserError(
            f"--step {step}: the checkpoints are at {location}, and only those in a folder can be "
            "set aside; remove the later ones there, then resume without --step"
        )
    version_folders = kept_versions(location)
    steps = {kept_step for _, kept_step in version_folders}
    if step not in steps:
        raise UserError(
            f"--step {step}: {location} holds no checkpoint of that step; {kept_in_words(steps)}"
        )
    chosen = max(version for version in version_folders if version[1] == step)
    later = [folder for version, folder in version_folders.items() if version > chosen]
    for folder in later:
        aside_folder = _free_name(folder.parent / SET_ASIDE / folder.name)
        try:
            aside_folder.parent.mkdir(exist_ok=True)
            folder.rename(aside_folder)
        except OSError as error:
            reason = f"{folder} cannot be moved to {aside_folder} ({error.strerror})"
            raise UserError(f"--step {step}: {reason}; fix the permissions") from error
        undo.append(partial(aside_folder.rename, folder))
    moved = (
        f"; later checkpoints are in {location / SET_ASIDE}, remove it to free the disk"
        if later
        else ""
    )
    return [f"the run goes on from its checkpoint of step {step}{moved}"]


def _free_name(path: Path) -> Path:
    """`path`, or with a number behind it: an earlier way back may have set a checkpoint of that
    version aside.
    """
    names = (
        path if number == 1 else path.with_name(f"{path.name}-{number}")
        for number in itertools.count(1)
    )
    return next(name for name in names if not name.exists())

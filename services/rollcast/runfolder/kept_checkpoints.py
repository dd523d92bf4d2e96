"""Which checkpoints of a run are kept on this machine, by the names of their folders. The trainer
checks their content.

checkpoints/2.118/controller.json    step 118 of incarnation 2
checkpoints/set-aside/2.130/         after the step from which the run was continued
"""

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.runfolder.files import CONTROLLER, UP_FILE, Place, checkpoint_place

SET_ASIDE = "set-aside"
"""Folder, in that of the checkpoints, of those that are later than the one from which the run was
continued."""


def kept_versions(location: Place) -> dict[tuple[int, int], Path]:
    """Folders by incarnation and step, the oldest first; nothing of a place behind a URL."""
    if not isinstance(location, Path):
        return {}
    try:
        folders = [file.parent for file in location.glob(f"*/{CONTROLLER}")]
    except OSError:  # the check of the run's folder reports it
        return {}
    folders_by_version = {}
    for folder in folders:
        try:
            incarnation, step = map(int, folder.name.split("."))
        except ValueError:  # a folder of something else
            continue
        folders_by_version[incarnation, step] = folder
    return dict(sorted(folders_by_version.items()))


@dataclass(frozen=True)
class KeptCheckpoints:
    """The checkpoints that a run can go on from.

    Attributes:
        steps: ascending.
        command: continues the run from a kept step, which is its next word; None if `rollcast up`
            did not start the run.
    """

    steps: tuple[int, ...]
    command: str | None

    @classmethod
    def find(cls, folder: Path, checkpoints: str | None) -> "KeptCheckpoints | None":
        """The kept checkpoints of the run in `folder`; None if they are behind a URL.
        `checkpoints`: trainer.checkpoints."""
        location = checkpoint_place(folder.absolute(), checkpoints)
        if not isinstance(location, Path):
            return None
        command = None
        file = folder / UP_FILE
        if file.exists():
            file = file.resolve() if file.is_symlink() else file  # a page is served from links
            command = shlex.join(["rollcast", "up", "--config", str(file), "--resume", "--step"])
        return cls(tuple(sorted({step for _, step in kept_versions(location)})), command)

    def way_to(self, step: int) -> str:
        """The command that continues the run from a kept step, or what does so in another run."""
        if self.command is not None:
            return f"{self.command} {step}"
        return f"set model.from_step to {step} in another run, whose model.from_run is this one"


def kept_in_words(steps: Collection[int]) -> str:
    """The kept steps, as the end of a sentence."""
    ordered = sorted(set(steps))
    if not ordered:
        return "none is kept"
    # A sentence names that many kept steps, the newest ones.
    max_shown_steps = 12
    earlier = "..., " if len(ordered) > max_shown_steps else ""
    return f"kept are those of steps {earlier}{', '.join(map(str, ordered[-max_shown_steps:]))}"


def check_earlier_run(name: str, step: int | None, steps: Collection[int]) -> None:
    """Raises UserError if a run cannot begin with a checkpoint of another run.

    `name`, `step`: model.from_run and from_step. `steps`: of its checkpoints.
    """
    if not steps:
        raise UserError(
            f"model.from_run = {name}: holds no checkpoint; give the folder of a run that has one"
        )
    if step is not None and step not in steps:
        raise UserError(
            f"model.from_step = {step}: {name} holds no checkpoint of that step; "
            f"{kept_in_words(steps)}"
        )

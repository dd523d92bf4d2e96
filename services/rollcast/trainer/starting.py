"""The weights a trainer begins with: its run's newest whole checkpoint, another run's, or the model's own."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.runfolder.checkpoint_place import Place, earlier_run_place
from rollcast.runfolder.files import BEFORE
from rollcast.runfolder.records import BeforeRecord, as_json
from rollcast.runfolder.writing import replace_json
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.control.progress import MalformedProgress, Progress
from rollcast.trainer.learner.checkpoint import DamagedCheckpoint, checkpoint_version, checkpoints, damaged
from rollcast.trainer.learner.group import LearnerGroup

log = get_logger()


def restore(run: str, place: Place, learners: LearnerGroup, *, resume: bool) -> Progress | None:
    """Continue from the newest whole checkpoint; None = no checkpoint at all. Raises UserError if all are damaged."""
    found = checkpoints(place)
    if not found:
        return None
    if not resume:
        raise UserError(
            f"run = {run!r}: {place} holds a checkpoint already; resume it with --resume, "
            "or choose another name or folder"
        )
    return _newest_whole(found, learners.restore)[1]


def begin(run_folder: Path, model: Model, learners: LearnerGroup) -> Progress:
    """Begin a new run and note in its folder the device-hours spent before it.

    Raises UserError if model.from_run has no weights that fit.
    """
    before = BeforeRecord(model.path, None, model.spent_device_hours)
    if model.from_run is not None:
        before = _earlier_run(model.from_run, learners)
    if before.version is not None or before.device_hours is not None:
        replace_json(run_folder / BEFORE, as_json(before))
        log.info("device-hours spent before the run are not part of the curve", **as_json(before))
    return Progress(spent_before=before.device_hours)


def _earlier_run(name: str, learners: LearnerGroup) -> BeforeRecord:
    found = checkpoints(earlier_run_place(name))
    if not found:
        raise UserError(f"model.from_run = {name}: holds no checkpoint; give the folder of a run that has one")
    path, earlier = _newest_whole(found, learners.take_weights)
    spent = None if earlier.compute_state is None else sum(earlier.compute_state.values()) + (earlier.spent_before or 0)
    return BeforeRecord(name, str(checkpoint_version(path)), spent)


def _newest_whole(found: Sequence[Place], read: Callable[[Place], dict[str, Any]]) -> tuple[Place, Progress]:
    for path, older in pairwise([*found, None]):
        assert path is not None
        try:
            return path, _progress(path, read(path))
        except DamagedCheckpoint as error:
            if older is None:
                raise
            log.warning("a checkpoint is damaged; the one before is taken", error=str(error), older=str(older))
    raise AssertionError("the oldest one is read or raises")


def _progress(path: Place, controller: dict[str, Any]) -> Progress:
    try:
        return Progress.from_json(controller)
    except MalformedProgress as error:
        raise DamagedCheckpoint(damaged(path, error)) from None

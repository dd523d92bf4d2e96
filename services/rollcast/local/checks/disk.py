"""Whether the folders of the run, its checkpoints and its weights can be written and have room."""

import os
import shutil
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.local.checks.check import Start
from rollcast.local.model_name import weight_bytes
from rollcast.runfolder.files import weight_store_place

SETTINGS = (
    "model.path",
    "model.dtype",
    "folder",
    "run",
    "trainer.keep_checkpoints",
    "trainer.keep_best_checkpoints",
    "trainer.checkpoints",
    "weights.transport",
    "weights.store.location",
)
_STATE_PER_WEIGHT = {"bfloat16": 6, "float32": 3}
"""Bytes of a checkpoint (float32 master weights and two Adam moments) over bytes of the model's own
weights."""


def check(start: Start) -> None:
    """The run's folder, and those of checkpoints and weights if they are others; the free space
    behind a URL is unknown.
    """
    run_folder = start.config.run_folder
    trainer = start.config.trainer
    model = start.config.model
    # The one that is being written is in addition to those that are kept.
    num_checkpoints = trainer.keep_checkpoints + trainer.keep_best_checkpoints + 1
    checkpoint_bytes = weight_bytes(model.path) * _STATE_PER_WEIGHT[model.dtype] * num_checkpoints
    checkpoint_location = start.checkpoints
    is_apart = run_folder not in (
        checkpoint_location,
        *(checkpoint_location.parents if isinstance(checkpoint_location, Path) else ()),
    )
    # Disk space for logs, the queue's append-only file and the forecaster's history.
    spare_bytes = 256 << 20
    folder_bytes = spare_bytes if is_apart else spare_bytes + checkpoint_bytes
    purpose = (
        f"{num_checkpoints} checkpoints; free space, or set folder or trainer.keep_checkpoints"
    )
    _check_room(run_folder, folder_bytes, "folder", str(run_folder.parent), purpose)
    if is_apart and isinstance(checkpoint_location, Path):
        _check_room(
            checkpoint_location,
            checkpoint_bytes,
            "trainer.checkpoints",
            str(trainer.checkpoints),
            purpose,
        )
    location = start.config.weights.store.location
    store = weight_store_place(run_folder, location)
    if start.config.weights.uses_store and isinstance(store, Path):
        _check_room(
            store,
            3 * weight_bytes(model.path),
            "weights.store.location",
            str(location),
            "three whole versions; free space, or give another folder",
        )


def _check_room(path: Path, needed: int, setting: str, value: str, purpose: str) -> None:
    """On the file system that the folder is, or will be, on."""
    folder = path.absolute()
    try:
        while not folder.exists():
            folder = folder.parent
        is_writable = folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
        free = shutil.disk_usage(folder).free
    except OSError:
        is_writable = False
    if not is_writable:
        raise UserError(f"{setting} = {value}: cannot be written; set `{setting}` to one that can")
    if free < needed:
        room = f"{free >> 20} MiB are free and {needed >> 20} MiB are needed"
        raise UserError(f"{setting} = {value}: {room} for {purpose}")

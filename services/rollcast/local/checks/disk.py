"""Whether the folders of the run, its checkpoints and its weights can be written and have room."""

import os
import shutil
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.local.checks.check import Start
from rollcast.local.model_name import weight_bytes
from rollcast.runfolder.files import RECORDED, weight_store_place

SETTINGS = (
    "model.path",
    "model.dtype",
    "folder",
    "run",
    "trainer.keep_checkpoints",
    "trainer.keep_best_checkpoints",
    "trainer.checkpoints",
    "record",
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
    folder_bytes = 256 << 20
    checkpoints = f"{num_checkpoints} checkpoints"
    purpose = f"{checkpoints}; free space, or set folder or trainer.keep_checkpoints"
    folder_purpose = purpose
    if not is_apart:
        folder_bytes += checkpoint_bytes
    if start.config.record.is_on:
        folder_bytes += _recorded_bytes(start)
        folder_purpose = (
            f"{checkpoints} and the recorded steps; free space, or set folder, "
            "trainer.keep_checkpoints or record.max_bytes"
        )
    _check_room(run_folder, folder_bytes, "folder", str(run_folder.parent), folder_purpose)
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


def _recorded_bytes(start: Start) -> int:
    """Bytes that recorded steps may take beyond those of earlier starts, and the weights that are
    being written.
    """
    config = start.config
    files = (config.run_folder / RECORDED).rglob("*")
    present_bytes = sum(path.stat().st_size for path in files if path.is_file())
    written_bytes = 0
    if config.record.weights != "none" and config.model.lora is None:
        # float32, of a model in 16 bits twice its bytes
        written_bytes = weight_bytes(config.model.path) * _STATE_PER_WEIGHT[config.model.dtype] // 3
    return max(0, config.record.max_bytes - present_bytes) + written_bytes


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

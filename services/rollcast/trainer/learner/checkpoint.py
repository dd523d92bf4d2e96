"""Checkpoints of the learner and of the controller's state: whole or absent.

    checkpoints/2.118/             incarnation 2, step 118
        .metadata, *.distcp        torch.distributed.checkpoint: weights, AdamW moments, random-number states
        controller.json            optimizer steps made, and what rank 0 wants to find again

All ranks write into `.partial-2.118`, which rank 0 renames when everything is on the disk: a name without the prefix is
a complete checkpoint. The number of ranks may differ when it is read; random-number states are then left alone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from rollcast.config.errors import UserError, refused_by_the_world
from rollcast.trainer.learner.learner import Learner
from rollcast.wire.version import PolicyVersion

PARTIAL = ".partial-"
CONTROLLER = "controller.json"
RNG = "rng."


def save_checkpoint(
    folder: Path, version: PolicyVersion, learner: Learner, controller: dict[str, Any] | None, *, keep: int
) -> Path:
    """Write checkpoint `version` and delete all but the newest `keep`. Collective; `controller` counts at rank 0.

    Raises UserError on every rank if the disk is full or not writable; nothing half-written is left.
    """
    target, partial = folder / str(version), folder / f"{PARTIAL}{version}"
    is_writer = learner.ranks.rank == 0
    text = json.dumps({"updates": learner.updates, "world_size": learner.ranks.world_size, "controller": controller})
    if target.exists():  # the weights are the same; what the controller knows may have moved on
        _at_rank_0(learner, folder, lambda: _replace_controller(target, text))
        return target
    state = _state(learner)
    num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    _at_rank_0(learner, folder, lambda: _prepare(folder, partial, num_bytes))
    problem: OSError | None = None
    try:
        save(state, storage_writer=FileSystemWriter(partial))
    except CheckpointException as error:  # raised on every rank if it failed on one
        problem = _disk_failure(error)
        if problem is None:
            raise
    if problem is not None:
        if is_writer:
            shutil.rmtree(partial, ignore_errors=True)
        raise _disk_error(folder, problem.errno or 0)
    _at_rank_0(learner, folder, lambda: _complete(partial, target, text))
    if is_writer:
        for path in _checkpoints(folder)[:-keep]:
            shutil.rmtree(path, ignore_errors=True)
    return target


def load_checkpoint(path: Path, learner: Learner) -> dict[str, Any]:
    """Put the learner into the state of a checkpoint; return the controller's. Collective.

    Raises UserError if it cannot be read or belongs to another model.
    """
    state = _state(learner)
    try:
        saved = json.loads((path / CONTROLLER).read_text())
        updates, controller = int(saved["updates"]), saved["controller"]
        entries = FileSystemReader(path).read_metadata().state_dict_metadata
        shapes = {
            name: tuple(entry.size) for name, entry in entries.items() if isinstance(entry, TensorStorageMetadata)
        }
    except (OSError, ValueError, KeyError, EOFError, pickle.UnpicklingError) as error:
        sentence = f"checkpoint {path} cannot be read ({error}); remove it to resume from an older one"
        raise refused_by_the_world(error, sentence) from error
    for name, tensor in state.items():
        found, needed = shapes.get(name), tuple(tensor.shape)
        if not name.startswith(RNG) and found != needed:
            raise UserError(
                f"checkpoint {path} holds {name} with shape {found}, model.path needs {needed}; "
                "resume with the model the run was started with"
            )
    same_ranks = int(saved["world_size"]) == learner.ranks.world_size
    wanted = {name: tensor for name, tensor in state.items() if same_ranks or not name.startswith(RNG)}
    try:
        load(wanted, storage_reader=FileSystemReader(path))
    except CheckpointException as error:
        sentence = f"checkpoint {path} is damaged; remove it to resume from an older one"
        raise refused_by_the_world(_disk_failure(error) or error, sentence) from error
    learner.updates = updates
    for weight in learner.weights:
        learner.optimizer.state[weight]["step"].fill_(updates)
    if same_ranks:
        torch.set_rng_state(state[f"{RNG}{learner.ranks.rank}.cpu"])
        if learner.ranks.device.type == "cuda":
            torch.cuda.set_rng_state(state[f"{RNG}{learner.ranks.rank}.cuda"], learner.ranks.device)
    return dict(controller or {})


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint, None if there is none."""
    return next(reversed(_checkpoints(folder)), None)


def checkpoint_version(path: Path) -> PolicyVersion:
    """Return the version that a complete checkpoint holds. Raises ValueError for any other path."""
    return PolicyVersion.parse(path.name)


def _checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints, oldest version first."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(ValueError):
            found.append((checkpoint_version(path), path))
    return [path for _, path in sorted(found)]


def _state(learner: Learner) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint, to be written or to be read into in place."""
    state: dict[str, Tensor] = {}
    for name, weight in learner.policy.named_weights():
        moments = learner.optimizer.state[weight]
        if not moments:  # before the first step
            moments["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
            moments["exp_avg"] = torch.zeros_like(weight, requires_grad=False)
            moments["exp_avg_sq"] = torch.zeros_like(weight, requires_grad=False)
        state[f"weights.{name}"] = weight.detach()
        state[f"exp_avg.{name}"] = moments["exp_avg"]
        state[f"exp_avg_sq.{name}"] = moments["exp_avg_sq"]
    ranks = learner.ranks
    state[f"{RNG}{ranks.rank}.cpu"] = torch.get_rng_state()
    if ranks.device.type == "cuda":
        state[f"{RNG}{ranks.rank}.cuda"] = torch.cuda.get_rng_state(ranks.device)
    return state


def _prepare(folder: Path, partial: Path, num_bytes: int) -> None:
    """Make an empty partial folder on a disk that has room for the checkpoint.

    torch's file writer aborts the process when the disk is full, so the room is taken and given back before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob(f"{PARTIAL}*"):
        shutil.rmtree(stale)
    partial.mkdir()
    reserve = partial / "reserve"
    try:
        with reserve.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, num_bytes)
        reserve.unlink()
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _complete(partial: Path, target: Path, text: str) -> None:
    """Give a written checkpoint its name, once all of it is on the disk."""
    try:
        with (partial / CONTROLLER).open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(target)
        descriptor = os.open(target.parent, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _replace_controller(target: Path, text: str) -> None:
    """Write the controller's state anew, atomically."""
    fresh = target / f"{CONTROLLER}.tmp"
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(target / CONTROLLER)


def _at_rank_0(learner: Learner, folder: Path, action: Callable[[], None]) -> None:
    """Run `action` at rank 0; raise UserError on every rank if the file system refused it."""
    number = torch.zeros(1, dtype=torch.int64, device=learner.ranks.device)
    if learner.ranks.rank == 0:
        try:
            action()
        except OSError as error:
            number.fill_(error.errno or errno.EIO)
    dist.broadcast(number, src=0)
    if number.item():
        raise _disk_error(folder, int(number.item()))


def _disk_error(folder: Path, number: int) -> UserError:
    return refused_by_the_world(
        OSError(number, os.strerror(number)),
        f"checkpoint folder {folder} cannot be written ({os.strerror(number)}); free space there or change `folder`",
    )


def _disk_failure(error: CheckpointException) -> OSError | None:
    """What the file system refused on any rank; None where it is to blame for nothing."""
    return next((failure for failure, _ in error.failures.values() if isinstance(failure, OSError)), None)

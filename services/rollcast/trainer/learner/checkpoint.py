"""Checkpoints of the learner and of the controller's state, and how they are read.

    checkpoints/2.118/             incarnation 2, step 118
        .metadata, *.distcp        torch.distributed.checkpoint: weights, AdamW moments,
                                   random-number states
        .metadata.crc32, ..        a checksum of each file
        controller.json            optimizer steps made, and rank 0's own state; its checksum is
                                   inside

`storage` defines their place and when one is whole. No file is used before all of them were
compared with their checksums. The number of ranks may differ when one is read; random-number states
are then left alone.
"""

import json
import math
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from rollcast.config.errors import PassingError, UserError, may_pass, refused_by_the_world
from rollcast.config.out_of_memory import is_out_of_memory
from rollcast.runfolder.files import Place
from rollcast.trainer.learner.checked_files import data_files, files_to_check
from rollcast.trainer.learner.learner import Learner
from rollcast.trainer.learner.number_checks import sum_of_rows
from rollcast.trainer.learner.object_storage import ObjectStorage
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.saved_metadata import check_metadata
from rollcast.trainer.learner.storage import FolderStorage
from rollcast.wire.version import PolicyVersion

CheckpointStorage = FolderStorage | ObjectStorage
Read = TypeVar("Read")
WEIGHTS = "weights."
RNG = "rng."
GOOD, PASSING, DAMAGED = range(3)
"""Findings of a rank; the gravest of all ranks counts."""
FORMAT = 2
"""Raised when an earlier release would misread a newer file."""
_CHECKSUM = re.compile(r'\{"crc32": (\d{1,10}), ')


class DamagedCheckpoint(UserError):  # noqa: N818  (a finding: an older one may be whole)
    """Torn, or not as it was written."""


@dataclass(frozen=True, slots=True)
class ControllerFile:
    """The controller's state, and how the checkpoint's other files are to be read.

    {"crc32": checksum of what follows, "format": 2, "updates": .., "world_size": .., "controller":
    .., "lora": ..}
    """

    updates: int
    """Optimizer steps made."""
    world_size: int
    """Ranks that wrote the checkpoint."""
    controller: dict[str, Any] | None
    lora: dict[str, Any] | None = None
    """model.lora of the run; None = the weights are those of the whole model."""


def storage_at(location: Place) -> CheckpointStorage:
    """Raises UserError if a URL has an unknown protocol."""
    if isinstance(location, Path):
        return FolderStorage(location)
    try:
        return ObjectStorage(location)
    except OSError as error:
        raise UserError(
            f"checkpoints at {location} cannot be reached ({error.strerror}); give a folder, or a "
            "URL such as s3://bucket/path whose library is installed"
        ) from error


def checkpoints(location: Place) -> list[Place]:
    """Return the complete checkpoints, newest version first.

    Raises UserError if they cannot be listed.
    """
    storage = storage_at(location)
    try:
        return [storage.at(name) for name in storage.names()]
    except OSError as error:
        reason = error.strerror or str(error)
        raise refused_by_the_world(
            error, f"checkpoints at {location} cannot be listed ({reason}); {storage.remedy}"
        ) from error


def checkpoint_version(checkpoint: Place) -> PolicyVersion:
    """Return the version that a complete checkpoint holds.

    Raises ValueError for any other place.
    """
    return PolicyVersion.parse(_split(checkpoint)[1])


def load_checkpoint(checkpoint: Place, learner: Learner) -> dict[str, Any]:
    """Put the learner into the state of a checkpoint; return the controller's. Collective: every
    rank raises the same.

    Raises DamagedCheckpoint if it is, PassingError if the disk fails now, UserError if it belongs
    to another model.
    """
    ranks = learner.ranks
    tensors = state(learner)
    saved = _read(checkpoint, learner, tensors, weights_only=False)
    learner.updates = saved.updates
    for weight in learner.weights:
        # AdamW's count is the same for all weights, so that the checkpoint has it once.
        learner.optimizer.state[weight]["step"].fill_(learner.updates)
    # Other ranks than those that wrote it have no states of their own there.
    if saved.world_size == ranks.world_size:
        torch.set_rng_state(tensors[f"{RNG}{ranks.rank}.cpu"])
        if ranks.device.type == "cuda":
            torch.cuda.set_rng_state(tensors[f"{RNG}{ranks.rank}.cuda"], ranks.device)
    return saved.controller or {}


def load_weights(checkpoint: Place, learner: Learner) -> dict[str, Any]:
    """Give the learner a checkpoint's weights and nothing else; return its controller's state.

    Otherwise the same.
    """
    tensors: dict[str, Tensor] = {
        f"{WEIGHTS}{name}": weight.detach() for name, weight in learner.policy.trained_weights()
    }
    tensors |= _buffers(learner)
    return _read(checkpoint, learner, tensors, weights_only=True).controller or {}


def _read(
    checkpoint: Place, learner: Learner, tensors: dict[str, Tensor], *, weights_only: bool
) -> ControllerFile:
    """Fill `tensors`; return the controller file next to them."""
    folder, name = _split(checkpoint)
    storage = storage_at(folder)
    # First, so that no rank begins to read tensors from damaged files.
    saved = _read_on_all_ranks(
        checkpoint, learner, lambda: _checked_controller(storage, name, learner.ranks)
    )
    shapes = _read_on_all_ranks(checkpoint, learner, lambda: _shapes(storage, name))
    remedy = (
        "give the model that it was trained from"
        if weights_only
        else "resume with the model the run was started with"
    )
    if saved.lora != (current_lora := _lora(learner)):
        export = (
            "that run's export"
            if saved.lora is None
            else "the folder that `rollcast model merge` makes of its export"
        )
        instead = f", or train from {export}" if weights_only else ""
        raise UserError(
            f"checkpoint {checkpoint} is of a run with model.lora = {json.dumps(saved.lora)}, and "
            f"here it is {json.dumps(current_lora)}; give both runs the same{instead}"
        )
    for key, tensor in tensors.items():
        stored_shape = shapes.get(key)
        needed = tuple(tensor.shape)
        if not key.startswith(RNG) and stored_shape != needed:
            raise UserError(
                f"checkpoint {checkpoint} holds {key} with shape {stored_shape}, model.path needs "
                f"{needed}; {remedy}"
            )
    if (
        more := {key for key in shapes if key.startswith(WEIGHTS)} - tensors.keys()
    ):  # of a deeper model, say
        raise UserError(
            f"checkpoint {checkpoint} holds {min(more)}, which model.path does not have; {remedy}"
        )
    same_ranks = saved.world_size == learner.ranks.world_size
    tensors_to_load = {
        key: tensor for key, tensor in tensors.items() if same_ranks or not key.startswith(RNG)
    }
    failure: Exception | None = None
    try:
        load(tensors_to_load, storage_reader=storage.reader(name))
    except CheckpointException as error:  # raised on every rank if it failed on one
        if refused := next(
            (cause for cause, _ in error.failures.values() if is_out_of_memory(cause)), None
        ):
            # The caller makes a sentence of it (`told_what_did_not_fit`).
            raise MemoryError(str(refused)) from error
        failure = disk_failure(error) or ValueError("its tensors cannot be read")
    if failure is None and not math.isfinite(sum_of_rows(tensors.values()).item()):
        failure = ValueError("its numbers are not finite")
    _agree(checkpoint, learner, failure)
    return saved


def _checked_controller(storage: CheckpointStorage, name: str, ranks: Ranks) -> ControllerFile:
    """A checkpoint's controller file, after this rank has compared its share of the others with
    their checksums.
    """
    saved = read_controller(storage.controller(name))
    for file in files_to_check(storage.files(name))[ranks.rank :: ranks.world_size]:
        storage.check(name, file)
    return saved


def _shapes(storage: CheckpointStorage, name: str) -> dict[str, tuple[int, ...]]:
    metadata = storage.reader(name).read_metadata()
    check_metadata(metadata, data_files(storage.files(name)))
    entries = metadata.state_dict_metadata.items()
    return {
        key: tuple(entry.size) for key, entry in entries if isinstance(entry, TensorStorageMetadata)
    }


def _split(checkpoint: Place) -> tuple[Place, str]:
    """The place of all checkpoints, and the name of this one."""
    if isinstance(checkpoint, Path):
        return checkpoint.parent, checkpoint.name
    folder, _, name = checkpoint.rpartition("/")
    return folder, name


def _lora(learner: Learner) -> dict[str, Any] | None:
    lora = learner.policy.lora
    return None if lora is None else lora.model_dump(mode="json")


def _read_on_all_ranks(checkpoint: Place, learner: Learner, reader: Callable[[], Read]) -> Read:
    """The result of `reader`, on every rank or on none."""
    try:
        content = reader()
    except UserError as error:  # every rank reads the same words
        raise UserError(
            f"checkpoint {checkpoint}: {error}; resume with the release that wrote it, or a newer "
            "one"
        ) from None
    except (OSError, ValueError) as error:
        _agree(checkpoint, learner, error)
        raise AssertionError("a failure of one rank is one of all") from error
    _agree(checkpoint, learner, None)
    return content


def _agree(checkpoint: Place, learner: Learner, failure: Exception | None) -> None:
    """Raise the same on every rank if any of them found a failure."""
    own_severity = GOOD
    if failure is not None:
        own_severity = PASSING if may_pass(failure) else DAMAGED
    gravest = torch.tensor(own_severity, device=learner.ranks.device)
    dist.all_reduce(gravest, dist.ReduceOp.MAX)
    if gravest.item() == GOOD:
        return
    sentence = damage_message(checkpoint, failure or "another rank could not")
    kind = PassingError if gravest.item() == PASSING else DamagedCheckpoint
    raise kind(sentence) from failure


def damage_message(checkpoint: Place, reason: object) -> str:
    return (
        f"checkpoint {checkpoint} cannot be read ({reason}); remove it to resume from an older one"
    )


def _buffers(learner: Learner) -> dict[str, Tensor]:
    return {f"{WEIGHTS}{name}": buffer for name, buffer in learner.policy.stored_buffers()}


def state(learner: Learner) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint, to be written or to be read into in place."""
    tensors = _buffers(learner)
    for name, weight in learner.policy.trained_weights():
        moments = learner.optimizer.state[weight]
        if not moments:  # before the first step
            moments["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
            moments["exp_avg"] = torch.zeros_like(weight, requires_grad=False)
            moments["exp_avg_sq"] = torch.zeros_like(weight, requires_grad=False)
        tensors[f"{WEIGHTS}{name}"] = weight.detach()
        tensors[f"exp_avg.{name}"] = moments["exp_avg"]
        tensors[f"exp_avg_sq.{name}"] = moments["exp_avg_sq"]
    ranks = learner.ranks
    tensors[f"{RNG}{ranks.rank}.cpu"] = torch.get_rng_state()
    if ranks.device.type == "cuda":
        tensors[f"{RNG}{ranks.rank}.cuda"] = torch.cuda.get_rng_state(ranks.device)
    return tensors


def disk_failure(error: CheckpointException) -> OSError | None:
    """The file system's error on any rank."""
    return next(
        (failure for failure, _ in error.failures.values() if isinstance(failure, OSError)), None
    )


def controller_text(learner: Learner, controller: dict[str, Any] | None) -> str:
    """The file that `read_controller` reads."""
    fields: dict[str, Any] = {
        "format": FORMAT,
        "updates": learner.updates,
        "world_size": learner.ranks.world_size,
        "controller": controller,
    }
    if (lora := _lora(learner)) is not None:
        fields["lora"] = lora
    text = json.dumps(fields)
    # The checksum is of all text after it.
    return f'{{"crc32": {zlib.crc32(text.encode())}, {text[1:]}'


def read_controller(text: str) -> ControllerFile:
    """Raises ValueError if it is damaged, UserError if a newer Rollcast wrote it."""
    checksum = _CHECKSUM.match(text)
    if checksum is None:
        raise ValueError("controller.json has no checksum")
    covered = "{" + text[checksum.end() :]
    if zlib.crc32(covered.encode()) != int(checksum[1]):
        raise ValueError("controller.json is not as it was written")
    controller_fields = finite_json(covered)
    if not isinstance(controller_fields, dict):
        raise ValueError("controller.json is not a JSON object")
    written_in = controller_fields.get("format")
    if _is_count(written_in, FORMAT + 1):
        raise UserError(f"it is of format {written_in}, this Rollcast knows {FORMAT} at most")
    if written_in != FORMAT:
        raise ValueError(f"controller.json is of format {written_in!r}")
    updates, world_size, controller = (
        controller_fields.get(name, "") for name in ("updates", "world_size", "controller")
    )
    if (
        not _is_count(updates, 0)
        or not _is_count(world_size, 1)
        or not isinstance(controller, dict | None)
    ):
        raise ValueError("controller.json lacks updates, world_size or controller")
    lora = controller_fields.get("lora")
    if not isinstance(lora, dict | None):
        raise ValueError("the lora of controller.json is not a JSON object")
    return ControllerFile(updates, world_size, controller, lora)


def _is_count(value: object, minimum: int) -> bool:
    return type(value) is int and value >= minimum


def finite_json(text: str | bytes) -> Any:
    """The value. Raises ValueError, in a few words, for anything except JSON of finite numbers."""
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_parse_integer
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def _parse_integer(digits: str) -> int:
    # Whole numbers are less, whatever their sign: an int64 holds them, and a float comes near
    if len(digits) > 20 or abs(number := int(digits)) >= (2**63):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number

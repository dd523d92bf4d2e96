"""What can be found wrong before anything is started."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from rollcast.config.differences import Difference, differences
from rollcast.config.errors import PassingError, UserError
from rollcast.config.rules import START_RULES, broken_rules
from rollcast.config.run import RunConfig, WrongSettingsError, load_run_config
from rollcast.config.sentences import Wrong, overlap
from rollcast.connections.certificates import check_certificates
from rollcast.connections.http import listen
from rollcast.local.embedded_redis import check_embeddable, wait_until_ready
from rollcast.local.left_out import filled_in
from rollcast.local.ports import free_port
from rollcast.tasks.prompts import check_prompts, load, verifier_names
from rollcast.tasks.verifiers import find_verifier

SPARE_BYTES = 256 << 20
"""For logs, the queue's append-only file and the forecaster's history."""
_STATE_PER_WEIGHT = {"bfloat16": 6, "float32": 3}
"""Bytes of a checkpoint (float32 master weights and two Adam moments) over bytes of the model's own weights."""
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def load_to_start(file: Path) -> tuple[RunConfig, list[Difference]]:
    """The run file that a whole run is to be started from here, with what it leaves out filled in; and what that was.

    Raises UserError: where settings are wrong, with what is wrong with files that other settings name as well.
    """
    found: list[Difference] = []

    def fill_in(config: RunConfig) -> RunConfig:
        whole = filled_in(config)
        found.extend(differences(config, whole))
        return whole

    try:
        return load_run_config(file, to_start=True, filled_in=fill_in), found
    except WrongSettingsError as error:
        others = [] if error.config is None else _files(error.config, error.mistakes)
        _raise_all([partial(_refuse, error), *others])
        raise


def in_words(found: list[Difference]) -> str:
    """What was filled in, as the run file would have it."""
    return ", ".join(f"{one.field} {one.after}" for one in found)


def check(config: RunConfig) -> None:
    """Raise UserError for all that would stop the run on this machine: one sentence for each, none of them twice."""
    _raise_all([*_settings_and_files(config), lambda: _check_ports(config), lambda: _check_redis(config)])


def check_files(config: RunConfig) -> None:
    """The same as far as it can be known while nothing is asked of ports or of Redis. Raises UserError."""
    _raise_all(_settings_and_files(config))


def not_checked(config: RunConfig) -> list[str]:
    """What only a start can tell, in words."""
    left = ["whether ports are free"]
    if config.redis.port:
        left.append(f"Redis at {config.redis.host}:{config.redis.port}")
    if _is_on_the_hub(config.model.path):
        left.append(f"whether the hub has the model {config.model.path}")
    left.append("whether the model fits the memory")
    return left


def _refuse(error: UserError) -> NoReturn:
    raise error


def _settings_and_files(config: RunConfig) -> list[Callable[[], object]]:
    return [lambda: _check_rules(config), *_files(config)]


def _files(config: RunConfig, mistakes: Sequence[Wrong] = ()) -> list[Callable[[], object]]:
    """Checks of what settings name or ask for, but of those settings that are mistaken themselves."""
    checks: list[tuple[tuple[str, ...], Callable[[], object]]] = [
        (("redis.tls", "rpc.tls", "http.tls", "grader"), lambda: check_certificates(config)),
        (
            ("model.path", "model.dtype", "folder", "run", "trainer.keep_checkpoints"),
            lambda: _check_disk(config, _weight_bytes(config)),
        ),
        (("generator.cpu", "trainer.cpu", "local"), lambda: _check_cores(config)),
        (("generator.tensor_parallel",), lambda: _check_devices(config)),
        (("tasks",), lambda: _check_verifiers(config)),
        (
            ("tasks", "recipe.prompts_per_step"),
            lambda: check_prompts(load(config.tasks), config.recipe.prompts_per_step),
        ),
    ]
    wrong = {name for mistake in mistakes for name in (mistake.field, *mistake.others)}
    return [check for settings, check in checks if not any(overlap(one, name) for one in wrong for name in settings)]


def _check_verifiers(config: RunConfig) -> None:
    _raise_all([partial(find_verifier, name) for name in sorted(verifier_names(config.tasks))])


def _raise_all(checks: Sequence[Callable[[], object]]) -> None:
    """Make every check, and raise what they found as one error. It may pass by itself where all of it may."""
    found: list[UserError] = []
    for make in checks:
        try:
            make()
        except UserError as error:
            found.append(error)
    if found:
        kind = PassingError if all(isinstance(error, PassingError) for error in found) else UserError
        raise kind("\n".join(map(str, found))) from found[0]


def resolve_ports(config: RunConfig) -> RunConfig:
    """Give every port that other processes must know beforehand a number; services publish the rest themselves."""
    return config.model_copy(
        update={
            "redis": config.redis.model_copy(update={"port": config.redis.port or free_port(config.redis.host)}),
            "rpc": config.rpc.model_copy(update={"port": config.rpc.port or free_port(config.rpc.bind)}),
            "grader": config.grader.model_copy(update={"port": config.grader.port or free_port(config.grader.bind)}),
        }
    )


def _weight_bytes(config: RunConfig) -> int:
    """Size of the model's weights on disk; 0 for a name on the hub, which the trainer looks up itself."""
    folder = Path(config.model.path)
    try:
        if _is_on_the_hub(config.model.path):
            return 0
        json.loads((folder / "config.json").read_bytes())
        files = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
        for file in files:
            with file.open("rb") as stream:
                stream.read(1)
        sizes = [file.stat().st_size for file in files]
    except OSError as error:
        raise UserError(
            f"model.path = {config.model.path}: {Path(error.filename or folder).name} cannot be read "
            f"({error.strerror}); give the folder of a Hugging Face model"
        ) from error
    except ValueError as error:
        raise UserError(
            f"model.path = {config.model.path}: its config.json is not JSON; download the model again"
        ) from error
    if not sum(sizes):
        raise UserError(
            f"model.path = {config.model.path}: holds no weights (*.safetensors); give the folder of a whole model"
        )
    return sum(sizes)


def _check_disk(config: RunConfig, weight_bytes: int) -> None:
    checkpoint = weight_bytes * _STATE_PER_WEIGHT[config.model.dtype]
    needed = SPARE_BYTES + checkpoint * (config.trainer.keep_checkpoints + 1)
    folder = config.run_folder.absolute()
    try:
        while not folder.exists():
            folder = folder.parent
        is_writable = folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
        free = shutil.disk_usage(folder).free
    except OSError:
        is_writable = False
    if not is_writable:
        raise UserError(f"folder = {config.folder}: cannot be written; set `folder` to one that can")
    if free < needed:
        raise UserError(
            f"folder = {config.folder}: {free >> 20} MiB are free and {needed >> 20} MiB are needed for "
            f"{config.trainer.keep_checkpoints + 1} checkpoints; free space, or set folder or trainer.keep_checkpoints"
        )


def _check_rules(config: RunConfig) -> None:
    """Also for settings that no file gave: those of `--generators`, of `ablate`, of the demo."""
    if broken := broken_rules(config, START_RULES):
        raise UserError("\n".join(wrong.sentence for wrong in broken))


def _check_redis(config: RunConfig) -> None:
    if config.redis.port == 0:
        check_embeddable(config.redis)
    else:
        wait_until_ready(config.redis)


def _check_devices(config: RunConfig) -> None:
    """The driver lists a machine's GPUs in a folder; where there is none everything runs on the CPU."""
    if config.generator.tensor_parallel > 1 and not Path("/proc/driver/nvidia/gpus").is_dir():
        raise UserError(
            f"generator.tensor_parallel = {config.generator.tensor_parallel}: this machine has no GPU, and on a CPU a "
            "generator is one process; set 1"
        )


def _is_on_the_hub(path: str) -> bool:
    return _HUB_NAME.fullmatch(path) is not None and not Path(path).exists()


def _check_ports(config: RunConfig) -> None:
    if config.generator.http_port and config.local.generators > 1:
        raise UserError(
            f"generator.http_port = {config.generator.http_port}: {config.local.generators} generators cannot share "
            "it; set 0, and each takes a free one"
        )
    wanted = {
        "rpc.port": (config.rpc.bind, config.rpc.port),
        "trainer.http_port": (config.http.bind, config.trainer.http_port),
        "generator.http_port": (config.http.bind, config.generator.http_port),
        "forecaster.http_port": (config.forecaster.bind, config.forecaster.http_port),
        "forecaster.grpc_port": (config.forecaster.bind, config.forecaster.grpc_port),
    }
    taken: list[socket.socket] = []
    try:
        for setting, (bind, port) in wanted.items():
            if port:
                taken.append(listen(bind, port, setting=setting))
    finally:
        for listener in taken:
            listener.close()


def _check_cores(config: RunConfig) -> None:
    """Each process takes one, from the named core on."""
    cores = os.sched_getaffinity(0)
    for first, setting, count, counted in (
        (config.generator.cpu, "generator.cpu", config.local.generators, "local.generators"),
        (config.trainer.cpu, "trainer.cpu", config.local.trainer_ranks, "local.trainer_ranks"),
    ):
        missing = [] if first is None else sorted(set(range(first, first + count)) - cores)
        if missing:
            raise UserError(
                f"{setting} = {first}: {counted} = {count} take a core each from there on, "
                f"and core {missing[0]} is not among {sorted(cores)}; lower one of the two"
            )

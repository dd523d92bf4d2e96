"""What can be found wrong before anything is started."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.connections.certificates import check_certificates
from rollcast.connections.http import listen
from rollcast.local.embedded_redis import check_embeddable, wait_until_ready
from rollcast.local.ports import free_port
from rollcast.tasks.prompts import load, verifier_names
from rollcast.tasks.verifiers import find_verifier

SPARE_BYTES = 256 << 20
"""For logs, the queue's append-only file and the forecaster's history."""
_STATE_PER_WEIGHT = {"bfloat16": 6, "float32": 3}
"""Bytes of a checkpoint (float32 master weights and two Adam moments) over bytes of the model's own weights."""
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def check(config: RunConfig) -> None:
    """Raise UserError for what would stop the run: certificates, model, disk, ports, Redis, verifiers, data."""
    check_certificates(config)
    weights = _weight_bytes(config)
    _check_disk(config, weights)
    _check_ports(config)
    _check_cores(config)
    if config.redis.port == 0:
        check_embeddable(config.redis)
    else:
        wait_until_ready(config.redis)
    for verifier in sorted(verifier_names(config.tasks)):
        find_verifier(verifier)
    load(config.tasks)


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
        if _HUB_NAME.fullmatch(config.model.path) and not folder.exists():
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

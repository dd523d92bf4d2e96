"""The services of one run as processes of this machine."""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig
from rollcast.config.services import Redis
from rollcast.connections.port_files import port_file
from rollcast.local.devices import generator_gpus, no_gpus, trainer_gpus
from rollcast.local.embedded_redis import find_server, write_server_config
from rollcast.local.ports import free_port
from rollcast.local.process import Command, ServiceSpec
from rollcast.runfolder import files

TRAINER_STOP_SECONDS = 120.0
"""The step under way ends and a checkpoint is written."""
HAND_BACK_SECONDS = 15.0
"""Time after the drain: unfinished groups go back to the queue and the generator leaves the weight group."""

LOGGERS_STOP_SECONDS = 25.0
"""The remaining groups are reported by those who take them."""
GRADER_STOP_SECONDS = 20.0
"""Time after the grading under way."""
Environment = Callable[[], Mapping[str, str]]
"""Called at every start of a process."""


def service_specs(
    config: RunConfig,
    run_file: Path,
    *,
    embed_redis: bool,
    resume: bool,
    embed_grader: bool = False,
    gpus: Sequence[str] = (),
) -> list[ServiceSpec]:
    """The services in the order of starting. `config` is the resolved one that `run_file` holds.

    `gpus`: enough for all; empty = CPU.
    """
    folder = config.run_folder
    without_gpus = no_gpus(gpus)
    specs = [_redis(config.redis, folder)] if embed_redis else []
    if embed_grader:
        specs.append(_grader(config, without_gpus))
    specs.append(_forecaster(folder, run_file, without_gpus))
    if config.log:
        specs.append(_loggers(folder, run_file, without_gpus))
    environments = rank_environments(config.local.trainer_ranks, trainer_gpus(config.local, gpus))
    specs.append(_trainer(folder, run_file, environments, resume=resume))
    for index in range(config.local.generators):
        devices = generator_gpus(config.local, config.generator, gpus, index)
        specs.append(_generator(folder, run_file, index, devices, config.generator.drain_seconds))
    return specs


def _log(run_folder: Path, name: str) -> Path:
    return run_folder / files.LOGS / f"{name}.log"


def _module(name: str, run_file: Path, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"rollcast.{name}", "--config", str(run_file), *arguments)


def _redis(settings: Redis, folder: Path) -> ServiceSpec:
    server = write_server_config(settings, folder / files.REDIS)
    command = Command((str(find_server()), str(server)), _log(folder, "redis"))
    return ServiceSpec("redis", (command,), stop_order=3, stop_seconds=20.0)


def _grader(config: RunConfig, devices: Mapping[str, str]) -> ServiceSpec:
    """With a run file and an environment that hold no credential of others: it refuses to have them."""
    run_file = config.run_folder / files.GRADER_RUN_FILE
    write_resolved(
        config.model_copy(
            update={
                "redis": config.redis.model_copy(update={"password": None}),
                "rpc": config.rpc.model_copy(update={"token": None}),
                "http": config.http.model_copy(update={"token": None}),
            }
        ),
        run_file,
    )
    command = Command(
        _module("grader", run_file),
        _log(config.run_folder, "grader"),
        lambda: {
            **dict.fromkeys(
                ("ROLLCAST_REDIS_PASSWORD", "ROLLCAST_RPC_TOKEN", "ROLLCAST_HTTP_TOKEN", "ROLLCAST_PUSH_TOKEN"), ""
            ),
            **devices,
        },
    )
    stop_seconds = config.tasks.grading.longest_wall_seconds + GRADER_STOP_SECONDS
    ready = port_file(config.run_folder, "grader")
    return ServiceSpec("grader", (command,), stop_order=2, stop_seconds=stop_seconds, ready_file=ready)


def _forecaster(folder: Path, run_file: Path, devices: Mapping[str, str]) -> ServiceSpec:
    command = Command(
        _module("forecaster", run_file),
        _log(folder, "forecaster"),
        lambda: {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **devices},
    )
    # Together with the trainer: one after the other they take seconds longer.
    ready = port_file(folder, "forecaster")
    return ServiceSpec("forecaster", (command,), stop_order=1, stop_seconds=10.0, essential=False, ready_file=ready)


def _loggers(folder: Path, run_file: Path, devices: Mapping[str, str]) -> ServiceSpec:
    """Stopped after all that writes records."""
    command = Command(
        _module("loggers", run_file), _log(folder, "loggers"), lambda: {"OMP_NUM_THREADS": "1", **devices}
    )
    return ServiceSpec(
        "loggers",
        (command,),
        stop_order=3,
        stop_seconds=LOGGERS_STOP_SECONDS,
        essential=False,
        unhurried=True,
        when_cut="what is left is told when the run goes on",
        ready_file=port_file(folder, "loggers"),
    )


def rank_environments(world_size: int, devices: Mapping[str, str]) -> list[Environment]:
    """Environment of each trainer rank as torchrun would set it, computed at every start.

    torchrun's agent would cost a process that imports torch, and would hide the exit code that distinguishes a user's
    mistake from a crash.
    """
    rendezvous: dict[str, str] = {}

    def environment(rank: int) -> Mapping[str, str]:
        if world_size == 1:
            return devices
        if rank == 0:
            rendezvous["MASTER_PORT"] = str(free_port("127.0.0.1"))
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            **rendezvous,
            **devices,
        }

    return [functools.partial(environment, rank) for rank in range(world_size)]


def _trainer(folder: Path, run_file: Path, environments: Sequence[Environment], *, resume: bool) -> ServiceSpec:
    commands = tuple(
        Command(
            _module("trainer", run_file, *(["--resume"] if resume else [])),
            _log(folder, "trainer" if rank == 0 else f"trainer-rank{rank}"),
            environment,
        )
        for rank, environment in enumerate(environments)
    )
    return ServiceSpec(
        "trainer",
        commands,
        stop_order=1,
        stop_seconds=TRAINER_STOP_SECONDS,
        saves=True,
        restart_arguments=() if resume else ("--resume",),
        ready_file=port_file(folder, "trainer"),
    )


def _generator(
    folder: Path, run_file: Path, index: int, devices: Mapping[str, str], drain_seconds: float
) -> ServiceSpec:
    name = f"generator-{index}"
    arguments = _module("generator", run_file, "--name", name, "--index", str(index))
    command = Command(arguments, _log(folder, name), lambda: devices)
    return ServiceSpec(
        name,
        (command,),
        stop_order=0,
        stop_seconds=drain_seconds + HAND_BACK_SECONDS,
        when_cut="what it had not handed back is sampled again when the run goes on",
        ready_file=port_file(folder, name),
    )

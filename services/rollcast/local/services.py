"""The services of one run as processes of this machine."""

import functools
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rollcast.config.connections import Redis
from rollcast.config.resolved import write_resolved
from rollcast.config.run import REDIS_USERNAME, SECRET_VARIABLES, RunConfig
from rollcast.connections.port_files import port_file
from rollcast.local.devices import generator_gpus, trainer_gpus, visible_gpus
from rollcast.local.embedded_redis import find_server, write_server_config
from rollcast.local.ports import free_port
from rollcast.local.process import Command, ServiceSpec
from rollcast.runfolder import files

Environment = Callable[[], Mapping[str, str]]
"""Called at every start of a process."""


def service_specs(
    config: RunConfig,
    run_file: Path,
    *,
    embed_redis: bool,
    resume: bool,
    step: int | None = None,
    embed_grader: bool = False,
    gpus: Sequence[str] = (),
) -> list[ServiceSpec]:
    """The services in the order of starting. `config` is the resolved one that `run_file` holds.

    `step`: of the checkpoint to go on from; None = the newest. `gpus`: enough for all; empty = CPU.
    """
    folder = config.run_folder
    without_gpus = visible_gpus(gpus)
    specs: list[ServiceSpec] = []
    trainer_user: dict[str, str] = {}
    if embed_redis:
        # Only the trainer's process and the server's configuration know it: 256 bits
        password = secrets.token_urlsafe(32)
        trainer_user = {REDIS_USERNAME: "trainer", "ROLLCAST_REDIS_PASSWORD": password}
        specs.append(_redis(config.redis, config.run, folder, password))
    if embed_grader:
        specs.append(_grader(config, without_gpus))
    specs.append(_forecaster(folder, run_file, without_gpus))
    if config.log:
        specs.append(_loggers(folder, run_file, without_gpus))
    rank_settings = {**trainer_gpus(config.local, gpus), **trainer_user}
    environments = rank_environments(config.local.trainer_ranks, rank_settings)
    resuming = ("--resume",) if step is None else ("--resume", "--step", str(step))
    specs.append(_trainer(folder, run_file, environments, resuming, resume=resume))
    for index in range(config.local.generators):
        devices = generator_gpus(config.local, config.generator, gpus, index)
        specs.append(_generator(folder, run_file, index, devices, config.generator.drain_seconds))
    return specs


def _program(
    service: str,
    run_file: Path,
    folder: Path,
    environment: Environment,
    *arguments: str,
    name: str = "",
) -> Command:
    """The program of a service. `name`: of its log, if that is another."""
    log = folder / files.LOGS / f"{name or service}.log"
    program = (sys.executable, "-m", f"rollcast.{service}", "--config", str(run_file), *arguments)
    return Command(program, log, environment)


def _redis(settings: Redis, run: str, folder: Path, trainer_password: str) -> ServiceSpec:
    server = write_server_config(settings, run, folder / files.REDIS, trainer_password)
    command = Command((str(find_server()), str(server)), folder / files.LOGS / "redis.log")
    return ServiceSpec("redis", (command,), stop_order=3, stop_seconds=20.0)


def _grader(config: RunConfig, devices: Mapping[str, str]) -> ServiceSpec:
    """With a run file and an environment that hold no credential of others: it refuses to have
    them.
    """
    folder = config.run_folder
    other_secrets = {
        variable: setting
        for variable, setting in SECRET_VARIABLES.items()
        if setting[0] != "grader"
    }
    updates = {
        group: getattr(config, group).model_copy(update={name: None})
        for group, name in other_secrets.values()
    }
    write_resolved(config.model_copy(update=updates), folder / files.GRADER_RUN_FILE)
    environment = {**dict.fromkeys(other_secrets, ""), **devices}
    command = _program("grader", folder / files.GRADER_RUN_FILE, folder, lambda: environment)
    # Time after the grading under way
    stop_seconds = config.tasks.grading.longest_wall_seconds + 20.0
    ready = port_file(folder, "grader")
    return ServiceSpec(
        "grader", (command,), stop_order=2, stop_seconds=stop_seconds, ready_file=ready
    )


def _forecaster(folder: Path, run_file: Path, devices: Mapping[str, str]) -> ServiceSpec:
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = _program("forecaster", run_file, folder, lambda: {**threads, **devices})
    # Together with the trainer: one after the other they take seconds longer.
    ready = port_file(folder, "forecaster")
    return ServiceSpec(
        "forecaster", (command,), stop_order=1, stop_seconds=10.0, essential=False, ready_file=ready
    )


def _loggers(folder: Path, run_file: Path, devices: Mapping[str, str]) -> ServiceSpec:
    """Stopped after all that writes records."""
    return ServiceSpec(
        "loggers",
        (_program("loggers", run_file, folder, lambda: {"OMP_NUM_THREADS": "1", **devices}),),
        stop_order=3,
        # The remaining groups are reported by those who take them
        stop_seconds=25.0,
        essential=False,
        unhurried=True,
        when_cut="what is left is told when the run goes on",
        ready_file=port_file(folder, "loggers"),
    )


def _trainer(
    folder: Path,
    run_file: Path,
    environments: Sequence[Environment],
    resume_arguments: tuple[str, ...],
    *,
    resume: bool,
) -> ServiceSpec:
    """`resume_arguments`: arguments with which it goes on."""
    names = ["trainer", *(f"trainer-rank{rank}" for rank in range(1, len(environments)))]
    return ServiceSpec(
        "trainer",
        tuple(
            _program(
                "trainer",
                run_file,
                folder,
                environment,
                *(resume_arguments if resume else ()),
                name=name,
            )
            for name, environment in zip(names, environments, strict=True)
        ),
        stop_order=1,
        # The step under way ends and a checkpoint is written
        stop_seconds=120.0,
        saves=True,
        restart_arguments=() if resume else resume_arguments,
        ready_file=port_file(folder, "trainer"),
    )


def _generator(
    folder: Path, run_file: Path, index: int, devices: Mapping[str, str], drain_seconds: float
) -> ServiceSpec:
    name = f"generator-{index}"
    arguments = ("--name", name, "--index", str(index))
    return ServiceSpec(
        name,
        (_program("generator", run_file, folder, lambda: devices, *arguments, name=name),),
        stop_order=0,
        # Time after the drain: unfinished groups go back to the queue and the generator leaves the
        # weight group
        stop_seconds=drain_seconds + 15.0,
        when_cut="what it had not handed back is sampled again when the run goes on",
        ready_file=port_file(folder, name),
    )


def rank_environments(world_size: int, devices: Mapping[str, str]) -> list[Environment]:
    """Environment of each trainer rank as torchrun would set it, computed at every start.

    torchrun's agent would cost a process that imports torch, and would hide the exit code that
    distinguishes a user's mistake from a crash.
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

"""Checks for mistakes that can be found before anything is started."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from rollcast.config.base import Settings
from rollcast.config.connections import Redis, Weights
from rollcast.config.environments.settings import EnvironmentSettings, SessionEnvironment
from rollcast.config.errors import UserError
from rollcast.config.lora import check_gpu_dtype
from rollcast.config.model import Model
from rollcast.config.resolved import Difference, differences
from rollcast.config.rules import broken_rules
from rollcast.config.run import RunConfig, WrongSettingsError, load_run_config
from rollcast.config.sentences import Wrong, overlap
from rollcast.config.services import Generator, Local, Trainer
from rollcast.connections.certificates import check_certificates
from rollcast.local import cautions
from rollcast.local.checks import Check, raise_all
from rollcast.local.devices import check_gpus, check_transport, usable_gpus, with_gpus
from rollcast.local.embedded_redis import check_embeddable, wait_until_ready
from rollcast.local.left_out import filled_in
from rollcast.local.model_name import (
    check_hub_name,
    find_model_files,
    is_on_the_hub,
    similar_folder,
)
from rollcast.local.monitor import HOST as PROMETHEUS_HOST
from rollcast.local.parts_trial import try_own_parts
from rollcast.local.ports import (
    check_free_ports,
    check_named_ports,
    free_port,
    keep_port,
    named_ports,
)
from rollcast.local.task_checks import check_tasks
from rollcast.memory.check import check_memory
from rollcast.memory.device import smallest_gpu
from rollcast.memory.head_size import check_head_size
from rollcast.memory.host import HostLimits
from rollcast.memory.text_model import check_causal, check_max_length
from rollcast.runfolder.files import checkpoint_place, earlier_run_place
from rollcast.runfolder.kept_checkpoints import check_earlier_run, kept_versions
from rollcast.telemetry.host_memory import free_bytes

_STATE_PER_WEIGHT = {"bfloat16": 6, "float32": 3}
"""Bytes of a checkpoint (float32 master weights and two Adam moments) over bytes of the model's own
weights."""
Group = TypeVar("Group", bound=Settings)


def load_to_start(file: Path) -> tuple[RunConfig, list[Difference]]:
    """The run file that a whole run is to be started from here, with defaults for the settings that
    it leaves out, and these. Raises UserError: names wrong settings, and the mistakes in files that
    other settings name.
    """
    filled_settings: list[Difference] = []

    def fill_in(config: RunConfig) -> RunConfig:
        filled_config = filled_in(config)
        filled_settings.extend(differences(config, filled_config))
        return filled_config

    try:
        return load_run_config(file, to_start=True, filled_in=fill_in), filled_settings
    except WrongSettingsError as error:
        file_checks = [] if error.config is None else _files(error.config, error.mistakes)
        raise_all([error, *file_checks])
        raise


def in_words(filled_settings: list[Difference]) -> str:
    """The filled-in settings, as the run file would contain them."""
    return ", ".join(f"{difference.field} {difference.new_value}" for difference in filled_settings)


def check(config: RunConfig, *, monitor: bool = False) -> list[str]:
    """Cautions: what the user should know before the run starts.

    `monitor`: a Prometheus is started with it. Raises UserError for all that would stop the run on
    this machine: one sentence for each, none of them twice.
    """

    def check_memory_here() -> None:
        """Checked on GPUs only: each process has one to itself, or all share one, and the driver
        reports its size.
        """
        if (device := smallest_gpu()) is not None:
            local = with_gpus(config.local, usable_gpus())
            local_config = config.model_copy(update={"local": local})
            check_memory(
                local_config, device, host=HostLimits(local.trainer_ranks, machine=free_bytes())
            )

    return check_files(
        config,
        lambda: check_free_ports(named_ports(config, monitor=monitor)),
        lambda: (
            check_embeddable(config.redis)
            if config.redis.is_embedded
            else wait_until_ready(config.redis)
        ),
        check_memory_here,
        lambda: (
            cautions.quantization_warnings(config.generator.engine.quantization)
            if usable_gpus()
            else []
        ),
        monitor=monitor,
    )


def check_files(config: RunConfig, *further_checks: Check, monitor: bool = False) -> list[str]:
    """The checks that need neither ports nor Redis, and `further_checks`. Raises UserError."""
    # Also of settings that no file gave: those of `--generators`, of `ablate`, of the demo.
    broken = [UserError(wrong.sentence) for wrong in broken_rules(config, to_start=True)]
    return raise_all(
        [
            *broken,
            lambda: check_named_ports(named_ports(config, monitor=monitor)),
            *_files(config),
            lambda: cautions.evaluation_warnings(
                config.tasks.evaluation.every_steps, config.budget.steps
            ),
            lambda: cautions.core_warnings(config.local, config.generator),
            *further_checks,
        ]
    )


def not_checked(
    redis: Redis, model: str, environments: Sequence[EnvironmentSettings] = ()
) -> list[str]:
    """Sentences about checks that only a start can make. `model`: its path."""
    unchecked_aspects = ["whether ports are free"]
    if not redis.is_embedded:
        unchecked_aspects.append(f"Redis at {redis.place}")
    if is_on_the_hub(model):
        unchecked_aspects.append(f"whether the hub has the model {model}")
    if programs := [item.name for item in environments if isinstance(item, SessionEnvironment)]:
        unchecked_aspects.append(
            f"the programs of {', '.join(programs)} (`rollcast try` plays two episodes)"
        )
    if find_model_files(model) is None:
        unchecked_aspects.append("what its tokenizer makes of the prompts")
    return unchecked_aspects


def _files(config: RunConfig, mistakes: Sequence[Wrong] = ()) -> list[Check]:
    """Checks of what settings name or ask for, but of those settings
    that are mistaken themselves.
    """
    checkpoint_location = checkpoint_place(config.run_folder, config.trainer.checkpoints)
    checks: list[tuple[tuple[str, ...], Check]] = [
        (
            ("redis.tls", "rpc.tls", "http.tls", "grader"),
            lambda: check_certificates(config.redis, config.rpc, config.http),
        ),
        (
            (
                "model.path",
                "model.dtype",
                "folder",
                "run",
                "trainer.keep_checkpoints",
                "trainer.checkpoints",
            ),
            lambda: _check_disk(config.run_folder, config.trainer, config.model),
        ),
        (("model.path",), lambda: check_causal(config.model)),
        (("model.path", "model.max_length"), lambda: check_max_length(config.model)),
        (("model.path",), lambda: check_head_size(config.model, on_gpus=bool(usable_gpus()))),
        (("model.path",), lambda: cautions.model_name_warnings(config.model.path)),
        (("model.from_run", "model.from_step"), lambda: _check_earlier_run(config.model)),
        (
            ("generator.cpu", "trainer.cpu", "local"),
            lambda: _check_cores(config.generator, config.trainer, config.local),
        ),
        ((), lambda: _check_compiler(config.local.generators)),
        (
            ("generator.tensor_parallel", "local", "weights.transport"),
            lambda: _check_devices(config.local, config.generator, config.weights, config.model),
        ),
        (tuple(config.recipe.own_parts), lambda: try_own_parts(config.recipe)),
        (
            ("tasks", "recipe.prompts_per_step"),
            lambda: check_tasks(config.tasks, config.recipe, config.model, checkpoint_location),
        ),
    ]
    wrong = {name for mistake in mistakes for name in (mistake.field, *mistake.related_fields)}
    return [
        check
        for settings, check in checks
        if not any(overlap(wrong_field, name) for wrong_field in wrong for name in settings)
    ]


def resolve_ports(config: RunConfig, *, monitor: bool = False) -> RunConfig:
    """Give every port that other processes must know beforehand a number; services publish the rest
    themselves.

    Raises UserError where another run has taken a port that is set, although its service does not
    listen yet.
    """
    page_host = config.forecaster.bind
    updates: dict[str, Settings] = {
        "forecaster": _untaken("forecaster.http_port", config.forecaster, page_host),
        "redis": _with_port(config.redis, "port", config.redis.host),
        "rpc": _with_port(config.rpc, "port", config.rpc.bind),
        "grader": _with_port(config.grader, "port", config.grader.bind),
    }
    if monitor:
        local = _untaken("local.prometheus_port", config.local, PROMETHEUS_HOST)
        updates["local"] = _with_port(local, "prometheus_port", PROMETHEUS_HOST)
        updates["forecaster"] = _with_port(updates["forecaster"], "http_port", page_host)
    return config.model_copy(update=updates)


def _with_port(settings: Group, name: str, host: str) -> Group:
    """The group with a free port of `host` if it has 0."""
    return settings.model_copy(update={name: getattr(settings, name) or free_port(host)})


def _untaken(setting: str, settings: Group, host: str) -> Group:
    """A usual port that another run of this machine has taken becomes 0, any free one, if the run
    file left it out.

    `settings`: the group of `setting`.
    """
    name = setting.rpartition(".")[2]
    port = getattr(settings, name)
    if not port or keep_port(host, port):
        return settings
    if name in settings.model_fields_set:
        raise UserError(
            f"{setting} = {port}: another run of this machine is about to use it; choose a free "
            "port"
        )
    return settings.model_copy(update={name: 0})


def weight_bytes(model: str) -> int:
    """Size of the model's weights on disk; 0 for a name on the hub, which the trainer looks up
    itself.

    Raises UserError for a folder that holds no model.
    """
    folder = Path(model)
    try:
        if is_on_the_hub(model):
            check_hub_name(model)
            return 0
        json.loads((folder / "config.json").read_bytes())
        files = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
        for file in files:
            with file.open("rb") as stream:
                stream.read(1)
        sizes = [file.stat().st_size for file in files]
    except UserError:
        raise
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError) and not folder.exists()
        close_folder = similar_folder(model) if is_missing else None
        raise UserError(
            (
                f"model.path = {model}: {Path(error.filename or folder).name} cannot be read "
                f"({error.strerror}); "
            )
            + (
                f"did you mean {close_folder}?"
                if close_folder
                else "give the folder of a Hugging Face model"
            )
        ) from error
    except ValueError as error:
        raise UserError(
            f"model.path = {model}: its config.json is not JSON; download the model again"
        ) from error
    if not sum(sizes):
        raise UserError(
            f"model.path = {model}: holds no weights (*.safetensors); give the folder of a whole "
            "model"
        )
    return sum(sizes)


def _check_disk(run_folder: Path, trainer: Trainer, model: Model) -> None:
    """The run's folder, and that of its checkpoints if it is another; the free space behind a URL
    is unknown.
    """
    num_checkpoints = trainer.keep_checkpoints + 1
    checkpoint_bytes = weight_bytes(model.path) * _STATE_PER_WEIGHT[model.dtype] * num_checkpoints
    checkpoint_location = checkpoint_place(run_folder, trainer.checkpoints)
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


def _check_earlier_run(model: Model) -> None:
    """Only the trainer looks behind a URL."""
    earlier_location = None if model.from_run is None else earlier_run_place(model.from_run)
    if model.from_run is not None and isinstance(earlier_location, Path):
        check_earlier_run(
            model.from_run, model.from_step, [step for _, step in kept_versions(earlier_location)]
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


def _check_devices(local: Local, generator: Generator, weights: Weights, model: Model) -> None:
    """Without a GPU every worker uses a core."""
    gpus = usable_gpus()
    check_gpus(local, generator, gpus)
    if gpus:
        check_gpu_dtype(model.lora, model.dtype)
    check_transport(
        weights.transport, has_gpus=bool(gpus), shares_gpu=with_gpus(local, gpus).shares_gpu
    )
    cores = len(os.sched_getaffinity(0))
    if generator.tensor_parallel > cores and not gpus:
        raise UserError(
            f"generator.tensor_parallel = {generator.tensor_parallel}: this machine has no GPU, "
            "and "
            f"this process may run on {cores} cores; set at most {cores}"
        )


def _check_compiler(num_generators: int) -> None:
    """Raise UserError if vLLM samples on a CPU and the compiler that torch needs is missing; torch
    reads CXX, else g++."""
    compiler = os.environ.get("CXX") or "g++"
    if num_generators and not usable_gpus() and shutil.which(compiler) is None:
        raise UserError(
            f"CXX = {compiler}: there is no such C++ compiler on the path, and vLLM needs one on a "
            "CPU; install it "
            "(Debian's package is g++), or name another in the environment variable CXX"
        )


def _check_cores(generator: Generator, trainer: Trainer, local: Local) -> None:
    """Each process takes one, from the named core on."""
    cores = os.sched_getaffinity(0)
    for first, setting, count, counted in (
        (generator.cpu, "generator.cpu", local.generators, "local.generators"),
        (trainer.cpu, "trainer.cpu", local.trainer_ranks, "local.trainer_ranks"),
    ):
        missing_cores = [] if first is None else sorted(set(range(first, first + count)) - cores)
        if missing_cores:
            raise UserError(
                f"{setting} = {first}: {counted} = {count} take a core each from there on, "
                f"and core {missing_cores[0]} is not among {sorted(cores)}; lower one of the two"
            )

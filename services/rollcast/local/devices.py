"""Which GPUs each process of a run on this machine gets: the trainer's ranks the first, then each
generator its own.

    GPUs that may be used           0  1  2  3  4  5
    trainer, 2 ranks                0  1                each rank sees both, takes its LOCAL_RANK's
    generator-0, tensor_parallel 2        2  3
    generator-1                                 4  5
    Redis, grader, forecaster       none

No two processes share one: NCCL refuses two ranks on a GPU, and vLLM takes most of its memory. Only
if a single GPU may be used, the trainer's one rank and the generators share it: vLLM's part is
counted (`memory.one_gpu`), and weights travel through host memory.
"""

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from rollcast.config.errors import PassingError, UserError
from rollcast.config.services import Generator, Local
from rollcast.memory.device import gpu_sizes
from rollcast.telemetry.gpus import EXPECTED_GPUS, driver_version

VISIBLE = "CUDA_VISIBLE_DEVICES"
CPU_BUILD = "+cpu"
"""Part of the version of a torch that uses no GPU, whatever the machine has."""


def usable_gpus() -> tuple[str, ...]:
    """The GPUs as CUDA_VISIBLE_DEVICES names them, else their numbers; empty if everything runs on
    the CPU.
    """
    return named_gpus(len(gpu_sizes()), os.environ) if can_use_gpus() else ()


def can_use_gpus() -> bool:
    """Whether torch is here, and no build for CPUs."""
    try:
        return CPU_BUILD not in version("torch")
    except PackageNotFoundError:
        return False


def named_gpus(count: int, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs, `count` at most, that this environment leaves.

    CUDA reads its list up to the first invalid entry.
    """
    if VISIBLE not in environment:
        return tuple(map(str, range(count)))
    gpu_ids: list[str] = []
    for entry in map(str.strip, environment[VISIBLE].split(",")):
        if not entry or entry.startswith("-") or len(gpu_ids) == count:
            break
        gpu_ids.append(entry)
    return tuple(gpu_ids)


def num_devices(local: Local, generator: Generator) -> int:
    """The GPUs that this machine's processes need: one for each rank and each worker of a
    generator, or one for all.
    """
    if local.shares_gpu:
        return 1
    return local.trainer_ranks + local.generators * generator.tensor_parallel


def with_gpus(local: Local, gpus: Sequence[str]) -> Local:
    """`local` with the number of GPUs that the run will use, for processes that read the run file
    later.
    """
    return (
        local
        if local.gpus is not None or not gpus
        else local.model_copy(update={"gpus": len(gpus)})
    )


def check_gpus(local: Local, generator: Generator, gpus: Sequence[str]) -> None:
    """Raise UserError if there are GPUs, but too few, or none though the run file asks for some."""
    if local.gpus is not None and len(gpus) < local.gpus:
        raise UserError(
            f"local.gpus = {local.gpus}: {len(gpus)} may be used here (by nvidia-smi, {VISIBLE} "
            "and torch's build); "
            f"{'lower it, or leave it out' if gpus else 'leave it out for a run on the CPU'}"
        )
    if (
        not gpus
        and can_use_gpus()
        and VISIBLE not in os.environ
        and (driver := driver_version()) is not None
    ):
        raise PassingError(
            f"nvidia-smi reports no GPU, and NVIDIA's driver {driver} is loaded: a GPU has failed, "
            "this container was given none, or nvidia-smi is not on the path; for a run on the CPU "
            f"set {VISIBLE} to nothing"
        )
    local = with_gpus(local, gpus)
    if local.shares_gpu:
        _check_one_process_each(local, generator)
        return
    needed = num_devices(local, generator)
    if gpus and (local.gpus or 0) < needed:
        more = "raise local.gpus" if (local.gpus or 0) < len(gpus) else f"name more in {VISIBLE}"
        raise UserError(
            f"local.trainer_ranks = {local.trainer_ranks}: with local.generators "
            f"{local.generators} of generator.tensor_parallel {generator.tensor_parallel} the run "
            f"needs {needed} GPUs, each for one process, and {local.gpus} may be used here; lower "
            f"one of the three, or {more}"
        )


def _check_one_process_each(local: Local, generator: Generator) -> None:
    """Raise UserError if a role would need a second GPU."""
    for setting, count in (
        ("local.trainer_ranks", local.trainer_ranks),
        ("generator.tensor_parallel", generator.tensor_parallel),
    ):
        if count > 1:
            raise UserError(
                f"{setting} = {count}: one GPU may be used here, and NCCL takes one process of a "
                "group on each; set it "
                "to 1, or give the run more GPUs (CUDA_VISIBLE_DEVICES, local.gpus)"
            )


def check_transport(transport: str, *, has_gpus: bool, shares_gpu: bool) -> None:
    """Raise UserError if weights.transport is nccl and cannot work here; the trainer would say so
    later.
    """
    if transport != "nccl" or (has_gpus and not shares_gpu):
        return
    sharing_reason = (
        "generator and trainer share one GPU, and NCCL takes one process of a group on each"
    )
    raise UserError(
        f"weights.transport = nccl: {sharing_reason if has_gpus else 'no GPU may be used here'}; "
        "set it to auto or gloo"
    )


def trainer_gpus(local: Local, gpus: Sequence[str]) -> dict[str, str]:
    """The variables for the environment of each trainer rank."""
    return visible_gpus(gpus, gpus[: local.trainer_ranks])


def generator_gpus(
    local: Local, generator: Generator, gpus: Sequence[str], index: int
) -> dict[str, str]:
    """The environment of the index-th generator."""
    if with_gpus(local, gpus).shares_gpu:
        return visible_gpus(gpus, gpus[:1])
    workers = generator.tensor_parallel
    first = local.trainer_ranks + index * workers
    return visible_gpus(gpus, gpus[first : first + workers])


def visible_gpus(gpus: Sequence[str], process_gpus: Sequence[str] = ()) -> dict[str, str]:
    """The environment of a process that uses its `process_gpus` of these GPUs, and ends if it finds
    fewer.

    A machine without GPUs is left as it is.
    """
    return {VISIBLE: ",".join(process_gpus), EXPECTED_GPUS: str(len(process_gpus))} if gpus else {}

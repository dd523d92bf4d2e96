"""Which GPUs each process of a run on this machine gets: the trainer's ranks the first, then each generator its own.

    GPUs that may be used              0  1  2  3  4  5
    trainer, 2 ranks                   0  1                each rank sees both and takes that of its LOCAL_RANK
    generator-0, tensor_parallel 2           2  3
    generator-1                                    4  5
    Redis, grader, forecaster          none

No two processes share one: NCCL refuses two ranks on a GPU, and vLLM takes most of its memory.
"""

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from rollcast.config.errors import UserError
from rollcast.config.services import Generator, Local
from rollcast.memory.device import gpu_sizes

VISIBLE = "CUDA_VISIBLE_DEVICES"
CPU_BUILD = "+cpu"
"""Part of the version of a torch that uses no GPU, whatever the machine has."""


def usable_gpus() -> tuple[str, ...]:
    """The GPUs as CUDA_VISIBLE_DEVICES names them, else their numbers; empty if everything runs on the CPU."""
    try:
        if CPU_BUILD in version("torch"):
            return ()
    except PackageNotFoundError:
        return ()
    return named_gpus(len(gpu_sizes()), os.environ)


def named_gpus(count: int, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Those of `count` GPUs that this environment leaves. CUDA reads its list up to the first invalid entry."""
    if VISIBLE not in environment:
        return tuple(map(str, range(count)))
    left: list[str] = []
    for entry in map(str.strip, environment[VISIBLE].split(",")):
        if not entry or entry.startswith("-") or len(left) == count:
            break
        left.append(entry)
    return tuple(left)


def num_devices(local: Local, generator: Generator) -> int:
    """The GPUs that this machine's processes need: one for each rank and each worker of a generator."""
    return local.trainer_ranks + local.generators * generator.tensor_parallel


def check_gpus(local: Local, generator: Generator, gpus: Sequence[str]) -> None:
    """Raise UserError if there are GPUs, but too few."""
    needed = num_devices(local, generator)
    if 0 < len(gpus) < needed:
        raise UserError(
            f"local.trainer_ranks = {local.trainer_ranks}: with local.generators {local.generators} of "
            f"generator.tensor_parallel {generator.tensor_parallel} the run needs {needed} GPUs, each for one process, "
            f"and {len(gpus)} may be used here; lower one of the three, or name more in {VISIBLE}"
        )


def trainer_gpus(local: Local, gpus: Sequence[str]) -> dict[str, str]:
    """What the environment of each trainer rank gets."""
    return visible_gpus(gpus, gpus[: local.trainer_ranks])


def generator_gpus(local: Local, generator: Generator, gpus: Sequence[str], index: int) -> dict[str, str]:
    """The environment of the index-th generator."""
    workers = generator.tensor_parallel
    first = local.trainer_ranks + index * workers
    return visible_gpus(gpus, gpus[first : first + workers])


def visible_gpus(gpus: Sequence[str], own: Sequence[str] = ()) -> dict[str, str]:
    """The environment of a process that uses its `own` of these GPUs. A machine without GPUs is left as it is."""
    return {VISIBLE: ",".join(own)} if gpus else {}

"""Whether this machine's GPUs, or its cores without a GPU, suffice for every process."""

import os

from rollcast.config.drafts import check_gpu_drafts
from rollcast.config.errors import UserError
from rollcast.config.lora import check_gpu_dtype
from rollcast.local.checks.check import Start
from rollcast.local.devices import check_gpus, check_transport, with_gpus

SETTINGS = ("generator.tensor_parallel", "local", "weights.transport")


def check(start: Start) -> None:
    """Without a GPU every worker uses a core."""
    config = start.config
    local = config.local
    gpus = start.gpus
    check_gpus(local, config.generator, gpus)
    if gpus:
        check_gpu_dtype(config.model.lora, config.model.dtype)
        check_gpu_drafts(config.generator.engine.speculative_config)
    check_transport(
        config.weights.transport, has_gpus=bool(gpus), shares_gpu=with_gpus(local, gpus).shares_gpu
    )
    cores = len(os.sched_getaffinity(0))
    workers = config.generator.tensor_parallel
    if workers > cores and not gpus:
        raise UserError(
            f"generator.tensor_parallel = {workers}: this machine has no GPU, and "
            f"this process may run on {cores} cores; set at most {cores}"
        )

"""One GPU for a whole run: `rollcast up` divides it between trainer and generators,
and says how.
"""

from rollcast.config.connections import Weights
from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.config.services import Generator
from rollcast.memory.architecture import UncountedModelError
from rollcast.memory.check import plan_run
from rollcast.memory.device import Device
from rollcast.memory.plan import MemoryPlan
from rollcast.memory.verdict import refusals


def divide_gpu(config: RunConfig, device: Device) -> MemoryPlan:
    """The plan of the run, whose `config` has the engines' part.

    Raises UserError if it does not fit, or cannot be counted.
    """
    try:
        plan = plan_run(config, device, ranks=None, ask_hub=True)
    except UncountedModelError as error:
        raise UserError(
            f"{error}; so one GPU cannot be divided between trainer and generators: use two GPUs"
        ) from error
    assert plan is not None, "the hub was asked"
    if refused := refusals(plan):
        raise UserError("\n".join(refused))
    return plan


def in_words(weights: Weights, generator: Generator) -> str:
    """Sentence for the user at the start. Both arguments: of the divided plan."""
    gloo = (
        ""
        if weights.transport == "gloo"
        else ", because NCCL takes one process of a group on each GPU"
    )
    return (
        "one GPU: trainer and generators share it (generator.gpu_memory_utilization "
        f"{generator.gpu_memory_utilization:g}, generator.gpu_kv_cache_gib "
        f"{generator.gpu_kv_cache_gib or 0:g}, weights.stage {weights.stage}); weights travel over "
        f"gloo, through host memory{gloo}"
    )

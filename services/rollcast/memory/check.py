"""A run file and a device, made into a plan; and what is refused before a device is taken."""

from __future__ import annotations

from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.memory.architecture import UncountedModelError, model_shape
from rollcast.memory.device import Device
from rollcast.memory.host import NO_LIMITS, HostLimits, host_refusals
from rollcast.memory.model_file import read_file, read_from_hub, read_here
from rollcast.memory.plan import MemoryPlan
from rollcast.memory.verdict import refusals


def plan_run(
    config: RunConfig, device: Device, *, ranks: int | None, model_config: Path | None = None, ask_hub: bool = False
) -> MemoryPlan | None:
    """`ranks`: of the trainer; None = local.trainer_ranks. `model_config`: a config.json in place of model.path's.

    None where no config.json is at hand. Raises UserError where there is one that cannot be read or counted.
    """
    path = config.model.path
    found = read_here(path) if model_config is None else read_file(model_config, "--model-config")
    if found is None and ask_hub:
        found = read_from_hub(path)
    if found is None:
        return None
    local = config.local
    return MemoryPlan(model_shape(found), config, device, ranks or local.trainer_ranks, local.generators)


def check_memory(
    config: RunConfig,
    device: Device,
    *,
    ranks: int | None = None,
    model_config: Path | None = None,
    host: HostLimits = NO_LIMITS,
) -> MemoryPlan | None:
    """Raise UserError for what cannot fit; None where it cannot be told, as the model is not known or not counted."""
    try:
        plan = plan_run(config, device, ranks=ranks, model_config=model_config)
    except UncountedModelError:
        return None
    if plan is not None and (refused := [*refusals(plan), *host_refusals(plan, host)]):
        raise UserError("\n".join(refused))
    return plan

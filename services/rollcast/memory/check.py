"""Plans the memory of a run file on a device, and refuses a run that cannot fit before a device is
taken.
"""

from pathlib import Path

from rollcast.config.distillation import Distillation, FolderTeacher
from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.memory import one_gpu
from rollcast.memory.architecture import ModelShape, UncountedModelError
from rollcast.memory.device import Device
from rollcast.memory.host import NO_LIMITS, HostLimits, host_refusals
from rollcast.memory.model_file import folder_here, read_file, read_from_hub, read_here
from rollcast.memory.plan import MemoryPlan
from rollcast.memory.verdict import check_shard_ranks, refusals
from rollcast.memory.weight_shapes import find_model_shape


def plan_run(
    config: RunConfig,
    device: Device,
    *,
    ranks: int | None,
    model_config: Path | None = None,
    ask_hub: bool = False,
) -> MemoryPlan | None:
    """`ranks`: trainer ranks; None = local.trainer_ranks. `model_config`: a config.json instead of
    model.path's.

    With local.gpus 1 it is the plan of a shared GPU, with the settings that `rollcast up` gives the
    engines. None if there is no config.json. Raises UserError if it cannot be read or the model
    cannot be counted.
    """
    model = _find_model(config.model.path, model_config, ask_hub=ask_hub)
    if model is None:
        return None
    local = config.local
    teacher = _find_teacher(config.recipe.distillation, ask_hub=ask_hub)
    plan = MemoryPlan(
        model, config, device, ranks or local.trainer_ranks, local.generators, teacher=teacher
    )
    is_shared = device.kind == "gpu" and local.shares_gpu and ranks in (None, 1)
    return one_gpu.shared(plan) if is_shared else plan


def _find_teacher(distillation: Distillation | None, *, ask_hub: bool) -> ModelShape | None:
    """None = the ranks hold no teacher, or its config.json is not here."""
    if distillation is None or not isinstance(distillation.teacher, FolderTeacher):
        return None
    return _find_model(distillation.teacher.path, None, ask_hub=ask_hub)


def _find_model(path: str, model_config: Path | None, *, ask_hub: bool) -> ModelShape | None:
    if model_config is not None:
        return find_model_shape(
            read_file(model_config, "--model-config"), folder=model_config.parent
        )
    local_config = read_here(path)
    if local_config is not None:
        return find_model_shape(
            local_config,
            folder=folder_here(path),
            on_hub=path if ask_hub and not Path(path).is_dir() else None,
        )
    return find_model_shape(read_from_hub(path), on_hub=path) if ask_hub else None


def check_memory(
    config: RunConfig,
    device: Device,
    *,
    ranks: int | None = None,
    model_config: Path | None = None,
    host: HostLimits = NO_LIMITS,
) -> MemoryPlan | None:
    """Raise UserError if a process cannot fit.

    None if the model is not here or its memory cannot be counted.
    """
    try:
        plan = plan_run(config, device, ranks=ranks, model_config=model_config)
    except UncountedModelError:
        return None
    if plan is not None and (
        refused := [*check_shard_ranks(plan), *refusals(plan), *host_refusals(plan, host)]
    ):
        raise UserError("\n".join(refused))
    return plan

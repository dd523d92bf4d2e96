"""Plans of published models on devices, from a few settings."""

from __future__ import annotations

from typing import Any

from rollcast.config.run import parse_run_config
from rollcast.memory.device import GB, Device
from rollcast.memory.plan import MemoryPlan
from testkit.model_shapes import make_shape


def plan_of(
    model: dict[str, Any],
    /,
    *,
    gpu: float | None = 80,
    cpu: float = 24,
    ranks: int = 8,
    **groups: dict[str, Any],
) -> MemoryPlan:
    """`gpu`, `cpu`: GB; without the first the run is on a machine without GPUs.

    `groups`: of the run file.
    """
    settings = {"run": "planned", **groups, "model": {"path": "m", **groups.get("model", {})}}
    device = Device("cpu", round(cpu * GB)) if gpu is None else Device("gpu", round(gpu * GB))
    return MemoryPlan(make_shape(model), parse_run_config(settings, source="plan"), device, ranks)

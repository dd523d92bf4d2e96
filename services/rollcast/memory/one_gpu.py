"""One GPU that the trainer's only rank and the generators share: the engines divide the rest that
the trainer leaves.

    GPU = trainer at its fullest + its context                                   counted (`trainer`)
        + for each generator: vLLM's share, a staged version, context, graphs    the share: the rest
        + the margin

vLLM alone would take 0.9 of the GPU, and would measure its KV cache while the trainer's memory
comes and goes. So both numbers are counted here and given to it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from rollcast.config.services import DEFAULT_GPU_SHARE
from rollcast.memory.plan import MemoryPlan

CONTEXT_BYTES = 1 << 30
"""Margin of each process for CUDA's context, loaded kernels and the work spaces of libraries. Not a
count."""
GRAPH_BYTES = 1 << 30
"""Margin of each engine for its CUDA graphs, which are not in vLLM's share. Not a count."""


def shared(plan: MemoryPlan) -> MemoryPlan:
    """The plan of the same run on one GPU for all its processes, with the settings that make them
    fit, if any do.
    """
    plan = replace(plan, shares_gpu=True)
    if plan.config.weights.staging == "auto":
        # The choice on the device would look at memory that the trainer takes later.
        plan = plan.with_settings(weights={"stage": "host"})
    if plan.config.generator.gpu_memory_utilization == DEFAULT_GPU_SHARE:
        # Shares are rounded down to thousandths.
        share_step = 1_000
        share = math.floor(share_step * rest_of_each(plan) / plan.device.num_bytes) / share_step
        if share <= 0:
            return plan
        plan = plan.with_settings(generator={"gpu_memory_utilization": share})
    if plan.config.generator.gpu_kv_cache_gib is None:
        # KV caches are rounded down to tenths of a GiB.
        kv_step = 10
        gib = math.floor(kv_step * plan.worker.kv_bytes / (1 << 30)) / kv_step
        if gib > 0:
            plan = plan.with_settings(generator={"gpu_kv_cache_gib": gib})
    return plan


def rest_of_each(plan: MemoryPlan) -> int:
    """Bytes that an engine may take; negative if the trainer leaves less than nothing."""
    return (plan.device.num_bytes - trainer(plan) - unplanned_bytes(plan)) // plan.generators


def least_of_each(plan: MemoryPlan) -> int:
    """Bytes without which an engine cannot work: weights, its largest batch, the longest rollouts
    of one prompt.
    """
    worker = plan.worker
    group = plan.config.recipe.most_rollouts_per_prompt
    return (
        worker.weights
        + worker.activations
        + group * worker.kv_of_slot(plan.config.model.max_length)
    )


def unplanned_bytes(plan: MemoryPlan) -> int:
    """Bytes that neither the trainer's tensors nor vLLM's shares are: contexts, graphs, staged
    pieces, the margin.
    """
    of_engine = plan.worker.staging + CONTEXT_BYTES + GRAPH_BYTES
    # The margin: a part of the GPU that is not planned for. On the one card measured, the trainer's
    # peak was within 5 % of the plan, and the allocators of several processes do not share their
    # reserves.
    margin = math.ceil(0.05 * plan.device.num_bytes)
    return CONTEXT_BYTES + plan.generators * of_engine + margin


def trainer(plan: MemoryPlan) -> int:
    """Bytes of the trainer's tensors at its fullest."""
    return plan.trainer[0].fullest.total


def fits(plan: MemoryPlan) -> bool:
    """Whether both fit."""
    engines = plan.generators * plan.worker.taken_by_engine
    needed_bytes = trainer(plan) + engines + unplanned_bytes(plan)
    return (
        needed_bytes <= plan.device.num_bytes
        and plan.worker.slots_that_fit >= plan.config.recipe.most_rollouts_per_prompt
    )

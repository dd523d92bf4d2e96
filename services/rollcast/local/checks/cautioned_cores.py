"""Whether the cores suffice: without a GPU every generator and every trainer rank takes one."""

import os
from collections.abc import Iterable

from rollcast.local.checks.check import Finding, Start, warnings
from rollcast.local.devices import num_devices

SETTINGS = ()


def check(start: Start) -> Iterable[Finding]:
    local = start.config.local
    generator = start.config.generator
    generators = local.generators
    ranks = local.trainer_ranks
    needed = num_devices(local, generator)
    cores = len(os.sched_getaffinity(0))
    if needed <= max(cores, 2) or start.gpus:
        return ()
    max_generators = max(1, (cores - ranks) // generator.tensor_parallel)
    remedy = (
        f"local.generators = {max_generators}"
        if max_generators < generators
        else "local.trainer_ranks = 1"
    )
    return warnings(
        [
            f"local.generators = {generators}, local.trainer_ranks = {ranks}: they keep {needed} "
            f"cores busy, and this process may run on {cores}, so they slow one another down; set "
            f"{remedy}"
        ]
    )

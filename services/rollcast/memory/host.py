"""Host memory of a run on GPUs: how much each process needs, and how much a machine or a pod must
have.

Without a GPU the host is the device, and all of it is counted there. The page cache is not counted:
it gives way.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from rollcast.config.errors import UserError
from rollcast.memory.device import gigabytes
from rollcast.memory.plan import MemoryPlan
from rollcast.memory.trainer import Parts, largest_in_words, together

EXPORT_FILE_BYTES = 5_000_000_000
"""Size of one file of an export, which rank 0 gathers before it writes it."""
PROGRAM_BYTES = 2 << 30
"""Margin of each process for libraries, CUDA's context and temporary buffers. Not a count."""
UNITS = {"": 1, **{f"{letter}i": 1 << 10 * power for power, letter in enumerate("KMGT", 1)}}
UNITS |= {letter: 10 ** (3 * power) for power, letter in enumerate("kMGT", 1)}
QUANTITY = re.compile(rf"(\d+(?:\.\d+)?(?:e\+?\d\d?)?)({'|'.join(UNITS)})")


@dataclass(frozen=True)
class HostLimits:
    """Bytes of available host memory; None = not known."""

    machine_ranks: int | None = None
    """Trainer ranks on one machine. None = all, at most 8."""
    trainer: int | None = None
    """One machine or pod of the trainer."""
    generator: int | None = None
    """One generator's pod."""
    machine: int | None = None
    """Free memory of this machine, if all processes of the run are on it."""


NO_LIMITS = HostLimits()


def quantity(text: str, option: str) -> int:
    """Bytes of a Kubernetes quantity. Raises UserError."""
    quantity_match = QUANTITY.fullmatch(text)
    if quantity_match is None:
        raise UserError(
            f"{option} = {text!r} is not a size; give it as Kubernetes writes it, such as 512Gi"
        )
    return int(float(quantity_match[1]) * UNITS[quantity_match[2]])


def rank_on_host(plan: MemoryPlan, rank: int) -> Parts:
    """One rank at its fullest: during an export, with a checkpoint's copy and two versions in
    locked pages.
    """
    memory = plan.trainer[rank]
    largest = max(memory.largest_weight, memory.start_on_host)
    num_versions = plan.config.weights.versions_of_trainer
    parts = {
        "programs": PROGRAM_BYTES,
        "staging": num_versions * memory.version_rows if rank < memory.ranks else 0,
        "checkpoint": memory.checkpoint + memory.unpadded,
        "gathered": largest,
    }
    if rank == 0:
        parts["export"] = min(EXPORT_FILE_BYTES, memory.version)
    return parts


def generator_on_host(plan: MemoryPlan) -> Parts:
    """All processes of a generator: its front end, the engine, and its workers
    if it has several.
    """
    worker = plan.worker
    processes = 2 if worker.workers == 1 else 2 + worker.workers
    return {
        "programs": processes * PROGRAM_BYTES,
        "staging": plan.trainer[0].version if worker.place == "host" else 0,
    }


def trainer_machine(plan: MemoryPlan, limits: HostLimits) -> Parts:
    """The trainer's first machine, which has rank 0."""
    ranks = range(machine_ranks(plan, limits))
    return reduce(together, (rank_on_host(plan, rank) for rank in ranks))


def machine_ranks(plan: MemoryPlan, limits: HostLimits) -> int:
    # 8: GPUs of a machine if no option gives them.
    return min(plan.ranks, limits.machine_ranks or 8)


def host_refusals(plan: MemoryPlan, limits: HostLimits) -> Iterator[str]:
    """One sentence for each role whose host memory does not suffice; none
    for a run without GPUs.
    """
    if plan.device.kind == "cpu":
        return
    trainer = trainer_machine(plan, limits)
    generator = generator_on_host(plan)
    ranks = machine_ranks(plan, limits)
    if limits.trainer is not None and (need := sum(trainer.values())) > limits.trainer:
        yield (
            "host memory of a trainer machine (trainer.resources.limits.memory) = "
            f"{gigabytes(limits.trainer)}: its {ranks} ranks need {gigabytes(need)} "
            f"({largest_in_words(trainer)}); give it that, or train on more machines"
        )
    if limits.generator is not None and (need := sum(generator.values())) > limits.generator:
        alternative = (
            " or set weights.stage to device, where the GPU has room"
            if plan.worker.place == "host"
            else ""
        )
        yield (
            "host memory of a generator (generator.resources.limits.memory) = "
            f"{gigabytes(limits.generator)}: it needs "
            f"{gigabytes(need)} ({largest_in_words(generator)}); give it that{alternative}"
        )
    if limits.machine is not None:
        need = sum(trainer.values()) + plan.generators * sum(generator.values())
        if need > limits.machine:
            yield (
                f"host memory: {gigabytes(limits.machine)} are free here, and trainer ranks "
                f"({ranks}) and generators ({plan.generators}) need {gigabytes(need)}; free it, or "
                "lower local.trainer_ranks or local.generators"
            )

"""Options by which a command knows the devices of a run that it plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rollcast.memory.host import HostLimits

MAX_GB = 10_000.0
Gpu = Annotated[float | None, typer.Option(min=1, max=MAX_GB, help="memory of each GPU, in GB (10^9 bytes)")]
TrainerRanks = Annotated[
    int | None, typer.Option(min=1, max=4_096, help="trainer ranks, one for each GPU; default local.trainer_ranks")
]
ModelConfig = Annotated[
    Path | None, typer.Option(help="the model's config.json, where model.path is not on this machine")
]
MachineRanks = Annotated[
    int | None, typer.Option(min=1, max=64, help="trainer ranks on one machine; default all of them, at most 8")
]
TrainerMemory = Annotated[
    str | None, typer.Option(help="host memory of a trainer's machine or pod, as Kubernetes writes it: 512Gi")
]
GeneratorMemory = Annotated[str | None, typer.Option(help="host memory of a generator's pod, likewise")]


def host_limits(machine_ranks: int | None, trainer: str | None, generator: str | None) -> HostLimits:
    """Raises UserError: the text is not a size."""
    from rollcast.memory.host import HostLimits, quantity

    return HostLimits(
        machine_ranks,
        None if trainer is None else quantity(trainer, "--trainer-memory"),
        None if generator is None else quantity(generator, "--generator-memory"),
    )

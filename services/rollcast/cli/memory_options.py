"""Options by which a command knows the devices of a run that it plans."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollcast.cli.curve_options import with_group

if TYPE_CHECKING:
    from rollcast.memory.host import HostLimits

MAX_GB = 10_000.0
Gpu = Annotated[
    float | None, typer.Option(min=1, max=MAX_GB, help="memory of each GPU, in GB (10^9 bytes)")
]


@dataclass(frozen=True)
class Machines:
    """The machines of a run, as the options give them."""

    trainer_ranks: Annotated[
        int | None,
        typer.Option(
            min=1, max=4_096, help="trainer ranks, one for each GPU; default local.trainer_ranks"
        ),
    ] = None
    model_config: Annotated[
        Path | None,
        typer.Option(help="the model's config.json, if model.path is not on this machine"),
    ] = None
    machine_ranks: Annotated[
        int | None,
        typer.Option(
            min=1, max=64, help="trainer ranks on one machine; default all of them, at most 8"
        ),
    ] = None
    trainer_memory: Annotated[
        str | None,
        typer.Option(
            help="host memory of a trainer's machine or pod, as Kubernetes writes it: 512Gi"
        ),
    ] = None
    generator_memory: Annotated[
        str | None, typer.Option(help="host memory of a generator's pod, likewise")
    ] = None

    def host_limits(self) -> HostLimits:
        """Raises UserError: the text is not a size."""
        from rollcast.memory.host import HostLimits, quantity

        trainer = self.trainer_memory
        generator = self.generator_memory
        return HostLimits(
            self.machine_ranks,
            None if trainer is None else quantity(trainer, "--trainer-memory"),
            None if generator is None else quantity(generator, "--generator-memory"),
        )


with_machines = functools.partial(with_group, "machines", Machines)

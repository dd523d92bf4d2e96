"""Whether this process may run on the cores that the run file names."""

import os

from rollcast.config.errors import UserError
from rollcast.local.checks.check import Start

SETTINGS = ("generator.cpu", "trainer.cpu", "local")


def check(start: Start) -> None:
    """Each process takes one, from the named core on."""
    generator = start.config.generator
    trainer = start.config.trainer
    local = start.config.local
    cores = os.sched_getaffinity(0)
    for first, setting, count, counted in (
        (generator.cpu, "generator.cpu", local.generators, "local.generators"),
        (trainer.cpu, "trainer.cpu", local.trainer_ranks, "local.trainer_ranks"),
    ):
        missing_cores = [] if first is None else sorted(set(range(first, first + count)) - cores)
        if missing_cores:
            raise UserError(
                f"{setting} = {first}: {counted} = {count} take a core each from there on, "
                f"and core {missing_cores[0]} is not among {sorted(cores)}; lower one of the two"
            )

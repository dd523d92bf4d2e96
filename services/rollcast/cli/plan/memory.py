"""`rollcast plan memory`: what every process of a run holds, counted before a device is taken."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import curve_options, memory_options, report
from rollcast.cli.expected_options import Expected
from rollcast.cli.output import echo_json, say
from rollcast.config.errors import UserError
from rollcast.memory.device import GB, Device, this_machine

if TYPE_CHECKING:
    from rollcast.memory.host import HostLimits
    from rollcast.memory.plan import MemoryPlan


@memory_options.with_machines
def memory(
    config: Annotated[Path, typer.Option(help="run file")],
    *,
    gpu: memory_options.Gpu = None,
    cpu: Annotated[
        float | None,
        typer.Option(
            min=1, max=memory_options.MAX_GB, help="no GPUs: memory of the machine, in GB"
        ),
    ] = None,
    machines: memory_options.Machines,
    as_json: curve_options.AsJson = False,
) -> None:
    """Count the memory of every rank and every generator of a run, and name the setting to change
    if it does not fit.

    Without --gpu and --cpu the memory is this machine's: the smallest of its GPUs, else its main
    memory. Ends with 1 if the run does not fit. The model's config.json is fetched if model.path is
    a name on the hub that is not here. On GPUs the host memory of a trainer's machine and of a
    generator is shown too, and compared with the available memory.

    \b
    rollcast plan memory --config run.yaml --gpu 80
    rollcast plan memory --config run.yaml --gpu 141 --trainer-ranks 16 --json
    rollcast plan memory --config run.yaml --gpu 80 --trainer-memory 512Gi --generator-memory 128Gi
    rollcast plan memory --config run.yaml --cpu 24
    """
    from rollcast.config.run import load_run_config
    from rollcast.local import shared_gpu
    from rollcast.memory.check import plan_run
    from rollcast.memory.host import host_refusals
    from rollcast.memory.verdict import check_shard_ranks, refusals

    device = _device(gpu, cpu)
    ranks = machines.trainer_ranks
    plan = plan_run(
        load_run_config(config),
        device,
        ranks=ranks,
        model_config=machines.model_config,
        ask_hub=True,
    )
    assert plan is not None, "the hub was asked"
    host = machines.host_limits()
    refused = [*check_shard_ranks(plan), *refusals(plan), *host_refusals(plan, host)]
    cautions = list(Expected().cautions(plan))
    if as_json:
        answer = {**plan.as_json(), "host": _host_json(plan, host)}
        echo_json({**answer, "fits": not refused, "refusals": refused, "cautions": cautions})
    else:
        _show(plan)
        _show_host(plan, host)
        if plan.shares_gpu and not refused:
            say(shared_gpu.in_words(plan.config.weights, plan.config.generator))
        for sentence in refused:
            say(f"does not fit: {sentence}")
        report.say_cautions(cautions)
    if refused:
        # Scripts see by the exit code that the plan does not fit
        raise typer.Exit(1)


def _device(gpu: float | None, cpu: float | None) -> Device:
    if gpu is not None and cpu is not None:
        raise UserError(
            f"--gpu {gpu:g}, --cpu {cpu:g}: a run is on GPUs or on none; give one of the two"
        )
    if gpu is not None:
        return Device("gpu", round(gpu * GB))
    return this_machine() if cpu is None else Device("cpu", round(cpu * GB))


def _show(plan: MemoryPlan) -> None:
    """One column for each kind of process."""
    columns = _columns(plan)
    names = list(dict.fromkeys(name for _, parts, _ in columns for name in parts))
    rows = [(name, *(_gb(parts.get(name)) for _, parts, _ in columns)) for name in names]
    rows.append(("together", *(_gb(total) for _, _, total in columns)))
    if plan.device.kind == "gpu":
        rows.append(("free", *(_gb(plan.device.num_bytes - total) for _, _, total in columns)))
    report.show_table(("GB", *(title for title, _, _ in columns)), rows)
    worker = plan.worker
    length = plan.config.model.max_length
    first = max(plan.trainer, key=lambda rank: rank.fullest.total)
    start = max(rank.start_on_host for rank in plan.trainer)
    typer.echo(
        f"{first.model.num_parameters / GB:.2f} B parameters; a version is {_gb(first.version)} "
        f"GB; {plan.device.in_words}."
    )
    typer.echo(
        f"A trainer rank is fullest at {first.fullest.name}, with {first.load.tokens:,} tokens; "
        f"while it starts, each reads at most {_gb(start)} GB into host memory."
    )
    typer.echo(
        f"A rollout of {length:,} tokens holds {_gb(worker.kv_of_slot(length))} GB of KV cache; "
        f"{worker.slots_that_fit} fit; each of {worker.slots} slots gets "
        f"{worker.tokens_per_slot:,} tokens."
    )
    if plan.device.kind == "cpu":
        typer.echo(
            f"Together: {_gb(plan.on_one_machine)} GB of {_gb(plan.device.num_bytes)}, "
            f"{plan.ranks} trainer ranks and {plan.generators} generators."
        )


def _show_host(plan: MemoryPlan, limits: HostLimits) -> None:
    """Print host memory; without GPUs the table above is about host memory already."""
    from rollcast.memory.host import generator_on_host, machine_ranks, trainer_machine

    if plan.device.kind == "cpu":
        return
    trainer = trainer_machine(plan, limits)
    generator = generator_on_host(plan)
    typer.echo(
        f"Host memory: the first trainer machine's {machine_ranks(plan, limits)} ranks "
        f"{_gb(sum(trainer.values()))} GB ({_in_words(trainer)}); a generator "
        f"{_gb(sum(generator.values()))} GB ({_in_words(generator)})."
    )


def _host_json(plan: MemoryPlan, limits: HostLimits) -> dict[str, Any] | None:
    """Host memory in bytes for JSON; None without GPUs."""
    from rollcast.memory.host import generator_on_host, machine_ranks, rank_on_host, trainer_machine

    if plan.device.kind == "cpu":
        return None
    return {
        "machine_ranks": machine_ranks(plan, limits),
        "trainer_machine": trainer_machine(plan, limits),
        "ranks": [rank_on_host(plan, rank) for rank in range(plan.ranks)],
        "generator": generator_on_host(plan),
    }


def _in_words(parts: dict[str, int]) -> str:
    return ", ".join(f"{name} {_gb(size)}" for name, size in parts.items() if size)


def _columns(plan: MemoryPlan) -> list[tuple[str, dict[str, int], int]]:
    """Title, parts and sum; ranks that hold the same are one column."""
    columns: list[tuple[str, dict[str, int], int]] = []
    for parts, alike in groupby(plan.trainer, key=lambda rank: rank.fullest.parts):
        ranks = list(alike)
        numbers = f"{ranks[0].rank}" if len(ranks) == 1 else f"{ranks[0].rank}-{ranks[-1].rank}"
        columns.append((f"trainer {numbers}", parts, ranks[0].fullest.total))
    title = "generator" if plan.worker.workers == 1 else f"generator, each of {plan.worker.workers}"
    return [*columns, (title, plan.worker_parts, plan.worker_total)]


def _gb(num_bytes: int | None) -> str:
    if num_bytes is None:
        return report.NO_NUMBER
    return f"{num_bytes / GB:.2f}"

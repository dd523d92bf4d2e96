"""`rollcast config check FILE`, `rollcast config schema`"""

import json
from pathlib import Path
from typing import Annotated

import typer

from rollcast.cli import memory_options
from rollcast.cli.output import say
from rollcast.cli.report import say_cautions

app = typer.Typer(
    help="Check run files, or print every setting they may have.", no_args_is_help=True, rich_markup_mode=None
)


@app.command()
@memory_options.with_machines
def check(
    file: Annotated[Path, typer.Argument(help="run file, YAML or JSON")],
    *,
    elsewhere: Annotated[
        bool, typer.Option("--elsewhere", help="the run will be on another machine: look at the settings alone")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="the run is to be continued: say what differs from its last start")
    ] = False,
    gpu: memory_options.Gpu = None,
    machines: memory_options.Machines,
) -> None:
    """Check a run file; report every wrong setting with its value and the remedy.

    Model, data, verifiers, disk, cores and the run's folder are looked at too, as `rollcast up` would; nothing is
    started. What cannot fit the GPUs is refused if their memory is known: with --gpu, else as this machine's driver
    says.

    \b
    rollcast config check my-run.yaml
    rollcast config check my-run.yaml --resume
    rollcast config check my-cluster-run.yaml --elsewhere
    rollcast config check my-cluster-run.yaml --elsewhere --gpu 80 --trainer-ranks 16 --model-config config.json
    """
    from rollcast.config.errors import UserError
    from rollcast.config.run import load_run_config
    from rollcast.local import preflight, shared_gpu
    from rollcast.local.devices import usable_gpus, with_gpus
    from rollcast.local.resumed import check_run_folder
    from rollcast.memory.check import check_memory
    from rollcast.memory.device import GB, Device, smallest_gpu
    from rollcast.memory.verdict import warnings

    filled_in = ""
    changes = list[str]()
    cautions = list[str]()
    if elsewhere:
        if resume:
            raise UserError("--resume: compares with the run's folder, which is on the other machine; leave it out")
        config = load_run_config(file, to_start=True)
        left = ["model, data, verifiers, certificates, disk and devices", "the run's folder"]
    else:
        config, found = preflight.load_to_start(file)
        config = config.model_copy(update={"local": with_gpus(config.local, usable_gpus())})
        cautions = preflight.check_files(config)
        changes = check_run_folder(config, resume=resume)
        left = preflight.not_checked(config.redis, config.model.path)
        filled_in = preflight.in_words(found)
    device: Device | None = None
    if gpu is not None:
        device = Device("gpu", round(gpu * GB))
    elif not elsewhere:
        device = smallest_gpu()
    plan = None
    if device is not None:
        host = machines.host_limits()
        ranks = machines.trainer_ranks
        plan = check_memory(config, device, ranks=ranks, model_config=machines.model_config, host=host)
    if plan is None:
        left.append("whether the model fits the memory")
    typer.echo(f"{file}: valid (run {config.run!r}, results in {config.run_folder})")
    say_cautions([*cautions, *(warnings(plan) if plan is not None else ())])
    if plan is not None and plan.shares_gpu:
        say(shared_gpu.in_words(plan.config.weights, plan.config.generator))
    if filled_in:
        say(f"filled in: {filled_in}")
    for line in changes:
        say(line)
    say(f"not checked: {'; '.join(left)}")


@app.command()
def schema() -> None:
    """Print the JSON schema of run files, with every setting's meaning and default.

    \b
    rollcast config schema > run.schema.json
    """
    from rollcast.config.run import RunConfig

    typer.echo(json.dumps(RunConfig.model_json_schema(), indent=1))

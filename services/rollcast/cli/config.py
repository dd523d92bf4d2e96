"""`rollcast config check FILE`, `rollcast config schema`"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import curve_options, expected_options, memory_options
from rollcast.cli.output import echo_json, say
from rollcast.cli.report import print_answer, say_cautions

if TYPE_CHECKING:
    from rollcast.memory.device import Device

app = typer.Typer(
    help="Check run files, or print every setting they may have.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
@memory_options.with_machines
@expected_options.with_expected
def check(
    file: Annotated[Path, typer.Argument(help="run file, YAML or JSON")],
    *,
    elsewhere: Annotated[
        bool,
        typer.Option(
            "--elsewhere", help="the run will be on another machine: look at the settings alone"
        ),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="the run is to be continued: say what differs from its last start"
        ),
    ] = False,
    gpu: memory_options.Gpu = None,
    machines: memory_options.Machines,
    expected: expected_options.Expected,
    as_json: curve_options.AsJson = False,
) -> None:
    """Check a run file; report every wrong setting with its value and the remedy.

    Model, data, verifiers, disk, cores and the run's folder are looked at too, as `rollcast up`
    would. Verifiers grade some rows, and one environment of each is reset; `rollcast try` plays
    whole episodes.

    What cannot fit the GPUs is refused if their memory is known: with --gpu, else as this machine's
    driver says. Of a run on GPUs the idle share of both sides is predicted, with the assumptions
    behind it.

    \b
    rollcast config check my-run.yaml
    rollcast config check my-run.yaml --resume
    rollcast config check my-cluster-run.yaml --elsewhere
    rollcast config check my-cluster-run.yaml --elsewhere --gpu 80 --trainer-ranks 16 --model-config config.json
    rollcast config check my-cluster-run.yaml --elsewhere --gpu 80 --trainer-ranks 16 --generators 64 --filtered 0.4
    """  # noqa: E501
    from rollcast.config.errors import UserError
    from rollcast.config.run import load_run_config
    from rollcast.local import preflight, shared_gpu
    from rollcast.local.checks.check import Reach, Start
    from rollcast.local.checks.checklist import check_start
    from rollcast.local.checks.unchecked import not_checked
    from rollcast.memory.model_file import read_file
    from rollcast.memory.proven_models import is_proven
    from rollcast.memory.text_model import read_model_config

    if elsewhere and resume:
        raise UserError(
            "--resume: compares with the run's folder, which is on the other machine; leave it out"
        )
    if elsewhere:
        config = load_run_config(file, to_start=True)
        filled_in = ""
    else:
        config, filled_settings = preflight.load_to_start(file)
        filled_in = preflight.in_words(filled_settings)
    start = Start(
        config,
        Reach.SETTINGS if elsewhere else Reach.MACHINE,
        resume=resume,
        device=_find_device(gpu, elsewhere=elsewhere),
        ranks=machines.trainer_ranks,
        model_config=machines.model_config,
        host=machines.host_limits(),
        expected=expected.cautions,
    )
    warnings = check_start(start)
    plan = start.plan
    shared = ""
    if plan is not None and plan.shares_gpu:
        shared = shared_gpu.in_words(plan.config.weights, plan.config.generator)
    model = (
        read_model_config(config.model)
        if machines.model_config is None
        else read_file(machines.model_config, "--model-config")
    )
    answer = {
        "summary": f"{file}: valid (run {config.run!r}, results in {config.run_folder})",
        "model": is_proven(model),
        "cautions": warnings,
        **expected_options.prediction_report(None if plan is None else expected.balance(plan)),
        "shared_gpu": shared,
        "filled_in": filled_in,
        "changes": start.changes,
        "not_checked": not_checked(start),
    }
    print_answer(answer, _show, as_json=as_json)


def _find_device(gpu: float | None, *, elsewhere: bool) -> "Device | None":
    """The device that must hold the run: with `gpu` GB, else this machine's smallest GPU; None if
    it is not known.
    """
    from rollcast.memory.device import GB, Device, smallest_gpu

    if gpu is not None:
        return Device("gpu", round(gpu * GB))
    return None if elsewhere else smallest_gpu()


def _show(answer: dict[str, Any]) -> None:
    typer.echo(answer["summary"])
    if answer["model"]:
        say(f"model: {answer['model']}")
    say_cautions(answer["cautions"])
    expected_options.show(answer)
    if answer["shared_gpu"]:
        say(answer["shared_gpu"])
    if answer["filled_in"]:
        say(f"filled in: {answer['filled_in']}")
    for line in answer["changes"]:
        say(line)
    say(f"not checked: {'; '.join(answer['not_checked'])}")


@app.command()
def schema() -> None:
    """Print the JSON schema of run files, with every setting's meaning and default.

    \b
    rollcast config schema > run.schema.json
    """
    from rollcast.config.run import RunConfig

    echo_json(RunConfig.model_json_schema())

"""`rollcast audit RUN`: what the newest rules change of a run that is over."""

from pathlib import Path
from typing import Annotated

import typer

from rollcast.cli import curve_options as options
from rollcast.cli.output import echo_json


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run, such as runs/demo")],
    as_json: options.AsJson = False,
) -> None:
    """Count what the rules of this release change of a run: trained prompts that are evaluated in
    another spelling, and stored rewards that are others when they are graded again.

    Reads the run's data, its newest checkpoint and samples.jsonl; changes nothing.

    \b
    rollcast audit runs/demo
    """
    from rollcast.cli.show import load_run_settings
    from rollcast.local.audit import audit as audited
    from rollcast.runfolder.files import checkpoint_place

    config = load_run_settings(run)
    checkpoint_location = checkpoint_place(config.run_folder, config.trainer.checkpoints)
    report = audited(
        config.tasks,
        config.recipe,
        config.model.path,
        config.run_folder,
        checkpoint_location,
        lambda line: typer.echo(line, err=True),
    )
    if as_json:
        echo_json(report.as_json())
        return
    for line in report.in_words():
        typer.echo(line)

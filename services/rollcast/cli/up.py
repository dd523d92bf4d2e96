"""`rollcast up`: one run on this machine."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollcast.cli.output import say
from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.config.run import RunConfig

EXIT_GIVEN_UP = 1
EXIT_INTERRUPTED = 130


def up(
    config: Annotated[Path, typer.Option(help="run file")],
    resume: Annotated[
        bool, typer.Option("--resume", help="continue from the newest checkpoint")
    ] = False,
    step: Annotated[
        int | None,
        typer.Option(min=0, help="with --resume: continue from the kept checkpoint of this step"),
    ] = None,
    generators: Annotated[
        int | None, typer.Option(min=0, max=64, help="generators; default local.generators")
    ] = None,
    monitor: Annotated[
        bool,
        typer.Option("--monitor", help="with a Prometheus, and all that a Grafana of yours needs"),
    ] = False,
) -> None:
    """Run Redis, generators, trainer and forecaster on this machine until the budget ends; Ctrl-C
    stops cleanly.

    \b
    rollcast up --config my-run.yaml --generators 2
    rollcast up --config my-run.yaml --resume
    rollcast up --config my-run.yaml --resume --step 100
    rollcast up --config my-run.yaml --monitor
    """
    from rollcast.local.preflight import in_words, load_to_start

    if step is not None and not resume:
        raise UserError("--step: names a checkpoint of a run that goes on; give --resume too")
    settings, filled_settings = load_to_start(config)
    news = [f"filled in: {in_words(filled_settings)}"] if filled_settings else []
    if generators is not None:
        settings = settings.model_copy(
            update={"local": settings.local.model_copy(update={"generators": generators})}
        )
    sys.exit(run_and_conclude(settings, resume=resume, step=step, news=news, monitor=monitor))


def run_and_conclude(
    config: RunConfig,
    *,
    resume: bool,
    step: int | None = None,
    news: Sequence[str] = (),
    monitor: bool = False,
) -> int:
    """Run to the end and print how the forecast did; returns the exit code."""
    from rollcast.cli.screen.figures import advice_words
    from rollcast.cli.views import make_view
    from rollcast.local.forecast_reading import forecast_of_folder
    from rollcast.local.frozen_forecast import conclude
    from rollcast.local.status import StatusReader
    from rollcast.local.supervisor import RunState, ServiceLostError
    from rollcast.local.up import run_locally

    with make_view() as view:
        try:
            ending = run_locally(
                config, resume=resume, step=step, view=view, news=news, monitor=monitor
            )
        except ServiceLostError as error:
            typer.echo(f"error: {error}", err=True)
            return EXIT_GIVEN_UP
    if ending is RunState.STOPPED:
        typer.echo(f"stopped; continue with: {continuing(config.run_folder)}")
        return EXIT_INTERRUPTED
    status = StatusReader(config).read()
    result = conclude(config.run_folder, status)
    if result is not None:
        say(result.sentence())
    if advice := advice_words(
        replace(status, forecast=forecast_of_folder(config.run_folder, config.budget))
    ):
        say(f"advice: {advice}")
    typer.echo(f"run folder: {config.run_folder}")
    return 0


def continuing(run_folder: Path) -> str:
    """The command that goes on with a stopped run, be it of `up` or of `demo`."""
    from rollcast.runfolder.files import UP_FILE

    return shlex.join([sys.argv[0], "up", "--config", str(run_folder / UP_FILE), "--resume"])

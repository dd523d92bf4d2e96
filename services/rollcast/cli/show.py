"""`rollcast show RUN`: one look at a run of this machine, under way or over."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.cli.screen.panel import Screen
    from rollcast.config.run import RunConfig
    from rollcast.config.services import Budget
    from rollcast.local.forecast_reading import ForecastReading
    from rollcast.local.status import RunStatus

PIPE_SIZE = (100, 40)
"""Columns and lines if there is no terminal to ask."""
CONTINUE = "continue with: "


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run, such as runs/demo")],
) -> None:
    """How far a run is, its curve with the forecast, the advice, and what happened last.

    \b
    rollcast show runs/demo
    """
    from rich.console import Console

    from rollcast.cli.screen.panel import panel

    screen = look_at(run)
    size = shutil.get_terminal_size(PIPE_SIZE)
    width, height = (size.columns, size.lines) if sys.stdout.isatty() else PIPE_SIZE
    closing = [] if screen.is_running else _closing(screen.config.run_folder)
    if sys.stdout.isatty():
        closing = [part for line in closing for part in _broken(line, width)]
    picture = panel(screen, width, height - 1 - len(closing))
    Console(width=width, highlight=False, markup=False, emoji=False).print(picture)
    for line in closing:
        typer.echo(line)


def look_at(run: Path) -> Screen:
    """All that is shown of the run in this folder, as it is now. Raises UserError."""
    from rollcast.cli.screen.panel import Screen
    from rollcast.local.disk_watch import DiskWatch
    from rollcast.local.event_log import RunEvent, events_of
    from rollcast.local.status import StatusReader
    from rollcast.runfolder.folder import is_held

    config = settings_of(run)
    is_running = is_held(config.run_folder)
    reader = StatusReader(config, one_look=True, is_running=is_running)
    status = reader.read()
    if not is_running:
        status = replace(status, pace=None, generators_ready=0, tokens_per_second=None)
    if status.forecast is None:
        status = replace(status, forecast=forecast_now(config.run_folder, config.budget))
    page = reader.url("forecaster") if is_running else None
    state = _state(config.run_folder, status, is_running=is_running)
    events = events_of(config.run_folder)
    if is_running:  # a full disk takes no line in the log
        events += [RunEvent(time.strftime("%H:%M:%S"), line, True) for line in DiskWatch(config.run_folder).lines()]
    return Screen(config, status, events, state, page, time.time(), is_running=is_running)


def settings_of(folder: Path) -> RunConfig:
    """The settings that the run was started with last, wherever its folder lies now. Raises UserError."""
    from rollcast.config.run import load_run_config
    from rollcast.runfolder.files import RUN_FILE
    from rollcast.runfolder.folder import check_format

    file = folder / RUN_FILE
    if not file.is_file():
        raise UserError(f"RUN = {folder}: holds no {RUN_FILE}; give the folder of a run of `rollcast up`, as runs/NAME")
    check_format(folder)
    whole = folder.absolute()
    return load_run_config(file).model_copy(update={"folder": whole.parent, "run": whole.name})


def forecast_now(run_folder: Path, budget: Budget) -> ForecastReading | None:
    """The forecast of the folder's evaluations, as `fit` makes it; None before the first step is evaluated."""
    from rollcast.curves.run_forecast import RunBudget, forecast_history
    from rollcast.curves.sources.run_folder import history_of_folder
    from rollcast.local.forecast_reading import forecast_here

    try:
        history, _, _ = history_of_folder(run_folder, None)
    except UserError:
        return None
    end = RunBudget(budget.steps, budget.device_hours).end(history.evaluations)
    return forecast_here(forecast_history(history), end)


def _state(run_folder: Path, status: RunStatus, *, is_running: bool) -> str:
    from rollcast.cli.screen.figures import duration
    from rollcast.local.progress import StartUp
    from rollcast.runfolder.files import RESULT

    if is_running:
        began = StartUp(run_folder).began_at
        lasts = "" if began is None else f" for {duration(time.time() - began)}"
        return ("running" if status.is_started else "starting") + lasts
    return "finished" if (run_folder / RESULT).exists() else "stopped"


def _broken(line: str, width: int) -> list[str]:
    """Between words; a command stays whole, to be copied."""
    if line.startswith(CONTINUE):
        return [line]
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)


def _closing(run_folder: Path) -> list[str]:
    """How it ended, or what continues it."""
    from rollcast.cli.up import continuing
    from rollcast.runfolder.files import RESULT
    from rollcast.runfolder.outcomes import RunResult
    from rollcast.runfolder.records import read_record

    try:
        return [read_record(run_folder / RESULT, RunResult).sentence()]
    except FileNotFoundError:
        return [f"{CONTINUE}{continuing(run_folder)}"]
    except (OSError, ValueError) as error:
        return [f"{run_folder / RESULT}: cannot be read ({error})"]

"""`rollcast show RUN`: one look at a run of this machine, under way or over."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.cli.screen.panel import Screen
    from rollcast.config.run import RunConfig
    from rollcast.local.status import RunStatus

PIPE_SIZE = (100, 40)
"""Columns and lines if there is no terminal to ask."""
CONTINUE = "continue with: "


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run, such as runs/demo")],
    page: Annotated[
        bool, typer.Option("--page", help="serve the live page of a run that is over, until Ctrl-C")
    ] = False,
    best: Annotated[
        bool, typer.Option("--best", help="the best of the kept checkpoints, with its chance")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON; with --best")] = False,
) -> None:
    """How far a run is, its curve with the forecast, the advice, and what happened last.

    \b
    rollcast show runs/demo
    rollcast show runs/demo --page
    rollcast show runs/demo --best
    """
    if as_json and not best:
        raise UserError("--json: prints the best checkpoint; give --best too")
    if best:
        from rollcast.cli.best_checkpoint import print_best

        print_best(run, as_json=as_json)
        return
    from rich.console import Console

    from rollcast.cli.screen.panel import panel

    screen = look_at(run)
    if page:
        serve_page(screen)
        return
    size = shutil.get_terminal_size(PIPE_SIZE)
    width, height = (size.columns, size.lines) if sys.stdout.isatty() else PIPE_SIZE
    closing = [] if screen.is_running else _closing(screen.config.run_folder)
    if sys.stdout.isatty():
        closing = [screen_line for line in closing for screen_line in _broken(line, width)]
    picture = panel(screen, width, height - 1 - len(closing))
    Console(width=width, highlight=False, markup=False, emoji=False).print(picture)
    for line in closing:
        typer.echo(line)


def look_at(run: Path) -> Screen:
    """All that is shown of the run in this folder, as it is now. Raises UserError."""
    from rollcast.cli.screen.panel import Screen
    from rollcast.local.disk_watch import DiskWatch
    from rollcast.local.forecast_reading import forecast_of_folder
    from rollcast.local.status import StatusReader
    from rollcast.runfolder.event_log import RunEvent, read_events
    from rollcast.runfolder.folder import is_held

    config = load_run_settings(run)
    is_running = is_held(config.run_folder)
    reader = StatusReader(config, one_look=True, is_running=is_running)
    status = reader.read()
    if not is_running:
        status = replace(status, pace=None, generators_ready=0, tokens_per_second=None)
    if (
        status.forecast is None or status.forecast.verdict == "broken"
    ):  # the page's metrics know no checkpoint
        status = replace(status, forecast=forecast_of_folder(config.run_folder, config.budget))
    page = reader.url("forecaster") if is_running else None
    state = _state(config.run_folder, status, is_running=is_running)
    events = read_events(config.run_folder)
    if is_running:  # a full disk takes no line in the log
        events += [
            RunEvent(time.time(), line, True) for line in DiskWatch(config.run_folder).lines()
        ]
    return Screen(config, status, events, state, page, time.time(), is_running=is_running)


def serve_page(screen: Screen) -> None:
    """Until Ctrl-C; a run that goes on serves its page itself. Raises UserError."""
    from rollcast.local.run_page import POLL_SECONDS, served_page

    if screen.is_running:
        typer.echo(f"the run goes on and serves its page itself: {screen.page or 'not yet'}")
        return
    with served_page(screen.config.run_folder) as (address, service):
        typer.echo(f"page of the run, which is over: {address}/ (Ctrl-C ends it)")
        with suppress(KeyboardInterrupt):
            while service.poll() is None:
                time.sleep(POLL_SECONDS)
            raise UserError(f"the page is not served any more: {service.last_words()}")


def load_run_settings(folder: Path) -> RunConfig:
    """The settings that the run was started with last, wherever its folder lies now.

    Raises UserError.
    """
    from rollcast.config.run import load_run_config
    from rollcast.runfolder.files import RUN_FILE
    from rollcast.runfolder.folder import check_format

    file = folder / RUN_FILE
    if not file.is_file():
        raise UserError(
            f"RUN = {folder}: holds no {RUN_FILE}; give the folder of a run of `rollcast up`, as "
            "runs/NAME"
        )
    check_format(folder)
    absolute_folder = folder.absolute()
    return load_run_config(file, dropped=[]).model_copy(
        update={"folder": absolute_folder.parent, "run": absolute_folder.name}
    )


def _state(run_folder: Path, status: RunStatus, *, is_running: bool) -> str:
    from rollcast.cli.screen.figures import duration
    from rollcast.curves.sources.run_terms import early_end
    from rollcast.local.progress import StartUp
    from rollcast.runfolder.files import RESULT

    if is_running:
        began = StartUp(run_folder).began_at
        lasts = "" if began is None else f" for {duration(time.time() - began)}"
        return ("running" if status.is_started else "starting") + lasts
    if not (run_folder / RESULT).exists():
        return "stopped"
    if early_end(run_folder) is not None:
        return "finished, ended by `stop_when`"
    return "finished, its budget is spent" if (status.budget_share or 0.0) >= 1 else "finished"


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

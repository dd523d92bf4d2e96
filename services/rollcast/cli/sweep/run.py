"""`rollcast sweep run`: the arms of a sweep file take turns on this machine."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import report

if TYPE_CHECKING:
    from collections.abc import Callable

    from rollcast.cli.sweep.arms import PlannedSweep
    from rollcast.local.ablation import PlannedRun
    from rollcast.local.status import RunStatus
    from rollcast.local.sweep.choice import SweepChoice
    from rollcast.local.sweep.ledger import SweepLedger
    from rollcast.local.sweep.loop import SliceRunner
    from rollcast.local.up import View


def run(
    file: Annotated[Path, typer.Argument(metavar="SWEEP_FILE", help="sweep file")],
    *,
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster", help="in the Job of `rollcast sweep values`: the runs are releases"
        ),
    ] = False,
    as_json: report.JsonWithNews = False,
    plot: report.Plot = None,
) -> None:
    """Spend one budget on several recipes; the forecast decides after each slice which of them goes
    on.

    The same command goes on with a sweep that was stopped. Ctrl-C pauses the run that trains, with
    a checkpoint.

    \b
    rollcast sweep run sweep.yaml
    rollcast sweep run sweep.yaml --json --plot sweep.svg
    """
    from rollcast.cli.sweep.arms import plan_sweep
    from rollcast.cli.sweep.values import load_plan

    make_plan = partial(load_plan if cluster else plan_sweep, file)
    sys.exit(run_to_the_end(make_plan, in_cluster=cluster, as_json=as_json, plot=plot))


def run_to_the_end(
    make_plan: Callable[[], PlannedSweep],
    *,
    in_cluster: bool = False,
    as_json: bool,
    plot: Path | None,
) -> int:
    """Run the sweep and print its answer; returns the exit code."""
    from rollcast.cli.sweep.answer import show_answer
    from rollcast.cli.up import EXIT_GIVEN_UP, EXIT_INTERRUPTED
    from rollcast.runfolder.folder import lock_folder

    with ExitStack() as stack:
        if as_json:
            stack.enter_context(redirect_stdout(sys.stderr))
        sweep = make_plan()
        signal.signal(signal.SIGTERM, _interrupt)  # `up` has its own handlers while a run trains
        try:
            stack.enter_context(lock_folder(sweep.folder))
            answer = _run_in_cluster(sweep) if in_cluster else _run_locally(sweep)
        except KeyboardInterrupt:
            answer = None
    if answer is None:
        typer.echo("stopped; the same command goes on", err=True)
        return EXIT_INTERRUPTED
    report.print_answer(answer, show_answer, as_json=as_json)
    if plot is not None:
        from rollcast.plots.sweep import draw_sweep

        draw_sweep(answer, plot)
    return EXIT_GIVEN_UP if answer["chosen"] is None else 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _run_locally(sweep: PlannedSweep) -> dict[str, Any] | None:
    """The answer; None if the sweep was interrupted."""
    from rollcast.cli.set_view import RunLines
    from rollcast.local.ablation import check_folder
    from rollcast.local.sweep.ledger import SweepLedger
    from rollcast.local.sweep.local_runs import LocalRuns

    def make_view(item: PlannedRun, look: Callable[[RunStatus], None]) -> View:
        return RunLines(item.config.run, lambda line: print(line, flush=True), look)

    for item in sweep.planned:
        check_folder(item.config.run_folder, item.config, resume=True)
    ledger = SweepLedger.open(sweep.folder)
    return steer(sweep, LocalRuns(make_view), ledger)


def _run_in_cluster(sweep: PlannedSweep) -> dict[str, Any] | None:
    """The same, with runs that are releases of this pod's namespace."""
    from rollcast.cli.sweep.values import full_name
    from rollcast.local.sweep.cluster_api import ClusterApi
    from rollcast.local.sweep.cluster_runs import ClusterRuns
    from rollcast.local.sweep.ledger import SweepLedger

    names = {item.config.run: full_name(item.config.run) for item in sweep.planned}
    with ClusterApi.connect() as api:
        return steer(sweep, ClusterRuns(api, names), SweepLedger.open(sweep.folder))


def steer(sweep: PlannedSweep, runner: SliceRunner, ledger: SweepLedger) -> dict[str, Any] | None:
    """Run the sweep to its end, with its answer and page written after each choice; None if it was
    interrupted.
    """
    from rollcast.cli.sweep.answer import SweepAnswer
    from rollcast.cli.sweep.page import write_page
    from rollcast.local.sweep.loop import SweepLoop
    from rollcast.runfolder.files import SWEEP_ANSWER
    from rollcast.runfolder.writing import replace_json

    make_answer = SweepAnswer(sweep, runner, ledger)
    answer: dict[str, Any] = {}

    def say(line: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {sweep.name}: {line}", flush=True)

    def show_choice(choice: SweepChoice) -> None:
        answer.update(make_answer.make(choice))
        replace_json(sweep.folder / SWEEP_ANSWER, answer, go_on="the same command")
        write_page(answer, sweep.folder)
        say(choice_in_words(choice, answer))

    loop = SweepLoop(sweep.terms, sweep.planned, runner, ledger, report=say, on_choice=show_choice)
    if ledger.num_skipped:
        say(f"lines of {ledger.path} that cannot be read: {ledger.num_skipped}")
    return None if loop.run() is None else answer


def choice_in_words(choice: SweepChoice, answer: dict[str, Any]) -> str:
    from rollcast.curves.amounts import amount

    spent = f"{amount(answer['spent'])} of {amount(answer['budget'])} device-hours spent"
    leader = "" if choice.best is None else f"{choice.best.arm} leads ({choice.best.chance:.2f}); "
    if choice.run is None:
        return f"{leader}{spent}; the sweep ends: {choice.reason}"
    return (
        f"{leader}{spent}; {choice.run.config.run} trains until {amount(choice.goal)}, expected "
        f"gain {choice.gain:.4f}"
    )

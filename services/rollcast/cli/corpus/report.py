"""`rollcast backtest --corpus FOLDER`: how good forecasts and advice are on many real curves."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import typer

from rollcast.cli import report
from rollcast.cli.output import say
from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.cli.corpus.advice_scores import AdviceScores
    from rollcast.cli.corpus.forecast_scores import CellScores, ForecastScores, OverBest

OWN_PROGRAM = (sys.executable, "-m", "rollcast.cli.corpus")
"""Rollcast as a program that answers the questions of the benchmark."""


def backtest_corpus(
    folder: Path, forecaster: str | None, priors: Path | None, *, as_json: bool
) -> None:
    """Raises UserError: the folder, the priors or the program are not as they must be."""
    from rollcast.cli.corpus.curves import read_corpus
    from rollcast.cli.corpus.measure import measure
    from rollcast.cli.corpus.prior_files import check_priors

    if forecaster is not None and priors is not None:
        raise UserError(
            "--forecaster, --priors: priors are of Rollcast alone; leave one of the two out"
        )
    command = list(OWN_PROGRAM) if forecaster is None else _words(forecaster)
    curves = read_corpus(folder)
    if priors is not None:
        check_priors(priors, (curve.repository for curve in curves))
        command += ["--priors", str(priors)]
    with _progress() as advance:
        scores = measure(curves, command, advance)
    if as_json:
        report.print_answer(asdict(scores), lambda _: None, as_json=True)
        return
    _show_forecasts(scores.forecast)
    typer.echo()
    _show_advice(scores.advice)


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(
            f"--forecaster {command!r}: is not a command ({error}); quote it as in a shell"
        ) from None
    if not words:
        raise UserError("--forecaster: is empty; give a command")
    return words


@contextmanager
def _progress() -> Iterator[Callable[[str, int], None]]:
    """A bar for each stage on standard error; without a terminal one line when a stage begins."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        stages = {}
        one_thread = Lock()

        def advance(stage: str, total: int) -> None:
            with one_thread:
                if stage not in stages:
                    stages[stage] = bar.add_task(stage, total=total)
                    if not console.is_terminal:
                        print(f"{stage}: {total} ...", file=sys.stderr, flush=True)
            bar.advance(stages[stage])

        yield advance


def _show_forecasts(scores: ForecastScores) -> None:
    header = (
        "forecasts",
        "runs",
        "repositories",
        "pinball",
        "/ best simple",
        "error",
        "/ best simple",
        "in 90 %",
        "held",
    )
    report.show_table(header, map(_cell_row, scores.cells))
    typer.echo()
    figures = [
        ("pinball loss / best simple method", _over_best(scores.pinball)),
        ("error / best simple method", _over_best(scores.error)),
        (
            "90 % intervals that hold",
            f"{scores.in90:.3f} ({scores.in90_low:.3f} to {scores.in90_high:.3f})",
        ),
        ("decisions that held", str(scores.decisions)),
        ("decided from half", str(scores.decided_from_half)),
        ("flat runs recognised from half", str(scores.flat_recognised)),
        ("called flat, gained more than 0.03", str(scores.called_flat_wrong)),
        ("refused", f"{len(scores.refused)} of {scores.num_windows + len(scores.refused)}"),
    ]
    report.show_table(("over all cells", "measured"), figures)
    _say_first_refused(scores.refused)


def _cell_row(cell: CellScores) -> tuple[str, ...]:
    from rollcast.cli.corpus.forecast_scores import FORECASTER

    return (
        cell.cell,
        str(cell.num_windows),
        str(cell.num_repositories),
        f"{cell.pinball[FORECASTER]:.4f}",
        f"{cell.pinball_over_best:.3f}",
        f"{cell.error[FORECASTER]:.3f}",
        f"{cell.error_over_best:.3f}",
        f"{cell.in90:.0%}",
        str(cell.decisions),
    )


def _show_advice(scores: AdviceScores) -> None:
    header = ("utility x 1000", *(f"worth {worth:g}" for worth in scores.worths), "in all")
    rows = [
        (rule, *(f"{value:.1f}" for value in utility.at_each_worth), f"{utility.in_all:.1f}")
        for rule, utility in scores.utility.items()
    ]
    report.show_table(header, rows)
    typer.echo()
    wrong = scores.wrong_beyond_noise
    figures = [
        ("utility / reference that knows the end", _or_dash(scores.over_reference)),
        ("best simple rule", scores.best_simple),
        *(
            (f"{kind}, said at half", f"{count} of {scores.num_questions}")
            for kind, count in scores.said_at_half.items()
        ),
        *((f"{kind}, wrong beyond noise", str(tally)) for kind, tally in wrong.items()),
        ("gained nothing, ended before three quarters", str(scores.useless_ended_early)),
        ("chance: mean distance", _or_dash(scores.chance_distance)),
        ("refused", f"{len(scores.refused)} of {scores.num_questions}"),
    ]
    report.show_table((f"advice on {scores.num_runs} runs", "measured"), figures)
    _say_first_refused(scores.refused)
    if scores.chances:
        typer.echo()
        classes = [
            (
                f"{chance_bin.low:g} to {chance_bin.high:g}",
                str(chance_bin.num_questions),
                f"{chance_bin.said:.3f}",
                f"{chance_bin.came:.3f}",
            )
            for chance_bin in scores.chances
        ]
        report.show_table(("chance", "questions", "said", "came true"), classes)
    say(
        f"{scores.num_repositories} repositories, one vote each. Each of {len(scores.worths)} "
        "gains is a question."
    )


def _say_first_refused(refused: Sequence[str]) -> None:
    if refused:
        say(f"refused first: {refused[0]}")


def _over_best(loss: OverBest) -> str:
    return f"{loss.ratio:.3f} ({loss.best_simple})"


def _or_dash(value: float | None) -> str:
    return report.NO_NUMBER if value is None else f"{value:.3f}"

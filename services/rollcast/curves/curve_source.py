"""Histories of runs from a file or folder of any framework, from a run's folder, or from a
Prometheus server.
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rollcast.config.errors import UserError
from rollcast.config.printable import printable
from rollcast.curves.amounts import Tell, format_count, incomplete_points, left_out, natural
from rollcast.curves.axis import column
from rollcast.curves.columns.choices import Columns, some
from rollcast.curves.columns.curve_sheet import curve_sheet
from rollcast.curves.columns.pass_rate_range import refuse_outside
from rollcast.curves.evaluations import MAX_EVALUATIONS, EvaluationLog, Origin, RunHistory
from rollcast.curves.formats.recognise import read_sheet
from rollcast.curves.outcomes import average_outcomes
from rollcast.curves.run_evaluations import make_history, read_run_evaluations
from rollcast.curves.separate_runs import separate_runs
from rollcast.runfolder.files import EVALUATIONS
from rollcast.scaling.law.curve import DEVICE_HOURS
from rollcast.telemetry.evaluation_metrics import is_own_curve

if TYPE_CHECKING:
    from rollcast.config.curve_sources import CurveQueries
    from rollcast.curves.run_forecast import RunForecast
    from rollcast.curves.sheet import Sheet
    from rollcast.scaling.law.curve import Curve
    from rollcast.scaling.posterior.options import FitOptions


def read_histories(
    source: str, columns: Columns, run: str | None = None, *, is_one: bool = False
) -> list[RunHistory]:
    """The history of every run of a file, of a folder, of a run of W&B or of a Prometheus address.

    `run`: the only one that is read. `is_one`: refuse a source of several runs. Standard error gets
    the origin. Raises UserError: one sentence on what cannot be read, and what would help.
    """

    def say(sentence: str) -> None:
        tell(f"{source}: {sentence}")

    path = Path(source)
    if source.startswith(("http://", "https://")):
        histories = _histories_of_prometheus(source, columns, run, say, is_one=is_one)
    elif (path / EVALUATIONS).is_file():
        histories = [_history_of_folder(path, columns, run)]
    else:
        name = (path.resolve().name if path.is_dir() else path.stem) or source
        histories = histories_of_sheet(
            read_sheet(source, tell), source, columns, name, run, is_one=is_one
        )
    origin = histories[0].origin
    over = origin.compute if origin.compute == origin.unit else f"{origin.compute} ({origin.unit})"
    say(f"{origin.format}: {origin.pass_rate} over {over}")
    if count := sum(history.num_incomplete for history in histories):
        say(f"{incomplete_points(count)} left out")
    return histories


def histories_of_sheet(
    sheet: Sheet,
    source: str,
    columns: Columns,
    name: str,
    run: str | None = None,
    *,
    is_one: bool = False,
) -> list[RunHistory]:
    """The history of every run in a sheet.

    Args:
        source: what the sheet was read from, in sentences.
        name: of a run that no column names.
        run: the only one to be read, and its name.
        is_one: refuse a sheet of several runs.

    Raises:
        UserError: as `read_histories`.
    """

    def say(sentence: str) -> None:
        tell(f"{source}: {sentence}")

    try:
        curve = average_outcomes(curve_sheet(sheet, columns, run, say), say)
        curve = separate_runs(curve, say, is_one=is_one)
        runs = curve.runs()
        if is_one and len(runs) > 1:
            raise UserError(
                f"holds {len(runs)} runs; choose one of {some(runs)} with --where run=NAME"
            )
        histories = []
        for run_name in runs:
            own_name = run_name or name
            if len(runs) == 1:
                own_name = name if run is None else run
            run_rows = curve if len(runs) == 1 else curve.select_run(run_name)
            run_evaluations = read_run_evaluations(run_rows, own_name)
            history = make_history(run_evaluations, own_name, curve.origin, say)
            rates = column(history.evaluations, "pass_rate")
            refuse_outside(rates, curve)
            budget_steps = curve.sheet.budget_steps
            # The rest of a run that has reached the end that its log states is not known.
            if budget_steps and history.evaluations and history.evaluations[-1].step < budget_steps:
                say(
                    f"the run ends at step {budget_steps:.0f} (max_steps), which is the budget if "
                    "you give no other"
                )
                history = replace(history, budget_steps=budget_steps)
            histories.append(history)
    except (UserError, ValueError) as error:
        raise UserError(f"{source}: {error}") from None
    return histories


def forecast_source(
    source: str,
    columns: Columns,
    run: str | None,
    initial_pass_rate: float | None,
    exclude_before: float | None,
    law_alone: bool = False,
    prior: Path | None = None,
) -> RunForecast:
    """The forecast of a source's one run, as the service makes it. `exclude_before`: device-hours
    since the start.

    Raises UserError as `read_histories`, or if nothing can be fitted.
    """
    from rollcast.curves.run_forecast import forecast_history

    [history] = read_histories(source, columns, run, is_one=True)
    try:
        return forecast_history(
            history, fit_options(initial_pass_rate, exclude_before, law_alone, prior)
        )
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None


def read_curve(source: str, columns: Columns, run: str | None) -> Curve:
    """The run's curve over compute without its start-ups, which standard error reports.

    Raises as `read_histories`.
    """
    return read_curves(source, columns, run)[0][1]


def read_curves(
    source: str, columns: Columns, run: str | None = None, *, all_runs: bool = False
) -> list[tuple[Origin, Curve]]:
    """What each run was read as, and its curve over compute without its start-ups, so that they
    share an axis.

    `all_runs`: of every run, else of the only one. Raises UserError as `read_histories`, or if a
    run has no curve.
    """
    from rollcast.curves.axis import make_curve, without_start_up

    curves = []
    for history in read_histories(source, columns, run, is_one=not all_runs):
        try:
            axis, curve = make_curve(history, without_start_up)
        except ValueError as error:
            raise UserError(f"{source}: {error}") from None
        if axis.start_up > 0:
            tell(
                f"{source}: {history.name} is counted without the {axis.start_up:.3g} {curve.unit} "
                "of its start-up"
            )
        curves.append((history.origin, curve))
    return curves


def tell(sentence: str) -> None:
    """One line on standard error."""
    print(printable(sentence), file=sys.stderr)


def fit_options(
    initial_pass_rate: float | None,
    exclude_before: float | None,
    law_alone: bool = False,
    prior: Path | None = None,
) -> FitOptions:
    """`law_alone`: the paper's law and no other shape.

    Raises ValueError if a value is out of bounds.
    """
    from rollcast.scaling.posterior.options import FitOptions
    from rollcast.scaling.posterior.prior import DEFAULT_PRIOR, LAW_PRIOR
    from rollcast.scaling.posterior.prior_file import read_prior

    chosen = LAW_PRIOR if law_alone else DEFAULT_PRIOR
    if prior is not None:
        chosen = read_prior(prior)
    return FitOptions(
        prior=chosen,
        initial="measured" if initial_pass_rate is None else initial_pass_rate,
        exclude_before="auto" if exclude_before is None else exclude_before,
    )


def _queries(columns: Columns, run: str | None) -> tuple[CurveQueries, ...]:
    """The expressions of a run of another framework; empty for one of Rollcast's own."""
    from pydantic import ValidationError

    from rollcast.config.curve_sources import CurveQueries

    if columns.where:
        raise UserError(
            f"--where {columns.where[0]}: selects rows of a file; put matchers into the "
            "expressions instead"
        )
    for option, operation in (("scale", "multiply"), ("offset", "add it")):
        if (value := getattr(columns, option)) != getattr(Columns, option):
            raise UserError(
                f"--{option} {value:g}: is for files; {operation} in the expression --pass-rate "
                "instead"
            )
    if columns.pass_rate is None or columns.compute is None:
        if columns != Columns():
            raise UserError(
                "--compute, --pass-rate: of a Prometheus give both, each an expression of one "
                "series"
            )
        return ()
    try:
        quantities = ("pass_rate", "compute", "standard_error", "truncation_ratio")
        expressions = {name: getattr(columns, name) for name in quantities}
        return (CurveQueries(run=run or "curve", **expressions),)
    except ValidationError:
        raise UserError(
            f"--run {run}: not a name for a run; leave '/' out, and write 200 characters at most"
        ) from None


def _histories_of_prometheus(
    url: str, columns: Columns, run: str | None, say: Tell, *, is_one: bool
) -> list[RunHistory]:
    """The history of each run that a Prometheus server has evaluations of. Raises UserError."""
    from rollcast.curves.sources.prometheus import PrometheusQueries
    from rollcast.telemetry.prometheus_reader import SourceAway

    foreign = _queries(columns, run)
    try:
        with closing(PrometheusQueries(url, curves=foreign)) as queries:
            reading = queries.read()
    except SourceAway as error:
        expressions = ", and expressions that it understands" if foreign else ""
        raise UserError(
            f"{url}: {error}; give the address of a Prometheus server{expressions}"
        ) from None
    requested_runs = {curve.run for curve in foreign}
    logs_by_run: dict[str, EvaluationLog] = {}
    num_refused = 0
    for item in reading.evaluations:
        if (requested_runs and item.run not in requested_runs) or not is_own_curve(item.dataset):
            continue
        starts = reading.starts.get(item.run, {})
        try:
            logs_by_run.setdefault(item.run, EvaluationLog(starts=starts)).add(item)
        except OverflowError:
            num_refused += 1
    if requested_runs and not logs_by_run:
        raise UserError(
            f"{url}: --pass-rate and --compute select no evaluation; check the expressions"
        )
    for count, reason in (
        (num_refused, f"beyond {MAX_EVALUATIONS:,} of a run"),
        (reading.skipped["out_of_bounds"], "a value of which is out of bounds"),
    ):
        if count:
            say(f"{format_count(count, 'evaluation')} left out, {reason}")
    runs = sorted(logs_by_run, key=natural)
    if is_one:
        name = runs[0] if run is None and len(runs) == 1 else run
        if name not in logs_by_run:
            raise UserError(
                f"{url}: holds evaluations of {', '.join(runs) or 'no run'}; name one with --run"
            )
        runs = [name]
    if not runs:
        raise UserError(f"{url}: holds evaluations of no run; check the address")
    compute = columns.compute or "evaluated compute"
    origin = Origin(
        "Prometheus", compute, columns.pass_rate or "evaluations of Rollcast", DEVICE_HOURS
    )
    sorted_logs = {name: logs_by_run[name].sorted_out() for name in runs}
    return [
        RunHistory(name, log.curve_points, origin=origin, num_incomplete=log.num_incomplete)
        for name, log in sorted_logs.items()
    ]


def _history_of_folder(folder: Path, columns: Columns, run: str | None) -> RunHistory:
    """Raises UserError, also for options on the columns of a file."""
    from rollcast.curves.sources.run_folder import history_of_folder

    if columns != Columns():
        raise UserError(
            f"{folder}: is a run's folder, which takes no columns, --where, --scale or --offset; "
            "leave them out"
        )
    history, malformed, lost = history_of_folder(folder, run)
    if malformed:
        tell(left_out(folder, malformed, "line", "of evaluations.jsonl, malformed"))
    if lost:
        tell(left_out(folder, lost, "evaluation", "of steps that were made again after a restart"))
    return history

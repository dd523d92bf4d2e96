"""Histories of runs from a file or folder of any framework, from a run's folder, or from a Prometheus server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rollcast.config.errors import UserError
from rollcast.curves.curve_row import some
from rollcast.curves.left_out import incomplete_points, left_out
from rollcast.curves.natural_order import natural
from rollcast.curves.table import Columns, read_table
from rollcast.runfolder.files import EVALUATIONS
from rollcast.telemetry.names import is_own_curve

if TYPE_CHECKING:
    from rollcast.config.services import CurveQueries
    from rollcast.curves.evaluations import EvaluationLog
    from rollcast.curves.origin import Origin
    from rollcast.curves.run_forecast import RunForecast
    from rollcast.curves.run_history import RunHistory
    from rollcast.scaling.curve import Curve
    from rollcast.scaling.options import FitOptions


def read_history(source: str, columns: Columns, run: str | None) -> RunHistory:
    """The history of the one run of a file, of a folder, of a run of W&B or of a Prometheus address.

    What it was read as is told on standard error. Raises UserError: one sentence on what cannot be read, or that there
    are several runs, and what would help.
    """
    history = _read_history(source, columns, run)
    tell(f"{source}: {history.origin.sentence()}")
    _tell_incomplete(source, [history])
    return history


def _read_history(source: str, columns: Columns, run: str | None) -> RunHistory:
    if source.startswith(("http://", "https://")):
        found = _evaluations(source, columns, run)
        runs = sorted(found, key=natural)
        name = run if run is not None else runs[0] if len(runs) == 1 else None
        if name not in found:
            raise UserError(f"{source}: holds evaluations of {', '.join(runs) or 'no run'}; name one with --run")
        return _history(name, found[name], columns)
    if _is_run_folder(source):
        return _history_of_folder(Path(source), columns, run)
    table = read_table(source, columns, run, tell)
    runs = table.runs()
    if len(runs) > 1:
        raise UserError(f"{source}: holds {len(runs)} runs; choose one of {some(runs)} with --where run=NAME")
    return table.history(_name(source) if run is None else run, tell)


def read_histories(source: str, columns: Columns) -> list[RunHistory]:
    """The history of every run in a source; those of a file are told by its column `run`. Raises as `read_history`."""
    histories = _read_histories(source, columns)
    tell(f"{source}: {histories[0].origin.sentence()}")
    _tell_incomplete(source, histories)
    return histories


def _read_histories(source: str, columns: Columns) -> list[RunHistory]:
    if source.startswith(("http://", "https://")):
        found = _evaluations(source, columns, None)
        if not found:
            raise UserError(f"{source}: holds evaluations of no run; check the address")
        return [_history(run, found[run], columns) for run in sorted(found, key=natural)]
    if _is_run_folder(source):
        return [_history_of_folder(Path(source), columns, None)]
    table = read_table(source, columns, None, tell)
    runs = table.runs()
    if len(runs) == 1:
        return [table.history(_name(source), tell)]
    return [table.of_run(run).history(run or _name(source), tell) for run in runs]


def _tell_incomplete(source: str, histories: Sequence[RunHistory]) -> None:
    if count := sum(history.num_incomplete for history in histories):
        tell(f"{source}: {incomplete_points(count)} left out")


def _is_run_folder(source: str) -> bool:
    """Whether it is a folder that Rollcast wrote."""
    return (Path(source) / EVALUATIONS).is_file()


def _name(source: str) -> str:
    """Of a run that no column names: of its file or folder."""
    path = Path(source)
    return (path.resolve().name if path.is_dir() else path.stem) or source


def forecast_source(
    source: str,
    columns: Columns,
    run: str | None,
    initial: float | None,
    exclude_before: float | None,
    law_alone: bool = False,
    prior: Path | None = None,
) -> RunForecast:
    """The forecast of a source's one run, as the service makes it. `exclude_before`: device-hours since the start.

    Raises UserError as `read_history`, or where nothing can be fitted.
    """
    from rollcast.curves.run_forecast import forecast_history

    history = read_history(source, columns, run)
    try:
        return forecast_history(history, fit_options(initial, exclude_before, law_alone, prior))
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None


def read_curve(source: str, columns: Columns, run: str | None) -> Curve:
    """As `read_history`, the run's curve over compute without its start-ups; those are told on standard error."""
    return read_curves(source, columns, run)[0][1]


def read_curves(
    source: str, columns: Columns, run: str | None = None, *, all_runs: bool = False
) -> list[tuple[Origin, Curve]]:
    """As what each run was read, and its curve over compute without its start-ups: so they share an axis.

    `all_runs`: as `read_histories`, else the one of `read_history`.
    """
    histories = read_histories(source, columns) if all_runs else [read_history(source, columns, run)]
    return [(history.origin, _curve(source, history)) for history in histories]


def _curve(source: str, history: RunHistory) -> Curve:
    try:
        axis, curve = history.in_device_hours()
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    if axis.start_up > 0:
        tell(f"{source}: {history.name} is counted without the {axis.start_up:.3g} {curve.unit} of its start-up")
    return curve


def tell(sentence: str) -> None:
    """Print one line on standard error."""
    print(sentence, file=sys.stderr)


def fit_options(
    initial: float | None,
    exclude_before: float | None,
    law_alone: bool = False,
    prior: Path | None = None,
) -> FitOptions:
    """`law_alone`: the paper's law and nothing beside it. Raises ValueError where a value is out of bounds."""
    from rollcast.scaling.options import FitOptions
    from rollcast.scaling.prior import DEFAULT_PRIOR, LAW_PRIOR
    from rollcast.scaling.prior_file import read_prior

    return FitOptions(
        prior=read_prior(prior) if prior is not None else LAW_PRIOR if law_alone else DEFAULT_PRIOR,
        initial="measured" if initial is None else initial,
        exclude_before="auto" if exclude_before is None else exclude_before,
    )


def _queries(columns: Columns, run: str | None) -> tuple[CurveQueries, ...]:
    """A run of another framework, where expressions are given; none: one of Rollcast's own."""
    from pydantic import ValidationError

    from rollcast.config.services import CurveQueries

    if columns.where:
        raise UserError(
            f"--where {columns.where[0]}: selects rows of a file; put matchers into the expressions instead"
        )
    if columns.scale != 1:
        raise UserError(f"--scale {columns.scale:g}: is for files; multiply in the expression --pass-rate instead")
    if columns.pass_rate is None or columns.compute is None:
        if columns != Columns():
            raise UserError("--compute, --pass-rate: of a Prometheus give both, each an expression of one series")
        return ()
    try:
        return (
            CurveQueries(
                run=run or "curve",
                pass_rate=columns.pass_rate,
                compute=columns.compute,
                standard_error=columns.standard_error,
                truncation_ratio=columns.truncation_ratio,
            ),
        )
    except ValidationError:
        raise UserError(f"--run {run}: is no name for a run; leave '/' out, and write 200 characters at most") from None


def _evaluations(url: str, columns: Columns, run: str | None) -> dict[str, EvaluationLog]:
    """By run, what a Prometheus knows. Raises UserError."""
    from rollcast.curves.evaluations import MAX_EVALUATIONS, EvaluationLog
    from rollcast.curves.sources import PrometheusQueries
    from rollcast.telemetry.prometheus_reader import SourceAway

    foreign = _queries(columns, run)
    queries = PrometheusQueries(url, curves=foreign)
    try:
        reading = queries.read()
    except SourceAway as error:
        remedy = "give the address of a Prometheus server" + (
            ", and expressions that it understands" if foreign else ""
        )
        raise UserError(f"{url}: {error}; {remedy}") from None
    finally:
        queries.close()
    wanted = {curve.run for curve in foreign}
    found: dict[str, EvaluationLog] = {}
    refused = 0
    for item in reading.evaluations:
        if (wanted and item.run not in wanted) or not is_own_curve(item.dataset):
            continue
        log = found.setdefault(item.run, EvaluationLog(starts=reading.starts.get(item.run, {})))
        try:
            log.add(item)
        except OverflowError:
            refused += 1
    if wanted and not found:
        raise UserError(f"{url}: --pass-rate and --compute select no evaluation; check the expressions")
    if refused:
        tell(left_out(url, refused, "evaluation", f"beyond {MAX_EVALUATIONS:,} of a run"))
    if malformed := reading.skipped["out_of_bounds"]:
        tell(left_out(url, malformed, "evaluation", "a value of which is out of bounds"))
    return found


def _history(run: str, log: EvaluationLog, columns: Columns) -> RunHistory:
    from rollcast.curves.origin import Origin
    from rollcast.curves.run_history import RunHistory
    from rollcast.scaling.curve import DEVICE_HOURS

    compute, pass_rate = columns.compute or "evaluated compute", columns.pass_rate or "evaluations of Rollcast"
    origin = Origin("Prometheus", compute, pass_rate, DEVICE_HOURS)

    found = log.sorted_out()
    return RunHistory(run, found.kept, origin=origin, num_incomplete=found.num_incomplete)


def _history_of_folder(folder: Path, columns: Columns, run: str | None) -> RunHistory:
    """Raises UserError, also for options that say how a file is to be read."""
    from rollcast.curves.run_folder import history_of_folder

    if columns != Columns():
        raise UserError(f"{folder}: is a run's folder, which takes no columns, --where or --scale; leave them out")
    history, malformed, lost = history_of_folder(folder, run)
    if malformed:
        tell(left_out(folder, malformed, "line", "of evaluations.jsonl, malformed"))
    if lost:
        tell(left_out(folder, lost, "evaluation", "of steps that were made again after a restart"))
    return history

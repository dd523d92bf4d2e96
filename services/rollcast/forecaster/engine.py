"""Takes the readings of all sources and keeps every run's forecast up to date.

reading --> logs --> runs with something new --> refit --> history, metrics, board
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from rollcast.config.curve_sources import CurveTerms
from rollcast.curves.amounts import MEDIAN_AND_90, bare
from rollcast.curves.answer import law_of_run
from rollcast.curves.columns.units import GPU_HOURS
from rollcast.curves.evaluations import (
    OWN,
    CurvePoint,
    EvaluationLog,
    Origin,
    Reading,
    RunHistory,
)
from rollcast.curves.run_forecast import (
    RunBudget,
    forecast_run,
    look_ahead,
)
from rollcast.forecaster.board import Board
from rollcast.forecaster.forecast_records import ForecastRecords
from rollcast.forecaster.history import History, PushedRun
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.runfolder.kept_checkpoints import KeptCheckpoints
from rollcast.runfolder.survival import is_complete
from rollcast.scaling.law.curve import DEVICE_HOURS
from rollcast.telemetry.evaluation_metrics import is_own_curve
from rollcast.telemetry.logging import get_logger

MAX_RUNS = 200
MAX_PUSHED_RUNS = 100
"""Below MAX_RUNS, so that pushed runs leave room for the runs of the source."""
NO_TERMS = CurveTerms()
log = get_logger()


class ForecastEngine:
    """Takes in one reading at a time, whoever brings it."""

    def __init__(
        self,
        board: Board,
        history: History,
        metrics: ForecastMetrics,
        budgets: Mapping[str, RunBudget] | None = None,
        terms: Mapping[str, CurveTerms] | None = None,
        end_reasons: Mapping[str, str] | None = None,
        checkpoint_readers: Mapping[str, Callable[[], KeptCheckpoints | None]] | None = None,
    ) -> None:
        """`budgets`: of runs whose trainer reports none itself. `terms`: of other frameworks' runs
        in the source.

        `end_reasons`: why runs that are over ended before their budget. `checkpoint_readers`: the
        checkpoints of now.
        """
        self._board = board
        self._history = history
        self._metrics = metrics
        self._configured = budgets or {}
        self._terms = terms or {}
        self._end_reasons = end_reasons or {}
        self._checkpoint_readers = checkpoint_readers or {}
        self._logs: dict[str, EvaluationLog] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._budgets: dict[str, RunBudget] = {}
        self._origins: dict[str, Origin] = {}
        """By run that is read from a file; after a restart it is read again."""
        self._refused: set[tuple[str, str, str, int, int]] = set()
        self._sequence = 0
        self._turn = threading.RLock()
        self._pushed = {run.name: run for run in history.load_pushed_runs()}
        evaluations, self._starts, grids = history.load()
        self._records = ForecastRecords(history, metrics, grids)
        self._update(set(filter(None, [self._add(item) for item in evaluations])), fresh=[])

    def take(self, reading: Reading) -> int:
        """Add what is new and refit the runs that changed; returns how many evaluations were new.

        Evaluations of a pushed run are refused: a source would count in another unit.
        """
        with self._turn:
            pushed = self._pushed.keys()
            for evaluation in reading.evaluations:
                if evaluation.run in pushed:
                    self._refuse(evaluation, "run_is_pushed")
            source_reading = replace(
                reading,
                evaluations=[item for item in reading.evaluations if item.run not in pushed],
                starts={run: reading.starts[run] for run in reading.starts if run not in pushed},
                replaced_runs=reading.replaced_runs - pushed,
            )
            return self._take_reading(source_reading)

    def push(self, run: PushedRun, evaluations: list[CurvePoint]) -> int:
        """Take evaluations of a run that its trainer pushes; returns how many were new.

        Raises:
            ValueError: one sentence on why the run cannot be pushed.
            TimeoutError: another reading takes its time.
        """
        # Longest wait of a push for its turn
        if not self._turn.acquire(timeout=5.0):
            raise TimeoutError(
                "the forecaster is busy with another reading; push again in a moment"
            )
        try:
            known_run = self._pushed.get(run.name)
            if known_run is None:
                self._admit(run.name, len(evaluations))
            elif known_run.unit != run.unit:
                raise ValueError(
                    f"run {run.name!r} counts {known_run.unit}, not {run.unit}; push under another "
                    "name"
                )
            elif run.budget is None:
                run = known_run
            self._pushed[run.name] = run
            if run == known_run:
                return self._take_reading(Reading(evaluations))
            self._records.try_write(lambda: self._history.add_pushed(run))
            return self._take_reading(Reading(evaluations), also_refit={run.name})
        finally:
            self._turn.release()

    def _admit(self, name: str, num_evaluations: int) -> None:
        """Raises ValueError: why it cannot be the name of a run that is pushed from now on."""
        if name in self._configured:
            raise ValueError(f"run {name!r} is the forecaster's own; push under another name")
        source_runs = self._terms.keys() | self._budgets.keys() | self._starts.keys()
        if name in source_runs or any(
            name in (owner, curve_name) for (owner, _), curve_name in self._names.items()
        ):
            raise ValueError(f"run {name!r} is read from a source; push under another name")
        if len(self._pushed) >= MAX_PUSHED_RUNS:
            raise ValueError(
                f"{MAX_PUSHED_RUNS} runs are pushed already, which is the most; use another service"
            )
        if num_evaluations == 0:
            raise ValueError(f"run {name!r} is not known yet; push one point of it at least")

    def _take_reading(self, reading: Reading, also_refit: Collection[str] = ()) -> int:
        """`also_refit`: names of runs that are fitted again even if nothing of them is new."""
        for reason, count in reading.skipped.items():
            self._metrics.count_skipped(reason, count)
        for run in reading.replaced_runs:
            if not self._is_full_rewrite(reading, run):
                self._forget(run)
        changed = {name for name in also_refit if name in self._logs}
        changed |= self._take_terms(reading)
        fresh = self._take_evaluations(reading.evaluations)
        changed |= {self._names[evaluation.run, evaluation.dataset] for evaluation in fresh}
        self._update(changed, fresh)
        return len(fresh)

    def _take_terms(self, reading: Reading) -> set[str]:
        """Returns the names of the curves to which a start, another unit or another budget is
        new.
        """
        changed: set[str] = set()
        for run, first_steps in reading.starts.items():
            if first_steps.items() - self._starts.get(run, {}).items():
                self._starts.setdefault(run, {}).update(first_steps)
                self._records.try_write(partial(self._history.add_starts, run, first_steps))
                changed |= self._find_curve_names(run)
        for run, origin in reading.origins.items():
            if origin.unit != self._origins.get(run, OWN).unit:
                changed |= self._find_curve_names(run)
            self._origins[run] = origin
        for run, status in reading.status.items():
            self._board.note_status(run, status)
            budget = RunBudget(status.budget_steps, status.budget_device_hours)
            if budget != RunBudget() and budget != self._budgets.get(run):
                self._budgets[run] = budget
                changed |= self._find_curve_names(run)
        return changed

    def _take_evaluations(self, evaluations: Sequence[CurvePoint]) -> list[CurvePoint]:
        """Returns those that are new."""
        fresh = []
        for evaluation in sorted(evaluations, key=lambda item: (item.incarnation, item.step)):
            name = self._add(evaluation)
            if name is not None:
                fresh.append(evaluation)
                _log_incomplete(name, evaluation)
        if fresh:
            self._records.try_write(lambda: self._history.add_evaluations(fresh))
        return fresh

    def _is_full_rewrite(self, reading: Reading, run: str) -> bool:
        """Whether the reading repeats every known evaluation, as a table does that is rewritten
        whole each time.
        """
        reported_points = {
            item.key: (item.pass_rate, item.compute)
            for item in reading.evaluations
            if item.run == run
        }
        known_points = [
            item
            for name in self._find_curve_names(run)
            for item in self._logs[name].evaluations.values()
        ]
        return all(
            reported_points.get(item.key) == (item.pass_rate, item.compute) for item in known_points
        )

    def _forget(self, run: str) -> None:
        names = self._find_curve_names(run)
        self._names = {key: name for key, name in self._names.items() if name not in names}
        for name in names:
            del self._logs[name]
            self._records.forget(name)
        self._starts.pop(run, None)
        self._origins.pop(run, None)
        self._refused = {key for key in self._refused if key[1] != run}
        self._metrics.forget(names)
        self._board.forget(run, names)
        self._records.try_write(lambda: self._history.forget(run, names))
        log.warning(
            "the file of the run was rewritten; its earlier evaluations are dropped", run=run
        )

    def _find_curve_names(self, run: str) -> set[str]:
        return {name for (owner, _), name in self._names.items() if owner == run}

    def _add(self, evaluation: CurvePoint) -> str | None:
        """The name under which the evaluation is new, or None."""
        key = (evaluation.run, evaluation.dataset)
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= MAX_RUNS:
                self._refuse(evaluation, "too_many_runs")
                return None
            needs_dataset_suffix = not is_own_curve(evaluation.dataset) or any(
                run == evaluation.run and is_own_curve(dataset) for run, dataset in self._names
            )
            name = self._names[key] = (
                f"{evaluation.run}:{evaluation.dataset}" if needs_dataset_suffix else evaluation.run
            )
            self._logs[name] = EvaluationLog(starts=self._starts.setdefault(evaluation.run, {}))
        try:
            return name if self._logs[name].add(evaluation) else None
        except OverflowError:
            self._refuse(evaluation, "too_many_evaluations")
            return None

    def _refuse(self, evaluation: CurvePoint, reason: str) -> None:
        """Counted once each, as long as the memory of it is bounded."""
        key = (reason, evaluation.run, evaluation.dataset, evaluation.incarnation, evaluation.step)
        if key in self._refused:
            return
        if len(self._refused) < 100_000:
            self._refused.add(key)
        self._metrics.count_skipped(reason, 1)

    def _update(self, changed: set[str], fresh: Sequence[CurvePoint]) -> None:
        new = {id(item) for item in fresh}
        for name in sorted(changed):
            try:
                # 40: earlier forecasts of one run that are made afterwards, if several evaluations
                # arrive together; 100: of all runs together.
                self._refit(name, new, min(40, 100 // len(changed)))
            except (ValueError, ArithmeticError, IndexError, np.linalg.LinAlgError) as error:
                self._metrics.count_skipped("refit", 1)
                log.error(
                    "the run cannot be fitted; its last forecast stands", run=name, error=str(error)
                )

    def _refit(self, name: str, new: set[int], max_replays: int) -> None:
        """`new`: ids of the evaluations that came with this reading."""
        everything = self._logs[name]
        curve_selection = everything.sorted_out()
        surviving = curve_selection.curve_points
        if not surviving:
            return
        run = surviving[-1].run
        pushed = self._pushed.get(run)
        origin = self._origins.get(run, OWN) if pushed is None else pushed.origin
        budget = self._budget(run, origin.unit)
        terms = self._terms.get(run, NO_TERMS)
        read_checkpoints = self._checkpoint_readers.get(run)
        self._records.replay(name, surviving, budget, new, max_replays)
        self._sequence += 1
        history = RunHistory(
            name,
            surviving,
            origin=origin,
            num_incomplete=curve_selection.num_incomplete,
            end_reason=self._end_reasons.get(run),
            last_advice=self._records.last_advice(name, len(surviving)),
            kept_checkpoints=None if read_checkpoints is None else read_checkpoints(),
        )
        forecast = forecast_run(history, budget, sequence=self._sequence, updated_at=time.time())
        if forecast is None:
            return
        forecast = replace(
            forecast,
            num_lost=curve_selection.num_lost,
            worth=terms.worth,
            price=terms.price,
        )
        self._records.keep_advice(forecast)
        outlook = look_ahead(forecast, self._records.grid(forecast))
        self._metrics.show(forecast, outlook, self._records.surprise(forecast))
        if id(surviving[-1]) in new:
            self._records.keep_forecast(forecast, outlook, replayed=False)
            law = law_of_run(forecast, MEDIAN_AND_90)
            asymptote = None if law is None else [round(item, 3) for item in bare(law.asymptote)]
            log.info(
                "forecast",
                run=name,
                points=len(surviving),
                incomplete=curve_selection.num_incomplete,
                verdict=str(forecast.forecast.verdict.kind),
                asymptote=asymptote,
            )
        self._board.publish(forecast)

    def _budget(self, run: str, unit: str) -> RunBudget:
        """When the run ends. A budget that is set for this curve, in its `unit`, comes first."""
        pushed = self._pushed.get(run)
        curve_budget = self._terms.get(run, NO_TERMS).budget if pushed is None else pushed.budget
        if pushed is not None or curve_budget is not None:
            return RunBudget(None, curve_budget)
        budget = self._budgets.get(run, self._configured.get(run, RunBudget()))
        return budget if unit in (DEVICE_HOURS, GPU_HOURS) else replace(budget, device_hours=None)

    def grid(self, name: str) -> tuple[float, ...]:
        """The fixed computes of a run's metrics and of its past bands; empty before its first
        forecast.
        """
        return self._records.known_grid(name)


def _log_incomplete(name: str, evaluation: CurvePoint) -> None:
    share = evaluation.graded_share
    if share is not None and not is_complete(share):
        log.warning(
            "an evaluation is left out of the forecast: too few of its prompts were graded",
            run=name,
            step=evaluation.step,
            graded_share=round(share, 3),
        )

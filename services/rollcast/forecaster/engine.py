"""Takes in what the sources tell and keeps every run's forecast up to date.

reading --> logs --> runs with something new --> refit --> history, metrics, board
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

import numpy as np

from rollcast.curves.evaluations import CurvePoint, EvaluationLog
from rollcast.curves.reading import Reading
from rollcast.curves.run_forecast import ForecastSummary, RunBudget, RunForecast, forecast_run, look_ahead, metric_grid
from rollcast.forecaster.board import Board
from rollcast.forecaster.history import History, KeptForecast
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.forecaster.surprise import Surprise, hold_to_account
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.names import is_own_curve

MAX_RUNS = 200
MAX_REPLAYS = 40
"""Earlier forecasts of a run made afterwards when several of its evaluations come at once."""
MAX_REPLAYS_AT_ONCE = 100
"""Of all runs together."""
log = get_logger()


class ForecastEngine:
    """Called by one thread only."""

    def __init__(
        self, board: Board, history: History, metrics: ForecastMetrics, budgets: dict[str, RunBudget] | None = None
    ) -> None:
        """`budgets`: of runs whose trainer tells none."""
        self._board = board
        self._history = history
        self._metrics = metrics
        self._configured = budgets or {}
        self._logs: dict[str, EvaluationLog] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._budgets: dict[str, RunBudget] = {}
        self._refused: set[tuple[str, str, int, int]] = set()
        self._sequence = 0
        evaluations, self._starts, self._grids = history.load()
        self._update(set(filter(None, [self._add(item) for item in evaluations])), fresh=[])

    def take(self, reading: Reading) -> None:
        """Add what is new and refit the runs that changed."""
        for reason, count in reading.skipped.items():
            self._metrics.count_skipped(reason, count)
        changed: set[str] = set()
        for run, starts in reading.starts.items():
            if starts.items() - self._starts.get(run, {}).items():
                self._starts.setdefault(run, {}).update(starts)
                self._write(lambda run=run, starts=starts: self._history.add_starts(run, starts))
                changed |= {name for (owner, _), name in self._names.items() if owner == run}
        for run, status in reading.status.items():
            self._board.note_status(run, status)
            budget = RunBudget(status.budget_steps, status.budget_device_hours)
            if budget != RunBudget() and budget != self._budgets.get(run):
                self._budgets[run] = budget
                changed |= {name for (owner, _), name in self._names.items() if owner == run}
        fresh = []
        for evaluation in sorted(reading.evaluations, key=lambda item: (item.incarnation, item.step)):
            name = self._add(evaluation)
            if name is not None:
                fresh.append(evaluation)
                changed.add(name)
        if fresh:
            self._write(lambda: self._history.add_evaluations(fresh))
        self._update(changed, fresh)

    def _add(self, evaluation: CurvePoint) -> str | None:
        """The name under which the evaluation is new, or None."""
        key = (evaluation.run, evaluation.dataset)
        full_key = (*key, evaluation.incarnation, evaluation.step)
        if full_key in self._refused:
            return None
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= MAX_RUNS:
                self._refuse(full_key, "too_many_runs")
                return None
            taken = not is_own_curve(evaluation.dataset) or any(
                run == evaluation.run and is_own_curve(dataset) for run, dataset in self._names
            )
            name = self._names[key] = f"{evaluation.run}:{evaluation.dataset}" if taken else evaluation.run
            self._logs[name] = EvaluationLog(starts=self._starts.setdefault(evaluation.run, {}))
        try:
            return name if self._logs[name].add(evaluation) else None
        except OverflowError:
            self._refuse(full_key, "too_many_evaluations")
            return None

    def _refuse(self, key: tuple[str, str, int, int], reason: str) -> None:
        """Counted once each, as long as the memory of it is bounded."""
        if len(self._refused) < 100_000:
            self._refused.add(key)
        self._metrics.count_skipped(reason, 1)

    def _update(self, changed: set[str], fresh: Sequence[CurvePoint]) -> None:
        new = {id(item) for item in fresh}
        for name in sorted(changed):
            try:
                self._refit(name, new, min(MAX_REPLAYS, MAX_REPLAYS_AT_ONCE // len(changed)))
            except (ValueError, ArithmeticError, IndexError, np.linalg.LinAlgError) as error:
                self._metrics.count_skipped("refit", 1)
                log.error("the run cannot be fitted; its last forecast stands", run=name, error=str(error))

    def _refit(self, name: str, new: set[int], max_replays: int) -> None:
        """`new`: ids of the evaluations that came with this reading."""
        everything = self._logs[name]
        surviving = everything.surviving()
        if not surviving:
            return
        run = surviving[-1].run
        budget = self._budgets.get(run, self._configured.get(run, RunBudget()))
        self._replay(name, surviving, budget, new, max_replays)
        self._sequence += 1
        forecast = forecast_run(
            name,
            surviving,
            budget,
            sequence=self._sequence,
            updated_at=time.time(),
            num_lost=len(everything.evaluations) - len(surviving),
        )
        if forecast is None:
            return
        outlook = look_ahead(forecast, self._grid(forecast))
        self._metrics.show(forecast, outlook, self._surprise(forecast))
        if id(surviving[-1]) in new:
            self._remember(forecast, outlook, replayed=False)
            log.info(
                "forecast",
                run=name,
                points=len(surviving),
                verdict=str(forecast.forecast.verdict.kind),
                asymptote=[round(float(value), 3) for value in forecast.forecast.asymptote((0.05, 0.5, 0.95))],
            )
        self._board.publish(forecast)

    def _replay(
        self, name: str, surviving: tuple[CurvePoint, ...], budget: RunBudget, new: set[int], max_replays: int
    ) -> None:
        """What would have been said at each of several evaluations that came at once, the newest left out."""
        places = [place for place in range(1, len(surviving)) if id(surviving[place - 1]) in new]
        if max_replays == 0 or not places:
            return
        for place in places[:: -(-len(places) // max_replays)]:
            at = surviving[place - 1].at
            earlier = forecast_run(name, surviving[:place], budget, sequence=0, updated_at=at)
            if earlier is not None:
                self._remember(earlier, look_ahead(earlier, self._grid(earlier)), replayed=True)

    def _surprise(self, forecast: RunForecast) -> Surprise | None:
        try:
            return hold_to_account(
                forecast.evaluations,
                forecast.axis,
                self._grid(forecast),
                lambda compute: self._history.last_forecast_before(forecast.name, compute),
            )
        except sqlite3.Error as error:
            self._metrics.count_skipped("history_read", 1)
            log.error("the history of forecasts cannot be read; the forecast goes on", error=str(error))
            return None

    def _grid(self, forecast: RunForecast) -> tuple[float, ...]:
        grid = self._grids.get(forecast.name)
        if grid is None:
            grid = self._grids[forecast.name] = metric_grid(forecast)
            self._write(lambda: self._history.add_grid(forecast.name, grid))
        return grid

    def _remember(self, forecast: RunForecast, outlook: ForecastSummary, *, replayed: bool) -> None:
        past = KeptForecast(
            id=0,
            name=forecast.name,
            made_at=forecast.updated_at,
            replayed=replayed,
            num_points=len(forecast.evaluations),
            compute=forecast.newest.compute,
            pass_rate=forecast.newest.pass_rate,
            verdict=str(forecast.forecast.verdict.kind),
            asymptote=tuple(outlook.asymptote.tolist()),
            headroom=tuple(outlook.headroom.tolist()),
            end_compute=forecast.end,
            end_reading=None if outlook.end is None else tuple(outlook.end.tolist()),
            band=tuple(tuple(row) for row in outlook.band.tolist()),
        )
        self._write(lambda: self._history.add_forecast(past))

    def grid(self, name: str) -> tuple[float, ...]:
        """The fixed computes of a run's metrics and of its past bands; empty before its first forecast."""
        return self._grids.get(name, ())

    def _write(self, action: object) -> None:
        assert callable(action)
        try:
            action()
        except sqlite3.Error as error:
            self._metrics.count_skipped("history_write", 1)
            log.error("the history of forecasts cannot be written; the forecast goes on", error=str(error))

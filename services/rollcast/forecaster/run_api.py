"""GET /api/runs and /api/runs/{run}/...: the forecasts of all runs, and the questions about one."""

import asyncio
import time
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request

from rollcast.config.bounds import MOST_COMPUTE
from rollcast.curves.run_forecast import QUANTILES, RunForecast
from rollcast.forecaster import answers, schema
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.folder_tail import FolderTail
from rollcast.forecaster.history import History
from rollcast.forecaster.refusals import refusals
from rollcast.runfolder.episode_words import episodes_in_words

MAX_WAITING_REQUESTS = 128
"""A part of all connections; one request more is answered without waiting."""
RunName = Annotated[str, Path(max_length=500, description="Name of the run")]
Compute = Annotated[float, Query(gt=0, le=MOST_COMPUTE, allow_inf_nan=False)]


class RunApi:
    """Answers from the shared snapshots; nothing here changes them."""

    def __init__(
        self, board: Board, history: History, engine: ForecastEngine, tail: FolderTail
    ) -> None:
        self._board = board
        self._tail = tail
        self._history = history
        self._engine = engine
        self._waiting: set[Request] = set()

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/api/runs")
        router.add_api_route(
            "", self.runs, dependencies=[Depends(self._wait_for_change)], responses=refusals(422)
        )
        for path, answer in (
            ("forecast", self.forecast),
            ("advice", self.advice),
            ("predict", self.predict),
            ("target", self.target),
            ("points", self.points),
            ("curve", self.curve),
            ("history", self.past),
            ("history/{forecast_id}", self.past_curve),
            ("status", self.status),
            ("samples", self.samples),
        ):
            router.add_api_route(f"/{{run}}/{path}", answer, responses=refusals(404, 422))
        return router

    async def _wait_for_change(
        self,
        request: Request,
        after: Annotated[
            str, Query(max_length=100, description="The `version` of an earlier answer")
        ] = "",
        wait_seconds: Annotated[
            float,
            Query(
                ge=0,
                le=10.0,
                description="How long the answer may wait for a newer version",
            ),
        ] = 0.0,
    ) -> None:
        if len(self._waiting) >= MAX_WAITING_REQUESTS:
            return
        self._waiting.add(request)
        deadline = time.monotonic() + wait_seconds
        try:
            while (
                self._board.version == after
                and not self._board.closed.is_set()
                and time.monotonic() < deadline
            ):
                if await request.is_disconnected():
                    return
                # How often a waiting request looks for a change
                await asyncio.sleep(0.1)
        finally:
            self._waiting.discard(request)

    def _find(self, run: str) -> RunForecast:
        forecast = self._board.get(run)
        if forecast is None:
            raise HTTPException(
                404, f"run {run[:100]!r}: no forecast yet; /api/runs lists the runs that have one"
            )
        return forecast

    def runs(self) -> schema.RunsAnswer:
        """Every run's newest forecast, and whether the source answers; on request, as soon as that
        has changed.
        """
        # Read first: a change in between is reported twice, never missed.
        version = self._board.version
        source = self._board.source
        runs = [answers.forecast_answer(item) for item in self._board.all()]
        return schema.RunsAnswer(source=source, now=time.time(), version=version, runs=runs)

    def forecast(self, run: RunName) -> schema.ForecastAnswer:
        """The newest forecast of a run."""
        return answers.forecast_answer(self._find(run))

    def advice(
        self,
        run: RunName,
        budget: Annotated[
            Compute | None, Query(description="Compute at which the run would end; the run's own")
        ] = None,
        worth: Annotated[
            float | None,
            Query(ge=0, le=1, allow_inf_nan=False, description="Gain that pays for the rest"),
        ] = None,
        price: Annotated[
            float | None, Query(ge=0, le=1e9, allow_inf_nan=False, description="Of one device-hour")
        ] = None,
    ) -> schema.AdviceAnswer:
        """Stop, continue or wait: what to do with the rest of a budget."""
        return schema.AdviceAnswer(**self._find(run).advice(budget, worth, price).to_dict())

    def predict(
        self, run: RunName, compute: Annotated[list[Compute], Query(min_length=1, max_length=200)]
    ) -> schema.PredictAnswer:
        """The pass rate at one or several computes (device-hours)."""
        item = self._find(run)
        return schema.PredictAnswer(run=item.name, predictions=answers.predictions(item, compute))

    def target(
        self, run: RunName, pass_rate: Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)]
    ) -> schema.TargetAnswer:
        """The compute that reaches a pass rate."""
        return answers.target_answer(self._find(run), pass_rate)

    def points(self, run: RunName) -> schema.PointsAnswer:
        """The evaluations of the surviving history."""
        return answers.points_answer(self._find(run))

    def curve(self, run: RunName, until: Compute | None = None) -> schema.CurveAnswer:
        """Fit, bands and the power law, for drawing."""
        return answers.curve_answer(self._find(run), until)

    def past(self, run: RunName) -> schema.HistoryAnswer:
        """Earlier forecasts, oldest first."""
        item = self._find(run)
        forecasts = [answers.past_answer(entry) for entry in self._history.forecasts(item.name)]
        return schema.HistoryAnswer(run=item.name, forecasts=forecasts)

    def past_curve(
        self, run: RunName, forecast_id: Annotated[int, Path(ge=0, le=2**62)]
    ) -> schema.PastCurveAnswer:
        """One earlier forecast with its bands."""
        item = self._find(run)
        entry = self._history.forecast(item.name, forecast_id)
        if entry is None:
            raise HTTPException(
                404, f"forecast {forecast_id} of run {item.name!r} is not kept (any more)"
            )
        grid = self._engine.grid(item.name) if entry.band else ()
        bands = answers.bands(np.array(entry.band).reshape(len(QUANTILES), -1))
        past = answers.past_answer(entry)
        return schema.PastCurveAnswer(forecast=past, compute=list(grid), **bands)

    def status(self, run: RunName) -> schema.StatusAnswer:
        """Staleness, truncation and step, as the run's trainer reports them, and the last events in
        its folder.
        """
        item = self._find(run)
        is_own = item.newest.run == self._tail.run
        step = self._tail.step() if is_own else None
        episodes = () if step is None else episodes_in_words(step)
        events = self._tail.events() if is_own else []
        status, trace = self._board.status(item.newest.run)
        return answers.status_answer(item.name, status, trace, episodes, events)

    def samples(self, run: RunName) -> schema.SamplesAnswer:
        """Completions of the newest evaluations; episodes turn by turn, with tokens
        and log-probs.
        """
        item = self._find(run)
        if item.newest.run != self._tail.run:
            return schema.SamplesAnswer(run=item.name, evaluations=[])
        folder, recorded_steps = self._tail.recorded_steps()
        return schema.SamplesAnswer(
            run=item.name,
            evaluations=self._tail.samples(),
            run_folder=folder,
            recorded_steps=recorded_steps,
        )

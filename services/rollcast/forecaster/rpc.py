"""The gRPC service Forecast: Fit, Predict, Watch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
from pydantic import ValidationError

from rollcast.config.bounds import COMPUTES, MOST_COMPUTE
from rollcast.curves.run_forecast import QUANTILES, RunForecast
from rollcast.forecaster.board import Board
from rollcast.forecaster.own_curve import fit_request
from rollcast.forecaster.schema import FitPoint, FitRequest
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.law.curve import Array
from rollcast.wire import forecast_pb2, forecast_pb2_grpc

MAX_POINTS = 2_000
MAX_PREDICTIONS = 200
MAX_WATCHERS = 64
WAKE_SECONDS = 1.0
"""How soon a watcher that went away is noticed."""


class ForecastService(forecast_pb2_grpc.ForecastServicer):
    """Answers from the board; a caller's mistake is INVALID_ARGUMENT or NOT_FOUND with one sentence."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._watchers = threading.BoundedSemaphore(MAX_WATCHERS)

    def Fit(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        if not 0 < len(request.points) <= MAX_POINTS:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"points: give 1 to {MAX_POINTS}, not {len(request.points)}"
            )
        try:
            wanted = FitRequest(
                points=[
                    FitPoint(
                        compute=point.compute_device_hours,
                        pass_rate=point.pass_rate,
                        standard_error=point.standard_error if point.HasField("standard_error") else None,
                        truncation_ratio=point.truncation_ratio if point.HasField("truncation_ratio") else None,
                    )
                    for point in request.points
                ],
                initial=request.initial if request.HasField("initial") else None,
                exclude_before=request.exclude_before if request.HasField("exclude_before") else None,
                num_prompts=request.num_prompts,
            )
            forecast = fit_request(wanted)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{where}: {first['msg']}")
        except ValueError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        curve = forecast.curve
        return _reply(
            "", len(curve), forecast, forecast.midpoint(QUANTILES), float(curve.compute[-1]), float(curve.pass_rate[-1])
        )

    def Predict(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        forecast = self._board.get(request.run)
        if forecast is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"run {request.run[:100]!r}: no forecast yet")
            raise AssertionError("abort raises")
        compute = list(request.compute_device_hours)
        if not 0 < len(compute) <= MAX_PREDICTIONS or not all(0 < value <= MOST_COMPUTE for value in compute):
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"compute_device_hours: give 1 to {MAX_PREDICTIONS} values in {COMPUTES}",
            )
        readings = forecast.reading(compute)
        return forecast_pb2.PredictReply(
            predictions=[
                forecast_pb2.Prediction(compute_device_hours=value, pass_rate=_interval(readings[:, place]))
                for place, value in enumerate(compute)
            ]
        )

    def Watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        """The newest forecast at once, then each new one; a slow reader gets the newest only."""
        if not self._watchers.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {MAX_WATCHERS} watchers; try again later")
        try:
            sequence = 0
            while context.is_active() and not self._board.closed:
                for forecast in self._board.wait_newer(sequence, request.run, WAKE_SECONDS):
                    sequence = max(sequence, forecast.sequence)
                    yield _run_reply(forecast)
        finally:
            self._watchers.release()


def _run_reply(item: RunForecast) -> Any:
    newest = item.newest
    return _reply(item.name, len(item.evaluations), item.forecast, item.midpoint(), newest.compute, newest.pass_rate)


def _reply(run: str, count: int, forecast: Forecast, midpoint: Array, compute: float, pass_rate: float) -> Any:
    return forecast_pb2.ForecastReply(
        run=run,
        num_points=count,
        verdict=str(forecast.verdict.kind),
        reason=forecast.verdict.reason,
        asymptote=_interval(forecast.asymptote(QUANTILES)),
        exponent=_interval(forecast.exponent(QUANTILES)),
        midpoint_device_hours=_interval(midpoint),
        headroom=_interval(forecast.headroom(QUANTILES)),
        compute_device_hours=compute,
        pass_rate=pass_rate,
    )


def _interval(values: Array) -> Any:
    q05, q25, q50, q75, q95 = (float(value) for value in values)
    return forecast_pb2.Interval(quantile_05=q05, quantile_25=q25, quantile_50=q50, quantile_75=q75, quantile_95=q95)

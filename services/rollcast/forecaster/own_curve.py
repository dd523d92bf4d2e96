"""Fit a curve that a caller sends, for HTTP and gRPC alike."""

from __future__ import annotations

import math

import numpy as np

from rollcast.curves.evaluations import MIN_COMPUTE, known_error, known_truncation
from rollcast.curves.run_forecast import QUANTILES
from rollcast.forecaster.answers import interval
from rollcast.forecaster.schema import FitAnswer, FitRequest, Law, Prediction
from rollcast.scaling.curve import Curve
from rollcast.scaling.forecast import Forecast
from rollcast.scaling.options import FitOptions
from rollcast.scaling.posterior import fit


def fit_request(request: FitRequest) -> Forecast:
    """The posterior of the caller's curve.

    Raises:
        ValueError: one sentence on what is wrong with the points or options.
    """
    points = sorted(request.points, key=lambda point: point.compute)
    least = min((point.compute for point in points if point.compute > 0), default=MIN_COMPUTE)
    if least < MIN_COMPUTE:
        raise ValueError(f"points: compute {least:g} is too small to have been measured; check its unit, device-hours")
    curve = Curve.from_points(
        [point.compute for point in points],
        [point.pass_rate for point in points],
        [known_error(point.standard_error) or math.nan for point in points],
        truncation_ratio=known_truncation(
            np.array([math.nan if point.truncation_ratio is None else point.truncation_ratio for point in points])
        ),
        num_prompts=request.num_prompts or None,
        name="points",
    )
    options = FitOptions(
        initial="measured" if request.initial is None else request.initial,
        exclude_before="auto" if request.exclude_before is None else request.exclude_before,
    )
    try:
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            return fit(curve, options)
    except (ArithmeticError, np.linalg.LinAlgError) as error:
        raise ValueError("points: no law can be fitted to them; check the scale of compute") from error


def fit_answer(request: FitRequest) -> FitAnswer:
    """Raises ValueError as `fit_request` does."""
    forecast = fit_request(request)
    best = forecast.best
    readings = forecast.predictive(request.predict, QUANTILES) if request.predict else np.empty((5, 0))
    laws = forecast.pass_rate(request.predict, QUANTILES) if request.predict else readings
    return FitAnswer(
        num_points=len(forecast.curve),
        excluded=forecast.excluded,
        verdict=str(forecast.verdict.kind),
        reason=forecast.verdict.reason,
        initial=float(forecast.initial((0.5,))[0]),
        asymptote=interval(forecast.asymptote(QUANTILES)),
        exponent=interval(forecast.exponent(QUANTILES)),
        midpoint=interval(forecast.midpoint(QUANTILES)),
        headroom=interval(forecast.headroom(QUANTILES)),
        best=Law(initial=best.initial, asymptote=best.asymptote, exponent=best.exponent, midpoint=best.midpoint),
        predictions=[
            Prediction(compute=compute, reading=interval(readings[:, place]), law=interval(laws[:, place]))
            for place, compute in enumerate(request.predict)
        ],
    )

"""Fit a curve that a caller sends."""

import math
from functools import partial

import numpy as np

from rollcast.curves.answer import law_of_curve, verdict_as_json
from rollcast.curves.axis import known_truncation
from rollcast.curves.evaluations import MIN_COMPUTE, known_error
from rollcast.curves.run_forecast import QUANTILES
from rollcast.forecaster.answers import law_fields, prediction_list
from rollcast.forecaster.schema import FitAnswer, FitRequest
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.law.curve import Curve
from rollcast.scaling.posterior.options import FitOptions


def fit_request(request: FitRequest) -> Forecast:
    """The posterior of the caller's curve.

    Raises ValueError: one sentence on the wrong point or option.
    """
    points = sorted(request.points, key=lambda point: point.compute)
    smallest_compute = min(
        (point.compute for point in points if point.compute > 0), default=MIN_COMPUTE
    )
    if smallest_compute < MIN_COMPUTE:
        raise ValueError(
            f"points: compute {smallest_compute:g} is too small to have been measured; check its "
            "unit, device-hours"
        )
    # None becomes nan.
    truncation = np.array([point.truncation_ratio for point in points], dtype=float)
    curve = Curve.from_points(
        [point.compute for point in points],
        [point.pass_rate for point in points],
        [known_error(point.standard_error) or math.nan for point in points],
        truncation_ratio=known_truncation(truncation),
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
        raise ValueError(
            "points: no law can be fitted to them; check the scale of compute"
        ) from error


def fit_answer(request: FitRequest) -> FitAnswer:
    """Raises ValueError as `fit_request` does."""
    forecast = fit_request(request)
    return FitAnswer(
        num_points=len(forecast.curve) + forecast.curve.num_at_start,
        num_at_start=forecast.curve.num_at_start,
        excluded=forecast.excluded,
        **verdict_as_json(forecast.verdict),
        **law_fields(law_of_curve(forecast)),
        predictions=prediction_list(
            request.predict,
            forecast.verdict,
            partial(forecast.predictive, quantiles=QUANTILES),
            partial(forecast.pass_rate, quantiles=QUANTILES),
        ),
    )

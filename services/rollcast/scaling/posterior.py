"""Fit the law to a curve: points chosen, noise and outliers dealt with, posterior drawn, verdict given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rollcast.scaling.curve import Array, Curve, SigmoidParameters
from rollcast.scaling.departure import transients
from rollcast.scaling.draws import draw
from rollcast.scaling.forecast import Forecast
from rollcast.scaling.grid import Grid, LinearPrior, NoisePrior, solve
from rollcast.scaling.observations import MEDIAN_TO_DEVIATION, Observations, unit_variance
from rollcast.scaling.options import FitOptions
from rollcast.scaling.verdict import judge, judge_break, judge_fall, judge_truncation, suspected_breaks

OUTLIER = 4.0
"""Standardised residual beyond which a point loses weight."""
FAR_WEIGHT = 0.25
"""Weight of a point just beyond `OUTLIER`; it falls with the square of the distance."""
LEAST_ROBUST = 8
"""Fewer points than these cannot tell an outlier from the curve."""
DEEPEST_FIRST_PHASE = 2.0
"""Standard deviations of its amplitude to which a fall can be the first phase of a run that starts above the law."""
FIXED = 1e-4
"""Standard deviation of an R_0 that is given."""


def fit(curve: Curve, options: FitOptions | None = None) -> Forecast:
    """The posterior of the law given `curve`.

    Raises:
        ValueError: no point is left after `exclude_before`; R_0 is fixed at or above every reading of a run that did
            not fall.
    """
    options = options or FitOptions()
    check_start(curve, options)
    return fit_part(curve, options)


def check_start(curve: Curve, options: FitOptions) -> None:
    """Refuse a fixed R_0 that the law, which only rises, can never have left. A run that fell is left to its verdict.

    Raises:
        ValueError: no point is left after `exclude_before`; R_0 is fixed at or above every reading.
    """
    kept = _kept(curve, options)
    highest = float(kept.pass_rate.max())
    if isinstance(options.initial, float | int) and options.initial >= highest and judge_fall(kept) is None:
        raise ValueError(
            f"initial: {options.initial:g} is not below the highest reading of curve {curve.name!r}, {highest:g}, and "
            "the law only rises; give the pass rate at compute 0, or leave it out."
        )


def fit_part(curve: Curve, options: FitOptions) -> Forecast:
    """The same of the beginning of a curve, which may not have risen above its start yet.

    Raises:
        ValueError: no point is left after `exclude_before`.
    """
    prior = options.prior
    kept = _kept(curve, options)
    with_start = options.initial == "measured" and curve.initial is not None
    ends = _transient_ends(kept, options, with_start)
    noise_prior = NoisePrior(prior.log_noise, prior.log_noise)
    if kept.standard_error is not None:
        noise_prior = NoisePrior(prior.log_error_scale, prior.log_drifting_error_scale)
        prior = replace(prior, drift_weight=prior.error_drift_weight)
    linear = _linear_prior(options)

    def posterior(weight: Array | None) -> tuple[Observations, Grid]:
        points = Observations.of(kept, prior.drift_length, weight, with_start)
        return points, solve(points, prior, linear, noise_prior, transients(points, prior, ends))

    observations, grid = posterior(None)
    if options.robust and len(kept) >= LEAST_ROBUST:
        weight = _outlier_weight(kept, grid.best())
        if weight is not None:
            observations, grid = posterior(weight)
    draws = draw(grid)
    end = grid.axes.departures[int(np.argmax(grid.weight.sum(axis=(1, 2, 3))))].at
    verdict = judge_truncation(kept) or judge_fall(kept, end, DEEPEST_FIRST_PHASE * prior.transient_scale)
    suspects = suspected_breaks(observations, grid, prior) if verdict is None else []
    if suspects:
        broken = solve(observations, prior, linear, noise_prior, suspects)
        verdict = judge_break(grid, broken, observations)
    return Forecast(
        curve=curve,
        options=options,
        excluded=int(np.sum(curve.compute < max(_cut(options), end))),
        best=grid.best(),
        departures=grid.axes.departures,
        draws=draws,
        observations=observations,
        verdict=verdict or judge(kept, draws),
    )


def _cut(options: FitOptions) -> float:
    return 0.0 if isinstance(options.exclude_before, str) else float(options.exclude_before)


def _kept(curve: Curve, options: FitOptions) -> Curve:
    return curve.window(_cut(options)) if _cut(options) > 0 else curve


def _transient_ends(curve: Curve, options: FitOptions, with_start: bool) -> list[float]:
    """Candidates for the end of the first phase, in device-hours; one before the first point frees the start alone."""
    first, last = float(curve.compute[0]), float(curve.compute[-1])
    automatic = options.exclude_before == "auto"
    shares = options.prior.start_transient if with_start else options.prior.transient
    ends = [0.5 * first] if with_start and options.exclude_before != 0 else []
    if automatic:
        ends.extend(share * last for share in shares if share * last > first)
    return ends


def _linear_prior(options: FitOptions) -> LinearPrior:
    (initial, initial_spread), (asymptote, asymptote_spread) = options.prior.initial, options.prior.asymptote
    if isinstance(options.initial, float | int):
        initial, initial_spread = float(options.initial), FIXED
    return LinearPrior(mean=np.array([initial, asymptote]), variance=np.array([initial_spread**2, asymptote_spread**2]))


def _outlier_weight(curve: Curve, best: SigmoidParameters) -> Array | None:
    """(n,) weights below 1 for points far from the law and from their neighbours, or None if there is none."""
    residual = curve.pass_rate - best.pass_rate(curve.compute)
    padded = np.pad(residual, 2, mode="reflect")
    local = np.median(np.stack([padded[i : i + residual.size] for i in (0, 1, 3, 4)]), axis=0)
    deviation = (residual - local) / np.sqrt(unit_variance(curve))
    scale = MEDIAN_TO_DEVIATION * float(np.median(np.abs(deviation)))
    standardised = np.abs(deviation) / max(scale, 1e-9)
    if not np.any(standardised > OUTLIER):
        return None
    far = standardised > OUTLIER
    weight: Array = np.where(far, FAR_WEIGHT * (OUTLIER / np.maximum(standardised, OUTLIER)) ** 2, 1.0)
    return weight

"""Fit the law to a curve: points chosen, noise and outliers dealt with, posterior drawn, verdict given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rollcast.scaling.curve import Array, Curve, SigmoidParameters
from rollcast.scaling.departure import candidates
from rollcast.scaling.draws import Draws, draw
from rollcast.scaling.evidence import evidence
from rollcast.scaling.forecast import Forecast
from rollcast.scaling.grid import Grid, LinearPrior, NoisePrior, outline, solve
from rollcast.scaling.misfit import judge_misfit
from rollcast.scaling.observations import MEDIAN_TO_DEVIATION, Observations, unit_variance
from rollcast.scaling.options import FitOptions
from rollcast.scaling.prior import LAW_PRIOR, Prior
from rollcast.scaling.verdict import (
    LEAST_POINTS,
    Verdict,
    judge,
    judge_break,
    judge_fall,
    judge_truncation,
    suspected_breaks,
)

OUTLIER = 4.0
"""Standardised residual beyond which a point loses weight."""
FAR_WEIGHT = 0.25
"""Weight of a point just beyond `OUTLIER`; it falls with the square of the distance."""
LEAST_ROBUST = 8
"""Fewer points than these cannot tell an outlier from the curve."""
DEEPEST_FIRST_PHASE = 2.0
"""Standard deviations of its amplitude to which a fall can be the first phase of a run that starts above the law."""
NOTABLE = 0.2
"""Posterior weight from which the end of a first phase counts."""
TRAJECTORIES = 1024
"""That are held against the readings: enough to tell one in a thousand."""
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
        return points, solve(points, prior, linear, noise_prior, candidates(points, prior, ends))

    def broke() -> Verdict | None:
        # A steep rise looks like a break, so breaks are looked for beside a law as the paper prints them.
        usual = replace(prior, log_exponent=LAW_PRIOR.log_exponent, tail_weight=0.0, jump_weight=0.0)
        settled = grid
        if usual != prior:
            settled = outline(observations, usual, linear, noise_prior, candidates(observations, usual, ends))
        suspects = suspected_breaks(observations, settled, prior)
        if not suspects:
            return None
        # A run that breaks has no tail, which the prior must pay as it does for a law without one.
        paid = float(np.log1p(-prior.tail_weight)) if prior.tail_weight < 1.0 else 0.0
        suspects = [replace(suspect, log_prior=suspect.log_prior + paid) for suspect in suspects]
        broken = solve(observations, usual, linear, noise_prior, suspects)
        return judge_break(grid, broken, observations, curve.unit)

    observations, grid = posterior(None)
    if options.robust and len(kept) >= LEAST_ROBUST:
        weight = _outlier_weight(kept, grid.best())
        if weight is not None:
            observations, grid = posterior(weight)
    draws = draw(grid, observations, prior.tail_falls)
    end = _end_of_first_phase(grid)
    verdict = judge_truncation(kept) or judge_fall(kept, end, DEEPEST_FIRST_PHASE * prior.transient_scale)
    verdict = verdict or broke() or _judge_law(kept, draws, observations, end, prior)
    return Forecast(
        curve=curve,
        options=options,
        excluded=int(np.sum(curve.compute < max(_cut(options), end))),
        best=grid.best(),
        draws=draws,
        observations=observations,
        verdict=verdict,
    )


def _judge_law(curve: Curve, draws: Draws, observations: Observations, first_phase: float, prior: Prior) -> Verdict:
    """Of a run that did not break."""
    verdict = judge(curve, draws, prior)
    if len(curve) < LEAST_POINTS:
        return verdict
    some = draws[:: max(1, draws.initial.size // TRAJECTORIES)]
    law = some.law(np.exp(observations.log_compute))
    if verdict.kind.is_decidable:
        verdict = judge_misfit(some, law, observations) or verdict
    rests_on = evidence(
        curve, draws, observations, law.mean(axis=1), first_phase, is_described=verdict.kind.is_described
    )
    return replace(verdict, reason=f"{verdict.reason} {rests_on}")


def _end_of_first_phase(grid: Grid) -> float:
    """The last end of a first phase that has notable weight, whatever its size and tail; device-hours, 0 for none."""
    ends = np.array([departure.at for departure in grid.axes.departures])
    each, place = np.unique(ends, return_inverse=True)
    weight = np.bincount(place, grid.weight.sum(axis=(1, 2, 3)))
    return float(np.max(each[weight >= NOTABLE], initial=0.0))


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
    near = [padded[place : place + residual.size] for place in (0, 1, 3, 4)]
    # The median of four is the mean of the middle two; numpy's own takes four times as long, and rows may be a million.
    local = 0.5 * (sum(near) - np.minimum.reduce(near) - np.maximum.reduce(near))
    deviation = (residual - local) / np.sqrt(unit_variance(curve))
    scale = MEDIAN_TO_DEVIATION * float(np.median(np.abs(deviation)))
    standardised = np.abs(deviation) / max(scale, 1e-9)
    if not np.any(standardised > OUTLIER):
        return None
    far = standardised > OUTLIER
    weight: Array = np.where(far, FAR_WEIGHT * (OUTLIER / np.maximum(standardised, OUTLIER)) ** 2, 1.0)
    return weight

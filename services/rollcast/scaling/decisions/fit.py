"""`fit(curve)`: the posterior of the law, and the verdict on it."""

from dataclasses import replace

import numpy as np

from rollcast.scaling.decisions.breaks import judge_break, suspected_breaks
from rollcast.scaling.decisions.falls import judge_fall, judge_truncation
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.misfit import judge_misfit
from rollcast.scaling.decisions.no_learning import judge_early, judge_no_learning
from rollcast.scaling.decisions.settings import FORECAST_FACTOR, MIN_LAW_POINTS
from rollcast.scaling.decisions.trend import judge_trend
from rollcast.scaling.decisions.verdict import Verdict, VerdictKind, evidence, judge, judge_number
from rollcast.scaling.law.curve import Curve
from rollcast.scaling.outlook.combined import EVEN_LEVELS
from rollcast.scaling.posterior.fitting import (
    Posterior,
    cut_before,
    fit_posterior,
    fitted_part,
    make_departures,
)
from rollcast.scaling.posterior.grid import Grid
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.placement import outline, solve
from rollcast.scaling.posterior.prior import LAW_PRIOR

NOT_JUDGED = Verdict(VerdictKind.TOO_EARLY, "")
"""Placeholder in the forecast from which the verdict is made."""
SECOND_REFIT_KINDS = (VerdictKind.BROKEN, VerdictKind.NOT_SIGMOID, VerdictKind.REGIME_CHANGE)
"""Verdicts that take the numbers of the law away, and that single evaluations would switch on and
off."""


def fit(curve: Curve, options: FitOptions | None = None) -> Forecast:
    """The posterior of the law given `curve`, and the verdict.

    Raises:
        ValueError: no point is left after `exclude_before`; R_0 is fixed at or above every reading
            of a run that did not fall.
    """
    options = options or FitOptions()
    check_start(curve, options)
    return fit_part(curve, options)


def check_start(curve: Curve, options: FitOptions) -> None:
    """Refuse a fixed R_0 that the law, which only rises, can never have left. A run that fell is
    left to its verdict.

    Raises:
        ValueError: no point is left after `exclude_before`; R_0 is fixed at or above every reading.
    """
    fitted_curve = fitted_part(curve, options)
    highest = float(fitted_curve.pass_rate.max())
    if (
        isinstance(options.initial, float | int)
        and options.initial >= highest
        and judge_fall(fitted_curve) is None
    ):
        raise ValueError(
            f"initial: {options.initial:g} is not below the highest reading of curve "
            f"{curve.name!r}, {highest:g}, and "
            "the law only rises; give the pass rate at compute 0, or leave it out."
        )


def fit_part(curve: Curve, options: FitOptions) -> Forecast:
    """The fit of the beginning of a curve, which may not have risen above its start yet.

    A single evaluation does not take the numbers away: a break or a misfit counts from its second
    refit on.

    Raises:
        ValueError: no point is left after `exclude_before`.
    """
    posterior = fit_posterior(curve, options)
    forecast = _make_forecast(curve, options, posterior, _verdict_on_the_readings(posterior))
    first_verdict = forecast.verdict
    if first_verdict.kind not in SECOND_REFIT_KINDS or _was_broken(curve, options):
        return forecast
    forecast = _make_forecast(curve, options, posterior, None)
    if forecast.verdict.kind is VerdictKind.NO_LEARNING:
        return forecast
    reason = (
        f"The newest evaluation alone speaks for {str(first_verdict.kind).replace('_', ' ')}; the "
        "next one decides."
    )
    return replace(
        forecast, verdict=replace(forecast.verdict, kind=VerdictKind.TOO_EARLY, reason=reason)
    )


def _was_broken(curve: Curve, options: FitOptions) -> bool:
    """Whether the curve without its newest evaluation got such a verdict already, or is too short
    for one.
    """
    earlier = curve.beginning(len(curve) - 1)
    if int(np.sum(earlier.compute >= cut_before(options))) < MIN_LAW_POINTS:
        return True
    posterior = fit_posterior(earlier, options)
    verdict = _make_forecast(
        earlier, options, posterior, _verdict_on_the_readings(posterior)
    ).verdict
    return verdict.kind in SECOND_REFIT_KINDS


def _make_forecast(
    curve: Curve, options: FitOptions, posterior: Posterior, verdict: Verdict | None
) -> Forecast:
    """The forecast of a run with this verdict on its readings; None: the forecast decides on the
    verdict.
    """
    begin = max(cut_before(options), _end_of_first_phase(posterior.grid))
    if verdict is not None and verdict.kind is VerdictKind.REGIME_CHANGE and verdict.at is not None:
        change = verdict.at
        verdict = _counted_since(curve, verdict, change)
        if verdict.has_forecast:
            begin = change
            posterior = fit_posterior(
                curve, replace(options, exclude_before=begin, initial="fitted")
            )
    forecast = Forecast(
        curve=curve,
        options=options,
        excluded=int(np.sum(curve.compute < begin)),
        best=posterior.grid.best(),
        draws=posterior.draws,
        observations=posterior.problem.observations,
        verdict=verdict or NOT_JUDGED,
    )
    if verdict is not None:
        return forecast
    return replace(forecast, verdict=_verdict_on_the_forecast(forecast, posterior))


def _verdict_on_the_readings(posterior: Posterior) -> Verdict | None:
    """The first verdict that applies whatever is forecast, or None."""
    first_phase = _end_of_first_phase(posterior.grid)
    # 2.0: prior standard deviations of a first phase's amplitude up to which a fall from the start
    # is put down to it.
    deepest = 2.0 * posterior.problem.prior.transient_scale
    return (
        judge_number(posterior.curve)
        or judge_truncation(posterior.curve)
        or judge_fall(posterior.curve, first_phase, deepest)
        or _judge_breaks(posterior)
    )


def _counted_since(curve: Curve, verdict: Verdict, change: float) -> Verdict:
    """The verdict on a run that changed, with how the part from the `change` on is forecast, or why
    it is not.
    """
    count = int(np.sum(curve.compute >= change))
    num_missing = max(MIN_LAW_POINTS - count, 0)
    added = f"The forecast comes from the {count} evaluations of that part alone."
    if num_missing:
        added = f"That part has {count} of the {MIN_LAW_POINTS} evaluations that a forecast needs."
    return replace(verdict, reason=f"{verdict.reason} {added}", num_missing=num_missing)


def _judge_breaks(posterior: Posterior) -> Verdict | None:
    """The verdict that the run broke, or None.

    A steep rise looks like a break, so breaks are searched next to a law as the paper prints them.
    """
    problem = posterior.problem
    prior = problem.prior
    usual = replace(
        problem,
        prior=replace(prior, log_exponent=LAW_PRIOR.log_exponent, tail_weight=0.0, jump_weight=0.0),
    )
    # The grid is solved again only if the usual prior differs.
    settled = posterior.grid
    if usual.prior != prior:
        settled = outline(usual, make_departures(usual, posterior.first_phase_ends))
    suspects = suspected_breaks(problem.observations, settled, prior)
    if not suspects:
        return None
    if prior.tail_weight < 1.0:
        # A run that breaks has no tail; the prior must pay for that as it does for a law without a
        # tail.
        no_tail = float(np.log1p(-prior.tail_weight))
        suspects = [replace(suspect, log_prior=suspect.log_prior + no_tail) for suspect in suspects]
    broken = solve(usual, suspects)
    return judge_break(posterior.grid, broken, problem.observations, posterior.curve.unit)


def _verdict_on_the_forecast(forecast: Forecast, posterior: Posterior) -> Verdict:
    """The verdict on a run that did not break, with the evidence that it rests on."""
    curve = posterior.curve
    draws = posterior.draws
    points = posterior.problem.observations
    # The run, not only the part that the user leaves in: a run that rose before that part has
    # learned.
    still = judge_no_learning(forecast.curve)
    if still is not None:
        return still
    # The ends of the interval are asked for as they are printed elsewhere, so that one answer has
    # one number.
    levels = np.concatenate([[0.05], EVEN_LEVELS, [0.95]])
    low, *later, high = forecast.predictive([FORECAST_FACTOR * float(curve.compute[-1])], levels)[
        :, 0
    ]
    verdict = judge_early(forecast.curve) or judge(
        curve, draws, np.array(later), (float(low), float(high)), forecast.summary.smoothed
    )
    # Every k-th draw: the draws are in the order of the grid, so that these cover it evenly.
    # 1024: draws that are compared with the readings: enough to see one in a thousand.
    thinned_draws = draws[:: max(1, draws.initial.size // 1024)]
    law = thinned_draws.law(np.exp(points.log_compute))  # (n, d)
    if verdict.kind.is_decidable:
        verdict = judge_misfit(thinned_draws, law, points) or verdict
    verdict = judge_trend(forecast.curve, verdict)
    first_phase = _end_of_first_phase(posterior.grid)
    grounds = evidence(
        curve, draws, points, law.mean(axis=1), first_phase, is_described=verdict.is_described
    )
    return replace(verdict, reason=f"{verdict.reason} {grounds}")


def _end_of_first_phase(grid: Grid) -> float:
    """The last end of a first phase that has notable weight, whatever its size and tail;
    device-hours, 0 for none.
    """
    ends = np.array([departure.at for departure in grid.axes.departures])
    unique_ends, end_indices = np.unique(ends, return_inverse=True)
    weight = np.bincount(end_indices, grid.departure_weight)
    # 0.2: posterior weight from which the end of a first phase counts; chosen, not measured.
    return float(np.max(unique_ends[weight >= 0.2], initial=0.0))

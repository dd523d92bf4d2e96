"""The way from a curve to its posterior: choose points, treat noise and outliers, solve the grid,
draw settings.
"""

from dataclasses import dataclass, replace

import numpy as np

from rollcast.scaling.law.curve import Array, Curve, SigmoidParameters
from rollcast.scaling.law.observations import Observations, unit_variance
from rollcast.scaling.law.settings import STD_PER_MEDIAN_DEVIATION
from rollcast.scaling.posterior.departure import Departure, candidates
from rollcast.scaling.posterior.draws import Draws, draw
from rollcast.scaling.posterior.grid import Grid, LinearPrior, NoisePrior, Problem
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.placement import solve


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of one curve.

    Attributes:
        curve: the part of the run that was fitted.
        first_phase_ends: candidates for the end of the first phase, in device-hours.
        problem: points and beliefs.
        grid: the posterior at every node.
        draws: equally likely settings, from the grid.
    """

    curve: Curve
    first_phase_ends: list[float]
    problem: Problem
    grid: Grid
    draws: Draws


def fit_posterior(curve: Curve, options: FitOptions) -> Posterior:
    """The posterior of a run, or of its beginning, which may not have risen above its start yet.

    Raises:
        ValueError: no point is left after `exclude_before`.
    """
    fitted_curve = fitted_part(curve, options)
    has_measured_initial = options.initial == "measured" and curve.initial is not None
    ends = _first_phase_ends(fitted_curve, options, has_measured_initial)
    problem = _problem(fitted_curve, options, has_measured_initial, None)
    grid = solve(problem, make_departures(problem, ends))
    # Outliers are seen only against a fitted law, so the grid is solved twice if there are any.
    # 8: with fewer points an outlier cannot be separated from the curve; chosen, not measured.
    if options.robust and len(fitted_curve) >= 8:
        weight = _outlier_weight(fitted_curve, grid.best())
        if weight is not None:
            problem = _problem(fitted_curve, options, has_measured_initial, weight)
            grid = solve(problem, make_departures(problem, ends))
    draws = draw(grid, problem.observations, problem.prior.tail_falls)
    return Posterior(fitted_curve, ends, problem, grid, draws)


def make_departures(problem: Problem, ends: list[float]) -> list[Departure]:
    """The departures that the prior allows, with first phases until each of `ends`."""
    return candidates(problem.observations, problem.prior, ends)


def cut_before(options: FitOptions) -> float:
    """Device-hours before which the user leaves points out; 0 for none."""
    return 0.0 if isinstance(options.exclude_before, str) else float(options.exclude_before)


def fitted_part(curve: Curve, options: FitOptions) -> Curve:
    """The curve without what the user leaves out. Raises ValueError: nothing is left."""
    cut = cut_before(options)
    return curve.window(cut) if cut > 0 else curve


def _problem(
    fitted_curve: Curve, options: FitOptions, has_measured_initial: bool, weight: Array | None
) -> Problem:
    """`weight` (points,): relative precision of each point, below 1 for outliers; None for 1
    everywhere.
    """
    prior = options.prior
    noise_prior = NoisePrior(prior.log_noise, prior.log_noise)
    if fitted_curve.standard_error is not None:
        # The noise then counts in units of the given errors, which leave the drift less room.
        noise_prior = NoisePrior(prior.log_error_scale, prior.log_drifting_error_scale)
        prior = replace(prior, drift_weight=prior.error_drift_weight)
    points = Observations.from_curve(fitted_curve, prior.drift_length, weight, has_measured_initial)
    initial_mean, initial_std = prior.initial
    asymptote_mean, asymptote_std = prior.asymptote
    if isinstance(options.initial, float | int):
        initial_mean = float(options.initial)
        # 1e-4: pass rate: prior standard deviation of an R_0 that the user fixes.
        initial_std = 1e-4
    linear = LinearPrior(
        np.array([initial_mean, asymptote_mean]), np.array([initial_std**2, asymptote_std**2])
    )
    return Problem(points, prior, linear, noise_prior)


def _first_phase_ends(
    fitted_curve: Curve, options: FitOptions, has_measured_initial: bool
) -> list[float]:
    """Candidates for the end of the first phase, ascending, in device-hours."""
    first = float(fitted_curve.compute[0])
    last = float(fitted_curve.compute[-1])
    ends = []
    if has_measured_initial and options.exclude_before != 0:
        # A first phase that ends before the first point frees the start alone from the law.
        ends.append(0.5 * first)
    if options.exclude_before == "auto":
        shares = options.prior.start_transient if has_measured_initial else options.prior.transient
        ends.extend(share * last for share in shares if share * last > first)
    return ends


def _outlier_weight(curve: Curve, best: SigmoidParameters) -> Array | None:
    """(points,) weights below 1 for points far from the law and from their neighbours; None without
    such points.
    """
    residual = curve.pass_rate - best.pass_rate(curve.compute)
    # The two neighbours on each side: a run that leaves the law for a while has no outliers.
    padded = np.pad(residual, 2, mode="reflect")
    neighbour_residuals = [padded[offset : offset + residual.size] for offset in (0, 1, 3, 4)]
    # The median of four is the mean of the middle two; numpy's own takes four times as long, and
    # rows may be a million.
    local = 0.5 * (
        sum(neighbour_residuals)
        - np.minimum.reduce(neighbour_residuals)
        - np.maximum.reduce(neighbour_residuals)
    )
    deviation = (residual - local) / np.sqrt(unit_variance(curve))
    scale = STD_PER_MEDIAN_DEVIATION * float(np.median(np.abs(deviation)))
    # 1e-9: floor of the scatter that residuals are divided by: readings that repeat to the last
    # digit have no scatter.
    standardised = np.abs(deviation) / max(scale, 1e-9)
    # Standardised residual beyond which a point loses weight. Chosen, not measured; switching
    # outliers off changed no coverage (lab notes, "Calibration of the forecast").
    outlier_standard_deviations = 4.0
    is_outlier = standardised > outlier_standard_deviations
    if not np.any(is_outlier):
        return None
    # 0.25: relative precision of a point just beyond that limit; it falls with the square of the
    # distance.
    falling = (
        0.25
        * (outlier_standard_deviations / np.maximum(standardised, outlier_standard_deviations)) ** 2
    )
    return np.where(is_outlier, falling, 1.0)

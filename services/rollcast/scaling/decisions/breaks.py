"""Whether a run broke: a jump, a fall or a new slope that the law does not have.

The law with a break is compared with the law without it by their evidence, both under every noise
of the grid, drift included. So a run that merely wanders is not called broken. Plain least squares
first finds possible places of a break; most curves show none and cost nothing more.
"""

import numpy as np
from scipy.special import expit

from rollcast.scaling.decisions.digits import compute_in_words
from rollcast.scaling.decisions.settings import (
    MAX_EXPLAINED_SHARE,
    MIN_BREAK,
    MIN_LAW_POINTS,
    MIN_SUSPECTED_BREAK,
)
from rollcast.scaling.decisions.smoothing import smooth_readings
from rollcast.scaling.decisions.verdict import Verdict, VerdictKind
from rollcast.scaling.law.curve import DEVICE_HOURS, Array, SigmoidParameters
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.law.settings import ASYMPTOTE_MARGIN
from rollcast.scaling.posterior.departure import Departure, break_shapes
from rollcast.scaling.posterior.grid import Grid
from rollcast.scaling.posterior.prior import Prior
from rollcast.scaling.posterior.settings import MIN_POINTS_BEFORE_BREAK


def judge_break(
    plain: Grid, broken: Grid, observations: Observations, unit: str = DEVICE_HOURS
) -> Verdict | None:
    """The verdict that the run broke, or None if the law alone explains it as well.

    `plain` and `broken`: the posteriors without and with a break. `unit`: of compute, for the
    reason.
    """
    log_odds = broken.log_evidence - plain.log_evidence
    # 4.6: ln of the evidence ratio at which a break is called, a hundred to one: its place was the
    # best of dozens, and twenty to one comes about by chance in one healthy run of a hundred.
    if log_odds < 4.6:
        return None
    departure, amplitude = _likeliest_break(broken, observations)
    if abs(amplitude) < MIN_BREAK:
        return None
    where = f"from {compute_in_words(departure.at, unit)} on"
    # 1e6: odds above this are not printed: they come from the prior of the noise, not from the
    # readings.
    is_huge = log_odds > np.log(1e6)
    number = "over a million" if is_huge else f"{np.exp(log_odds):,.0f}"
    odds = f"The odds of a break there are {number} to 1."
    if amplitude < 0:
        return Verdict(
            VerdictKind.NOT_SIGMOID,
            (
                f"The pass rate lies {-amplitude:.3f} below the law {where}; the law only rises. "
                f"{odds}"
            ),
        )
    return Verdict(
        VerdictKind.REGIME_CHANGE,
        (
            f"The pass rate lies {amplitude:.3f} above the law {where}; no one sigmoid fits both "
            f"parts. {odds}"
        ),
        departure.at,
    )


def suspected_breaks(observations: Observations, grid: Grid, prior: Prior) -> list[Departure]:
    """The jump and the slide that least squares wants most on top of the best law, if it wants them
    at all.

    Residuals of the best law are projected on each break (Frisch-Waugh theorem). Before that both
    lose what something else could explain: a small change of the law's four parameters, or a likely
    first phase or tail.
    """
    count = observations.log_compute.size
    compute = np.exp(observations.log_compute)
    if count < MIN_LAW_POINTS + 2 or _is_straight(compute, observations.pass_rate):
        return []
    best = grid.best()
    root = np.sqrt(observations.precision)  # (n,) points are whitened by it
    explained_already, _ = np.linalg.qr(
        root[:, None] * _tangent(observations, grid, best)
    )  # (n, k) orthonormal
    residual = root * (observations.pass_rate - best.pass_rate(compute))
    residual = residual - explained_already @ (explained_already.T @ residual)
    total_squares = float(residual @ residual)
    after_peak = _break_after_peak(observations)
    departures = []
    # Floor of the squares of a whitened break shape that the law cannot explain: below it only
    # rounding is left.
    min_free_squares = 1e-9
    for shapes in break_shapes(compute):  # jumps, then slides: (breaks, n)
        phi = root * shapes
        phi = phi - (phi @ explained_already) @ explained_already.T
        squared = np.sum(phi * phi, axis=1)
        # Of a shape that the law's own parameters explain only rounding is left.
        is_free = squared > min_free_squares
        along = np.where(is_free, phi @ residual, 0.0)
        explained = along**2 / np.maximum(squared, min_free_squares)
        index = int(np.argmax(explained))
        # 1e-12: floor of the squared whitened residuals, for readings that are on the law to the
        # last digit.
        share = min(float(explained[index]) / max(total_squares, 1e-12), MAX_EXPLAINED_SHARE)
        improvement = -count * float(np.log1p(-share))
        amplitude_is_notable = abs(along[index]) > MIN_SUSPECTED_BREAK * squared[index]
        # 10.0: gain in n ln(sum of squares) from which the evidence of a break is computed. Chosen
        # for speed: most curves show none.
        if improvement > 10.0 and amplitude_is_notable:
            departures.append(_break(shapes, index, compute, prior))
        if after_peak is not None:
            departures.append(_break(shapes, after_peak, compute, prior))
    return departures


def _is_straight(compute: Array, pass_rate: Array) -> bool:
    """Whether the readings (n,) are on one straight line, which no sigmoid is: the line has no
    place of a break.
    """
    line = np.polynomial.Polynomial.fit(compute, pass_rate, deg=1)
    # 0.005: pass rate: readings this close to a straight line have no noise, and any misfit of a
    # sigmoid would have huge odds.
    return bool(np.max(np.abs(pass_rate - line(compute))) < 0.005)


def _break(shapes: Array, index: int, compute: Array, prior: Prior) -> Departure:
    break_compute = float(compute[MIN_POINTS_BEFORE_BREAK + index])
    # -0.6931471805599453: ln of the prior probability of a jump, and of a slide: 1/2 each.
    return Departure(shapes[index], prior.break_scale, -0.6931471805599453, break_compute)


def _tangent(observations: Observations, grid: Grid, best: SigmoidParameters) -> Array:
    """(n, k) what a small change of each parameter of the best law does to R, and the likely first
    phases and tails.
    """
    rise = best.rise(np.exp(observations.log_compute))
    bend = rise * (1.0 - rise)
    # The measured start is at ln 0: B cannot move the law there.
    is_finite = np.isfinite(observations.log_compute)
    distance = np.where(is_finite, observations.log_compute - np.log(best.midpoint), 0.0)
    # 0.1: posterior weight from which a first phase or tail may explain residuals before a break
    # does; chosen, not measured.
    likely = grid.departure_weight > 0.1
    departures = [d for d, is_likely in zip(grid.axes.departures, likely, strict=True) if is_likely]
    phases = [d.shape for d in departures if d.shape is not None]
    tails = [d.tail.shape for d in departures if d.tail is not None]
    # In this order: R_0, A, C_mid, B.
    return np.stack([1.0 - rise, rise, bend, bend * distance, *phases, *tails], axis=1)


def _break_after_peak(observations: Observations) -> int | None:
    """Index in `break_shapes` of the break after the highest stretch, if the last points lie
    clearly below that.
    """
    smooth = smooth_readings(observations.pass_rate)
    top = int(np.argmax(smooth.mean))
    fall = smooth.mean[top] - smooth.mean[-1]
    # 2.0: standard errors below the peak at which a fall from there is tried as a break; chosen,
    # not measured.
    if fall < max(ASYMPTOTE_MARGIN, 2.0 * smooth.noise * np.sqrt(2.0 / smooth.width)):
        return None
    last = observations.pass_rate.size - 2 - MIN_POINTS_BEFORE_BREAK
    return min(max(top + smooth.width - MIN_POINTS_BEFORE_BREAK, 0), last)


def _likeliest_break(grid: Grid, observations: Observations) -> tuple[Departure, float]:
    """The likeliest departure and the mean of its amplitude at the likeliest node."""
    likeliest = np.argmax(grid.weight)
    index, noise, row, column = np.unravel_index(int(likeliest), grid.weight.shape)
    departure = grid.axes.departures[index]
    assert departure.shape is not None
    exponent = np.exp(grid.axes.log_exponent[row])
    midpoint = grid.axes.log_midpoint[row, column]
    rise = expit(exponent * (observations.log_compute - midpoint))
    moments = grid.conditional(np.asarray(likeliest))
    law = moments.initial + (moments.asymptote - moments.initial) * rise
    # The regression of the rotated residuals on the rotated shape, with the Gaussian prior of the
    # amplitude.
    phi: Array = observations.rotation @ departure.shape
    residual = observations.rotation @ (observations.pass_rate - law)
    noises = grid.axes.noises
    precision = np.exp(-2.0 * noises.log_scale[noise]) / (
        1.0 + noises.drift[noise] ** 2 * observations.eigenvalues
    )
    weighted = phi * precision
    return departure, float(weighted @ residual / (1.0 / departure.scale**2 + weighted @ phi))

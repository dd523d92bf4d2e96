"""Whether the readings of a run show a trend beyond their noise.

A law can be fitted to noise around one level, and its forecast is narrow: a narrow band is no
evidence of a law. So the law is compared with a constant, both under noise whose neighbours are
alike:

    constant   y_i = a + e_i
    law        y_i = a + b S(C_i; B, C_mid) + e_i,   b > 0,   S = 1 / (1 + (C_mid / C)^B)
    noise      e_i normal, Var e_i = s^2 v_i, Corr(e_i, e_j) = phi^|i - j|   (AR(1) over the n
               readings)

v_i is the squared standard error if there is one, else 1. The priors of a, of ln s and of b in
units of its own error are flat; phi is even over 0 to 0.9, (B, C_mid) over a small grid. All of
them are integrated out. For one phi and one S, with the readings whitened by phi, RSS_0 and RSS_1
their squares about the constant and about constant and law, and t the estimate of b in standard
errors,

    m_0 = g(phi) RSS_0^(-(n-1)/2)     m_1 = g(phi) RSS_1^(-(n-1)/2) 2 F_{n-1}(t)     odds = mean of
                                      m_1 / mean of m_0

F is the distribution function of Student's t, so that only a rise counts. The odds depend neither
on the level nor on the scale of the readings: one limit holds for every run of n readings,

    ln odds >= 2.4 + 20 / n^2

Share of series without a trend that reach it, 6,000 of each kind (1,500 from 100 readings on):

    readings          5     6     9    16    30    60   100   200
    independent     .022  .020  .020  .019  .017  .025  .027  .019
    AR(1), 0.5      .056  .051  .045  .044  .050  .043  .049  .044
    AR(1), 0.7      .067  .070  .081  .082  .074  .053  .045  .035

`python -m benchmarks.noise_verdicts` counts the verdicts that follow.
"""

import numpy as np
from scipy.special import stdtr

from rollcast.scaling.decisions.settings import (
    MAX_EXPLAINED_SHARE,
    TREND_EXPONENTS,
    TREND_MIDPOINTS,
    TREND_NOISE_CORRELATIONS,
)
from rollcast.scaling.decisions.verdict import Verdict, VerdictKind
from rollcast.scaling.law.curve import Array, Curve, sigmoid
from rollcast.scaling.law.settings import MIN_STANDARD_ERROR


def judge_trend(curve: Curve, verdict: Verdict) -> Verdict:
    """The `verdict`, or that it is too early because the readings show no trend yet.

    A single evaluation must not take the numbers away: they are kept if there was a trend without
    the newest one.
    """
    if verdict.kind not in (VerdictKind.TOO_EARLY, VerdictKind.FORECASTABLE):
        return verdict
    log_odds = trend_log_odds(curve)
    min_log_odds = least_trend_log_odds(curve)
    if log_odds >= min_log_odds:
        return verdict
    still = f"{verdict.reason} " if verdict.kind is VerdictKind.TOO_EARLY else ""
    return Verdict(
        VerdictKind.TOO_EARLY,
        f"{still}No trend yet: the odds of a rise against noise around one level are "
        f"{_odds(log_odds)} to 1; a trend takes {_odds(min_log_odds)} to 1.",
        has_trend=has_trend(curve.beginning(len(curve) - 1)),
    )


def _odds(log_odds: float) -> str:
    return f"{np.exp(log_odds):.2g}"


def has_trend(curve: Curve) -> bool:
    """Whether the readings rise beyond noise."""
    return trend_log_odds(curve) >= least_trend_log_odds(curve)


def least_trend_log_odds(curve: Curve) -> float:
    """The limit for that many readings, the measured start included."""
    # 2.4: ln of the odds, 11 to 1, from which readings show a trend. Of runs without one, 5 % of
    # those whose noise is an AR(1) process with 0.5 pass it, and 1 to 4 % of those with independent
    # noise (python -m benchmarks.noise_verdicts).
    # 20.0: added to this limit, times the squared number of readings: few readings fall in line by
    # chance.
    return 2.4 + 20.0 / (len(curve) + curve.num_at_start) ** 2


def trend_log_odds(curve: Curve) -> float:
    """ln of the odds that the readings rise as a law does, against noise around one level."""
    compute = curve.compute
    readings = curve.pass_rate
    error = np.ones(len(curve)) if curve.standard_error is None else curve.standard_error
    if curve.initial is not None:
        first = curve.initial_standard_error if curve.standard_error is not None else None
        compute = np.append(0.0, compute)
        readings = np.append(curve.initial, readings)
        error = np.append(error[0] if first is None else first, error)
    # 512: readings that are compared as they are; more are averaged in blocks first. Chosen for
    # speed.
    block = -(-readings.size // 512)
    if block > 1:
        # Means of equally many neighbours rise as well; the newest readings are kept.
        num_dropped = readings.size % block
        compute, readings, error = (
            series[num_dropped:].reshape(-1, block).mean(axis=1)
            for series in (compute, readings, error)
        )
    return float(log_odds_of_rise(readings[None], compute, error)[0])


def log_odds_of_rise(readings: Array, compute: Array, error: Array) -> Array:
    """ln odds of each series (m, n) at `compute` (n,), with noise in proportion to `error` (n,) ->
    (m,).
    """
    count = compute.size
    root = 1.0 / np.maximum(error, MIN_STANDARD_ERROR)
    midpoint, exponent = np.meshgrid(np.array(TREND_MIDPOINTS) * compute[-1], TREND_EXPONENTS)
    rise = sigmoid(compute, 0.0, 1.0, exponent.reshape(-1, 1), midpoint.reshape(-1, 1))  # (k, n)
    rounding = _rounding_squares(readings, root)
    constant = []
    law = []
    for correlation in TREND_NOISE_CORRELATIONS:
        level = _whiten(root, correlation)
        # ln g: the determinant of the correlation, and the information about the level.
        log_scale = -0.5 * (count - 1) * np.log(1.0 - correlation**2) - 0.5 * np.log(level @ level)
        residual = _without(_whiten(readings * root, correlation), level)
        shape = _without(_whiten(rise * root, correlation), level)
        shape = shape / np.maximum(np.linalg.norm(shape, axis=1, keepdims=True), MIN_STANDARD_ERROR)
        squares = np.sum(residual**2, axis=1)[:, None]  # (m, 1)
        along = residual @ shape.T  # (m, k)
        unexplained = squares - np.minimum(along**2, MAX_EXPLAINED_SHARE * squares) + rounding
        t_value = along * np.sqrt((count - 1) / unexplained)
        power = -0.5 * (count - 1)
        constant.append(log_scale + power * np.log(squares + rounding))
        law.append(
            log_scale
            + power * np.log(unexplained)
            + np.log(2.0 * stdtr(count - 1, np.maximum(t_value, -30)))
        )
    return _log_mean(np.concatenate(law, axis=1)) - _log_mean(np.concatenate(constant, axis=1))


def _rounding_squares(readings: Array, root: Array) -> Array:
    """(m, n) -> (m, 1) squares that rounding to the finest step of the readings leaves; of equal
    readings 1.
    """
    ordered = np.sort(readings, axis=1)
    gaps = np.diff(ordered, axis=1)
    step = np.min(np.where(gaps > 0.0, gaps, np.inf), axis=1, initial=np.inf)
    variance = np.where(np.isfinite(step), step**2 / 12.0, 1.0)
    return np.asarray(variance * np.sum(root**2))[:, None]


def _whiten(values: Array, correlation: float) -> Array:
    """(.., n) with AR(1) errors of variance 1 -> (.., n) with independent ones."""
    innovations = (values[..., 1:] - correlation * values[..., :-1]) / np.sqrt(1.0 - correlation**2)
    return np.concatenate([values[..., :1], innovations], axis=-1)


def _without(values: Array, direction: Array) -> Array:
    """(.., n) less its part along `direction` (n,)."""
    return values - (values @ direction)[..., None] * (direction / (direction @ direction))


def _log_mean(log_values: Array) -> Array:
    """(m, k) -> (m,) ln of the mean of their exponentials."""
    maximum = log_values.max(axis=1, keepdims=True)
    return np.asarray(maximum[:, 0] + np.log(np.mean(np.exp(log_values - maximum), axis=1)))

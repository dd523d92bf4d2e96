"""The distribution of a later reading: the quantiles of the law and of the simple methods,
averaged.

Averaged quantiles keep the shape of both: two unequal bands make one between them, not one with two
peaks. The forecast is of the mean of three readings, on which the learned numbers were scored.
"""

import numpy as np
from scipy.special import ndtri, stdtrit

from rollcast.scaling.law.curve import Array
from rollcast.scaling.outlook.settings import MIN_WIDTH
from rollcast.scaling.outlook.simple import Summary
from rollcast.scaling.posterior.stack import Stack

NUM_EVEN_LEVELS = 64
EVEN_LEVELS: Array = (np.arange(NUM_EVEN_LEVELS) + 0.5) / NUM_EVEN_LEVELS
"""Levels of quantiles that stand for a distribution: equally likely parts of it."""


def combine_quantiles(
    stack: Stack,
    summary: Summary,
    compute: Array,
    levels: Array,
    law_readings: Array,
    law_gain: Array,
) -> Array:
    """Quantiles of the readings at `compute` (m,) -> (q, m), in [0, 1].

    Args:
        levels: (q,) of the quantiles, in (0, 1).
        law_readings: (m, d) equally likely readings of the law, ascending.
        law_gain: (m,) median gain of the law from now on.
    """
    with_middle = np.append(levels, 0.5)
    simple = _simple_quantiles(
        stack, summary, compute, with_middle, law_width(law_readings), law_gain
    )
    # Weight of the law's quantiles; the rest is that of the simple methods'. A learned weight
    # gained nothing on repositories that were left out (lab notes, "The stack").
    law_share = 0.5
    mixed = law_share * order_statistics(law_readings, with_middle) + (1.0 - law_share) * simple
    middle = mixed[-1]
    # Readings of a few answers scatter at least as much as coins do.
    min_deviation = ndtri(levels)[:, None] * summary.coarse_error
    beyond = mixed[:-1] - middle
    wide = np.where(
        levels[:, None] < 0.5, np.minimum(beyond, min_deviation), np.maximum(beyond, min_deviation)
    )
    return np.asarray(np.clip(middle + wide, 0.0, 1.0))


def order_statistics(ascending: Array, levels: Array) -> Array:
    """Quantiles over the last axis (..., d), which ascends -> (q, ...); order statistics, so that
    inf stays inf.
    """
    index = np.rint(levels * (ascending.shape[-1] - 1)).astype(int)
    return np.moveaxis(ascending[..., index], -1, 0)


def law_width(law_readings: Array) -> Array:
    """(m, d) ascending -> (m,) width of the 90 % interval."""
    low, high = order_statistics(law_readings, np.array([0.05, 0.95]))
    return np.asarray(high - low)


def scale_terms(width: Array, forecasts: Array) -> Array:
    """Terms that ln s is linear in -> (3, m).

    `width` (m,) of the law's interval; `forecasts` (7, m) of the methods.
    """
    return np.stack(
        [np.ones_like(width), np.log(width + MIN_WIDTH), np.log(forecasts.std(axis=0) + MIN_WIDTH)]
    )


def side_terms(summary: Summary) -> Array:
    """Terms that the ratio of the two sides depends on -> (2,)."""
    return np.array([1.0, 2.0 * summary.smoothed - 1.0])


def _simple_quantiles(
    stack: Stack, summary: Summary, compute: Array, levels: Array, width: Array, law_gain: Array
) -> Array:
    """Quantiles (q, m) of the two-sided Student's t about the weighted mean of the methods."""
    forecasts = summary.forecasts(compute, law_gain)
    centre = np.asarray(stack.weights) @ forecasts
    scale = np.exp(np.asarray(stack.scale) @ scale_terms(width, forecasts)) + MIN_WIDTH
    tilt = float(np.tanh(np.asarray(stack.side) @ side_terms(summary)))
    up = scale * np.exp(tilt)
    down = scale * np.exp(-tilt)
    # Below the centre lies down / (up + down) of the probability; each side is half of a Student's
    # t.
    below = float(np.exp(-tilt) / (np.exp(tilt) + np.exp(-tilt)))
    is_below = levels < below
    half_level = np.where(
        is_below, 0.5 * levels / below, 0.5 + 0.5 * (levels - below) / (1.0 - below)
    )
    normed = stdtrit(stack.degrees, half_level)[:, None]
    return np.asarray(centre + normed * np.where(is_below[:, None], down, up))

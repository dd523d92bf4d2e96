"""The joint forecast of all arms at the target: a Gaussian process over every reading.

Arms share one curve, so that a reading of one says something of all; their differences decide. How
far arms of this sweep differ, and how much its readings scatter, is found from its own readings
(the largest marginal likelihood times the prior on a small grid).
"""

from dataclasses import replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

from rollcast.scaling.law.curve import Array
from rollcast.scaling.sweep.prior import SweepPrior
from rollcast.scaling.sweep.state import NUM_BINS, BinnedReadings, SweepState, bin_readings

GRID = (-2.0, -1.0, 0.0, 1.0, 2.0)
"""Standard deviations from the centre of the prior at which scale and scatter are tried."""


class SweepBelief:
    """The forecast given the readings of a state.

    Attributes:
        arms: names, (a,) below.
        mean: (a,) levels of the arms at the target, without the deviation of a seed.
        covariance: (a, a) of these levels.
    """

    def __init__(self, state: SweepState, prior: SweepPrior) -> None:
        self.arms = state.arms
        self._arm_of_run = np.array([self.arms.index(run.arm) for run in state.runs])
        readings = bin_readings(state)
        self._prior = _fit(prior, readings, self._arm_of_run)
        self._num_readings_per_bin = _readings_per_bin(state, readings)

        # Points in the order: readings, then every bin of every run, then the arms at the target.
        num_read = len(readings.run)
        num_runs = len(state.runs)
        num_arms = len(self.arms)
        runs = np.concatenate(
            [readings.run, np.repeat(np.arange(num_runs), NUM_BINS), np.full(num_arms, -1)]
        )
        arms = np.concatenate([self._arm_of_run[runs[: runs.size - num_arms]], np.arange(num_arms)])
        middles = (np.arange(NUM_BINS) + 0.5) / NUM_BINS
        share = np.concatenate([readings.share, np.tile(middles, num_runs), np.ones(num_arms)])
        covariance = _covariance(self._prior, arms, runs, share)
        mean = np.full(share.size, prior.mean)
        if num_read:
            noisy = covariance[:num_read, :num_read] + np.diag(_noise(self._prior, readings))
            factor = cho_factor(noisy, lower=True)
            across = covariance[:num_read]
            mean = mean + across.T @ cho_solve(factor, readings.pass_rate - prior.mean)
            covariance = covariance - across.T @ cho_solve(factor, across)
        self._first_bin = num_read
        self._first_arm = share.size - num_arms
        self._posterior = covariance
        self.mean: Array = mean[self._first_arm :]
        self.covariance: Array = covariance[self._first_arm :, self._first_arm :]

    def shifts(self, run: int, bins: range) -> Array:
        """(len(bins), a) how far each standard normal draw of what the run will read in `bins`
        would shift the means of the arms.
        """
        places = self._first_bin + run * NUM_BINS + np.array(bins)
        future = self._posterior[np.ix_(places, places)]
        # A whole bin is read; a part of a reading per bin is a reading of more scatter.
        scatter = self._prior.reading**2 / self._num_readings_per_bin
        factor = cholesky(future + (scatter + 1e-6) * np.eye(len(places)), lower=True)
        across = self._posterior[places, self._first_arm :]
        return np.asarray(solve_triangular(factor, across, lower=True))

    def draws(self, count: int) -> Array:
        """(count, a) joint draws of the levels at the target, the same for the same belief."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        normal = np.random.default_rng(0).standard_normal((count, self.mean.size))
        return np.asarray(self.mean + normal @ root.T)


def _readings_per_bin(state: SweepState, readings: BinnedReadings) -> float:
    bins_run = NUM_BINS * sum(run.spent for run in state.runs)
    # Before the first reading one a bin is assumed; the noise of rarer ones stays bounded.
    return max(0.5, float(readings.num_averaged.sum()) / bins_run) if bins_run else 1.0


def _covariance(prior: SweepPrior, arms: np.ndarray, runs: np.ndarray, share: Array) -> Array:
    """(n, n) of the curves at points of arms, runs (-1: of no seed) and shares."""
    warped = np.log1p(share / prior.time_scale) / np.log1p(1.0 / prior.time_scale)
    path = np.minimum(warped[:, None], warped[None, :])
    trend = warped[:, None] * warped[None, :]
    same_arm = arms[:, None] == arms[None, :]
    same_run = (runs[:, None] == runs[None, :]) & (runs[:, None] >= 0)
    common = prior.common_level**2 + prior.common_path**2 * path + prior.common_trend**2 * trend
    of_arm = prior.arm_level**2 + prior.arm_path**2 * path + prior.arm_trend**2 * trend
    return np.asarray(common + same_arm * of_arm + same_run * prior.seed_path**2 * path)


def _noise(prior: SweepPrior, readings: BinnedReadings) -> Array:
    """(n,) variances of the means. 1e-6 keeps the factorisation positive."""
    scatter = np.maximum(prior.reading**2, readings.variance)
    return np.asarray(scatter / readings.num_averaged + 1e-6)


def log_likelihood(prior: SweepPrior, readings: BinnedReadings, arm_of_run: np.ndarray) -> float:
    """The logarithm of the density of the readings."""
    covariance = _covariance(prior, arm_of_run[readings.run], readings.run, readings.share)
    covariance[np.diag_indices_from(covariance)] += _noise(prior, readings)
    factor = cholesky(covariance, lower=True)
    normed = solve_triangular(factor, readings.pass_rate - prior.mean, lower=True)
    log_density = -0.5 * normed @ normed - np.log(np.diag(factor)).sum()
    return float(log_density - 0.5 * normed.size * np.log(2.0 * np.pi))


def adjust(prior: SweepPrior, scale: float, reading: float) -> SweepPrior:
    """The prior of a sweep whose arms differ e^scale times as much, and whose readings scatter
    e^reading times as much.
    """
    factor = float(np.exp(scale))
    return replace(
        prior,
        arm_level=prior.arm_level * factor,
        arm_path=prior.arm_path * factor,
        arm_trend=prior.arm_trend * factor,
        reading=prior.reading * float(np.exp(reading)),
    )


def _fit(prior: SweepPrior, readings: BinnedReadings, arm_of_run: np.ndarray) -> SweepPrior:
    """The scale and scatter of this sweep."""
    # Two readings say nothing about either.
    if len(readings.run) < 3:
        return prior
    candidates = []
    for scale in GRID:
        for scatter in GRID:
            adjusted = adjust(prior, scale * prior.log_scale, scatter * prior.log_reading)
            penalty = 0.5 * (scale**2 + scatter**2)
            candidates.append((log_likelihood(adjusted, readings, arm_of_run) - penalty, adjusted))
    return max(candidates, key=lambda candidate: candidate[0])[1]

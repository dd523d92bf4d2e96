"""The level of a run at its checkpoints, by the readings before and after each of them.

    y_i = f(u_i) + e_i          u = sqrt((step + 1) / (last step + 1))
    f   = a + b S(u^2) + d(u)   a level, a rise of the law and a drift, all Gaussian
    e_i ~ N(0, s^2 v_i)         v_i the squared standard error, or 4 R (1 - R)

The law only rises, so that a peak is found by the drift: a process with a Matern 3/2 correlation,
whose length and size are integrated out, as s is. On real curves of other groups u had more
evidence than u^2, and Matern 3/2 more than the exponential correlation: a run strays for longer
when it is older, and does not jump.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollcast.scaling.decisions.settings import TREND_EXPONENTS, TREND_MIDPOINTS
from rollcast.scaling.law.chances import best_chances
from rollcast.scaling.law.curve import Array, Curve, sigmoid
from rollcast.scaling.law.observations import unit_variance
from rollcast.scaling.posterior.prior import DEFAULT_PRIOR
from rollcast.scaling.posterior.settings import NUM_DRAWS


@dataclass(frozen=True, eq=False)
class CheckpointLevels:
    """Equally likely levels of the run at each of its checkpoints.

    Attributes:
        steps: of the checkpoints, m of them.
        draws: (d, m) pass rates; a row is one trajectory.
    """

    steps: tuple[int, ...]
    draws: Array

    @property
    def mean(self) -> Array:
        """(m,)"""
        return np.asarray(self.draws.mean(axis=0))

    @property
    def best(self) -> int:
        """Index of the checkpoint with the highest level: not of the highest reading, which is the
        luckiest one.
        """
        return int(np.argmax(self.mean))

    @property
    def chances(self) -> Array:
        """(m,) probability of each checkpoint to be the best of them."""
        return best_chances(self.draws.T)

    def level(self, index: int) -> tuple[float, float, float]:
        """The level of a checkpoint and the ends of its 90 % interval."""
        low, high = np.quantile(self.draws[:, index], (0.05, 0.95))
        # A Gaussian process knows no bounds.
        mean, low, high = np.clip((self.mean[index], low, high), 0.0, 1.0).tolist()
        return mean, low, high

    def chance_above(self, index: int, other: int) -> float:
        """Probability that the level at `index` is above that at `other`."""
        return float(np.mean(self.draws[:, index] > self.draws[:, other]))

    def only(self, indices: Sequence[int]) -> "CheckpointLevels":
        """The levels of these checkpoints alone."""
        chosen = list(indices)
        return CheckpointLevels(tuple(self.steps[index] for index in chosen), self.draws[:, chosen])


def checkpoint_levels(
    steps: Sequence[int], readings: Sequence[tuple[int, float, float | None]]
) -> CheckpointLevels:
    """The levels at `steps`, given readings: step, pass rate and standard error of each, one at
    least.

    Raises:
        ValueError: no reading, or a pass rate outside [0, 1].
    """
    # From 1 on, so that a reading before the first step is a point like the others.
    curve = _merge_readings(
        Curve.from_points(
            [step + 1.0 for step, _, _ in readings],
            [pass_rate for _, pass_rate, _ in readings],
            [np.nan if error is None else error for _, _, error in readings],
        )
    )
    asked = np.asarray(steps, dtype=float) + 1.0
    last = max(float(curve.compute[-1]), float(np.max(asked, initial=1.0)))
    position = np.sqrt(np.concatenate([curve.compute, asked]) / last)
    return CheckpointLevels(tuple(steps), _draw(curve, position))


def _merge_readings(curve: Curve) -> Curve:
    """Means of neighbours if there are very many readings, the newest kept."""
    # 128: readings that are compared as they are: the time grows with their cube. Chosen for speed.
    size = -(-len(curve) // 128)
    if size == 1:
        return curve
    first = len(curve) % size
    compute, pass_rate = (
        values[first:].reshape(-1, size).mean(axis=1) for values in (curve.compute, curve.pass_rate)
    )
    error = curve.standard_error
    if error is not None:
        error = np.sqrt(np.mean(error[first:].reshape(-1, size) ** 2, axis=1) / size)
    return Curve(compute, pass_rate, error)


def _draw(curve: Curve, position: Array) -> Array:
    """(d, m) joint draws at the last m of `position` (n + m,); the first n are those of the
    readings.
    """
    count = len(curve)
    centre = float(np.mean(curve.pass_rate))
    root = 1.0 / np.sqrt(unit_variance(curve))  # (n,) readings are whitened by it
    noise, log_noise_weight = _noises(curve)
    log_weights = []
    posteriors = []
    for covariance in _covariances(position):
        own = covariance[:count, :count]
        values, vectors = np.linalg.eigh(own * root[:, None] * root)
        values = np.maximum(values, 0.0)
        rotated = vectors.T @ (root * (curve.pass_rate - centre))
        gain = (covariance[count:, :count] * root) @ vectors  # (m, n)
        variance = values + noise[:, None] ** 2  # (k, n) of the rotated readings, for each noise
        fit = -0.5 * np.sum(rotated**2 / variance + np.log(variance), axis=1)
        log_weights.append(fit + log_noise_weight)
        posteriors.append((covariance[count:, count:], gain, rotated, variance))
    weight = np.exp(np.concatenate(log_weights) - np.max(log_weights))
    shares = np.rint(NUM_DRAWS * np.cumsum(weight) / np.sum(weight)).astype(int)
    num_draws = np.diff(shares, prepend=0).reshape(len(posteriors), -1)
    rng = np.random.default_rng(0)  # the same readings have the same answer
    draws = []
    for (prior, gain, rotated, variance), numbers in zip(posteriors, num_draws, strict=True):
        for number, noisy in zip(numbers.tolist(), variance, strict=True):
            if number:
                spread = prior - (gain / noisy) @ gain.T
                normal = rng.standard_normal((number, spread.shape[0]))
                draws.append(gain @ (rotated / noisy) + normal @ _square_root(spread).T)
    return np.asarray(centre + np.concatenate(draws))


def _covariances(position: Array) -> list[Array]:
    """The candidates of the covariance of f, (n + m, n + m) each, equally likely before any
    reading.
    """
    midpoint, exponent = np.meshgrid(TREND_MIDPOINTS, TREND_EXPONENTS)
    rises = sigmoid(position**2, 0.0, 1.0, exponent.reshape(-1, 1), midpoint.reshape(-1, 1))
    # 0.5 and 0.35: pass rate: standard deviations of the level and of the rise; broad.
    trend = 0.5**2 + 0.35**2 * rises.T @ rises / len(rises)
    distance = np.abs(position[:, None] - position)
    covariances = []
    # Lengths on the axis of u, from a few evaluations to most of a run.
    for length in (0.02, 0.06, 0.2, 0.6):
        scaled = np.sqrt(3.0) * distance / length
        correlation = (1.0 + scaled) * np.exp(-scaled)
        # Pass rate: from drifts that no one would notice to a collapse.
        covariances += [
            trend + size**2 * correlation for size in (0.003, 0.006, 0.012, 0.025, 0.05, 0.1, 0.2)
        ]
    return covariances


def _noises(curve: Curve) -> tuple[Array, Array]:
    """(k,) candidates of s, and the ln of their prior probabilities."""
    has_errors = curve.standard_error is not None
    middle, scale = (
        DEFAULT_PRIOR.log_drifting_error_scale if has_errors else DEFAULT_PRIOR.log_noise
    )
    # From a fiftieth to fifty times the usual noise of readings of unknown origin.
    distance = np.linspace(-4.0, 4.0, 13)
    # Student's t with 3 degrees of freedom.
    return np.exp(middle + scale * distance), -2.0 * np.log1p(distance**2 / 3.0)


def _square_root(covariance: Array) -> NDArray[np.float64]:
    """(m, m) R with R R^T = the covariance, which rounding may have left slightly indefinite."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))

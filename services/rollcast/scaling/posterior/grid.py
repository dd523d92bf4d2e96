"""The posterior on a dense grid, its linear part in closed form.

For given (B, C_mid) the law is linear in (R_0, A): R = R_0 (1 - S) + A S with S = 1 / (1 + (C_mid /
C)^B). With a Gaussian prior on (R_0, A) and a given noise (s, rho) their posterior is Gaussian and
the evidence of the node is exact. A departure from the law is a rank-one update of the covariance.
So the grid needs four axes only, whose letters stand for their sizes in every shape:

    h  departures        j  noises (s, rho)        b  ln B        m  ln C_mid

and n is the number of merged points. `placement.py` chooses the nodes; this file computes their
weights.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from rollcast.scaling.law.curve import Array, SigmoidParameters
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.posterior.departure import Departure
from rollcast.scaling.posterior.normal_equations import (
    Conditional,
    Normal,
    conditional,
    node_log_evidence,
    with_departures,
)
from rollcast.scaling.posterior.prior import Prior


@dataclass(frozen=True, eq=False)
class LinearPrior:
    """Independent Gaussians on (R_0, A): mean (2,) and variance (2,)."""

    mean: Array
    variance: Array


class NoisePrior(NamedTuple):
    """Centre and scale of the ln of the whole noise, without drift and with it."""

    white: tuple[float, float]
    drifting: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Problem:
    """The points of a curve and the priors: all that a posterior depends on except the
    departures.
    """

    observations: Observations
    prior: Prior
    linear: LinearPrior
    noise_prior: NoisePrior

    @property
    def log_reference(self) -> float:
        """ln of the compute that the prior of C_mid is relative to: the last point's unless the
        prior names one.
        """
        if self.prior.midpoint_reference is not None:
            return float(np.log(self.prior.midpoint_reference))
        return float(self.observations.log_compute[-1])


@dataclass(frozen=True, eq=False)
class Noises:
    """Candidates of the noise, pairs of s and rho.

    Attributes:
        log_scale: (j,) ln s.
        drift: (j,) rho.
        log_prior: (j,) ln of the prior density.
        cell: distance of neighbours in the ln of the whole noise, s^2 (1 + rho^2).
    """

    log_scale: Array
    drift: Array
    log_prior: Array
    cell: float


@dataclass(frozen=True, eq=False)
class Axes:
    """Nodes of the grid.

    Attributes:
        departures: h candidates.
        noises: j candidates.
        log_exponent: (b,) ln B, equidistant.
        log_midpoint: (b, m) ln C_mid, equidistant in each row. The rows are sheared along the ridge
            on which a larger B makes up for another C_mid.
    """

    departures: tuple[Departure, ...]
    noises: Noises
    log_exponent: Array
    log_midpoint: Array

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(h, j, b, m)."""
        num_exponents, num_midpoints = self.log_midpoint.shape
        return len(self.departures), self.noises.log_scale.size, num_exponents, num_midpoints

    @property
    def exponent_cell(self) -> float:
        """Distance of neighbours in ln B."""
        return float(self.log_exponent[1] - self.log_exponent[0])

    @property
    def midpoint_cell(self) -> float:
        """Distance of neighbours in ln C_mid."""
        return float(self.log_midpoint[0, 1] - self.log_midpoint[0, 0])


@dataclass(frozen=True, eq=False)
class Grid:
    """Posterior on the grid.

    Attributes:
        weight: (h, j, b, m) posterior probability of each node, summing to 1.
        normal: the normal equations of each node, (h, j, b m), in R_0 - level and A - level.
        level: mean pass rate of the points.
        log_evidence: ln of the probability of the readings under all nodes together.
    """

    axes: Axes
    weight: Array
    normal: Normal
    level: float
    log_evidence: float

    @property
    def departure_weight(self) -> Array:
        """(h,) posterior probability of each departure."""
        return np.asarray(self.weight.sum(axis=(1, 2, 3)))

    @property
    def noise_weight(self) -> Array:
        """(j,) posterior probability of each noise."""
        return np.asarray(self.weight.sum(axis=(0, 2, 3)))

    @property
    def plane_weight(self) -> Array:
        """(b, m) posterior probability of each pair of B and C_mid."""
        return np.asarray(self.weight.sum(axis=(0, 1)))

    def conditional(self, nodes: NDArray[np.intp]) -> Conditional:
        """R_0 and A at each of these nodes, which are indices into `weight.ravel()`."""
        p_00, p_01, p_11, b_0, b_1 = (equation.ravel()[nodes] for equation in self.normal[:5])
        return conditional(p_00, p_01, p_11, b_0, b_1, level=self.level)

    def best(self) -> SigmoidParameters:
        """The pair (B, C_mid) of the largest weight, with the mean R_0 and A there, within their
        bounds.
        """
        plane = self.plane_weight
        row, column = np.unravel_index(int(np.argmax(plane)), plane.shape)
        share = self.weight[..., row, column] / plane[row, column]  # (h, j), sums to 1
        nodes = np.arange(self.weight.size).reshape(self.weight.shape)[..., row, column]
        moments = self.conditional(nodes)
        asymptote = float(np.clip(np.sum(share * moments.asymptote), 0.0, 1.0))
        initial = float(np.clip(np.sum(share * moments.initial), 0.0, asymptote))
        return SigmoidParameters(
            initial=initial,
            asymptote=asymptote,
            exponent=float(np.exp(self.axes.log_exponent[row])),
            midpoint=float(np.exp(self.axes.log_midpoint[row, column])),
        )


def evaluate(problem: Problem, axes: Axes) -> Grid:
    """Weights and normal equations at every node."""
    points = problem.observations
    rise = _rotated_rise(points, axes)
    # (j, n): the rotated points are independent, with the variance s^2 (1 + rho^2 lambda).
    scale_squared = np.exp(2 * axes.noises.log_scale)[:, None]
    variance = scale_squared * (1.0 + axes.noises.drift[:, None] ** 2 * points.eigenvalues)
    weight = 1.0 / variance
    plain = _normal_equations(points, problem.linear, variance, weight, rise)
    normal = with_departures(plain, points, axes.departures, weight, rise)

    log_weight = node_log_evidence(normal, points.level).reshape(axes.shape)
    log_weight += _log_prior(problem, axes)
    # Relative to the largest, so that exp neither overflows nor makes all of them 0.
    peak = float(log_weight.max())
    unnormalised = np.exp(log_weight - peak)
    total_weight = float(unnormalised.sum())
    cell = axes.exponent_cell * axes.midpoint_cell
    return Grid(
        axes=axes,
        weight=unnormalised / total_weight,
        normal=normal,
        level=points.level,
        log_evidence=peak + float(np.log(total_weight * abs(cell) * axes.noises.cell)),
    )


def _rotated_rise(points: Observations, axes: Axes) -> Array:
    """(n, b m): S at the points for every node, rotated as the points are."""
    exponent = np.exp(axes.log_exponent)[:, None, None]
    argument = exponent * (points.log_compute - axes.log_midpoint[:, :, None])  # (b, m, n)
    # The logistic function by tanh, which is several times as fast as scipy's expit.
    rise = 0.5 + 0.5 * np.tanh(0.5 * argument)
    return np.asarray(points.rotation @ rise.reshape(-1, points.log_compute.size).T)


def _normal_equations(
    points: Observations, linear: LinearPrior, variance: Array, weight: Array, rise: Array
) -> Normal:
    """The normal equations without a departure: (j, b m), or (j, 1) if B and C_mid play no part.

    The law is a linear model with the columns 1 - S for R_0 and S for A. With W = diag(weight) the
    precision is

        p_00 = (1 - S)^T W (1 - S),   p_01 = (1 - S)^T W S,   p_11 = S^T W S

    and b_0, b_1 are the columns times W times the readings; both get the Gaussian prior's part.

    Args:
        points: the merged points; readings count from their `level`.
        linear: the prior of R_0 and A.
        variance: (j, n) of the rotated points.
        weight: (j, n), 1 / variance.
        rise: (n, b m), S.
    """
    rotated_ones = points.rotation.sum(axis=1)  # (n,) the constant 1, rotated
    data = points.centred  # (n,)
    prior_mean = linear.mean - points.level
    rise_rise = weight @ (rise * rise)
    rise_one = (weight * rotated_ones) @ rise
    rise_data = (weight * data) @ rise
    one_one = (weight @ (rotated_ones * rotated_ones))[:, None]
    one_data = (weight @ (rotated_ones * data))[:, None]
    mixed = rise_one - rise_rise  # (1 - S)^T W S
    return Normal(
        p_00=one_one + 1.0 / linear.variance[0] - rise_one - mixed,
        p_01=mixed,
        p_11=rise_rise + 1.0 / linear.variance[1],
        b_0=one_data + prior_mean[0] / linear.variance[0] - rise_data,
        b_1=rise_data + prior_mean[1] / linear.variance[1],
        constant=(weight @ (data * data) + np.log(variance).sum(axis=1))[:, None],
    )


def _log_prior(problem: Problem, axes: Axes) -> Array:
    """(h, j, b, m) ln of the prior density of every node."""
    prior = problem.prior
    # 4.0: degrees of freedom of Student's t, the prior of ln B. A few runs are far steeper or
    # flatter than most: with a normal prior the misses of A were runs with B below 1.25 or above
    # 2.5 (lab notes, "Calibration of the forecast").
    exponent = log_student_t(axes.log_exponent, *prior.log_exponent, 4.0)  # (b,)
    centre = problem.log_reference + prior.log_midpoint[0]
    scale = prior.log_midpoint[1]
    midpoint = -0.5 * ((axes.log_midpoint - centre) / scale) ** 2 - np.log(scale)  # (b, m)
    departure = np.array([candidate.log_prior for candidate in axes.departures])[:, None, None]
    without_noise = (
        departure + _log_ending(prior, axes) + (exponent[:, None] + midpoint)
    )  # (h, b, m)
    return np.asarray(without_noise[:, None] + axes.noises.log_prior[:, None, None])


def log_student_t(
    value: Array, centre: float | Array, scale: float | Array, degrees: float
) -> Array:
    """ln of the density of Student's t, without the constant that depends on `degrees` alone."""
    deviation = (value - centre) / scale
    return np.asarray(-0.5 * (degrees + 1.0) * np.log1p(deviation**2 / degrees) - np.log(scale))


def _log_ending(prior: Prior, axes: Axes) -> Array:
    """(h, b, m) ln of the probability that a first phase ends within the cell of each departure,
    given C_mid.
    """
    # All tails of a first phase share its cell, and the normal distribution is the slow part: once
    # for each cell.
    cells = list(dict.fromkeys(candidate.cell for candidate in axes.departures))
    cell_of_departure = [cells.index(candidate.cell) for candidate in axes.departures]
    edges = np.array(cells)[:, :, None, None]  # (cells, 2, 1, 1)
    centre, scale = prior.first_phase
    below = ndtr((edges - axes.log_midpoint - centre) / scale)
    probability = below[:, 1] - below[:, 0]
    # 1e-9: floor of the probability that a first phase ends in a cell, before its logarithm is
    # taken.
    return np.asarray(np.log(np.maximum(probability, 1e-9)))[cell_of_departure]

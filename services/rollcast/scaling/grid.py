"""The posterior over a dense grid, its linear part in closed form.

For given (B, C_mid) the law is linear in (R_0, A): R = R_0 (1 - S) + A S with S = 1 / (1 + (C_mid / C)^B). With a
Gaussian prior on (R_0, A) and a noise (s, rho) of the grid, their posterior is Gaussian and the evidence of the node is
exact. A departure from the law is a rank-one update of the covariance. The grid has the axes departure, noise (s and
rho), B, C_mid. It is laid over everything plausible first and then moved to where the weight is, until the posterior of
B and C_mid spreads over several nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypedDict

import numpy as np
from scipy.special import ndtr

from rollcast.scaling.curve import Array, SigmoidParameters
from rollcast.scaling.departure import Departure
from rollcast.scaling.observations import Observations
from rollcast.scaling.prior import Prior

EXPONENT_DEGREES = 4.0
"""Degrees of freedom of Student's t, the prior of ln B: heavy tails, since a few runs are far steeper or flatter than
most."""
NOISE_DEGREES = 3.0
"""The same of the ln of the whole noise: heavier tails still."""
COARSE = (6, 8, 14)
"""Nodes of ln s, ln B and ln C_mid while the grid is being placed."""
REACH = 3.0
"""Scales of the prior, on either side of its centre, over which the first grid is laid."""
NOISE_REACH = 1.8
"""The noise is looked for at least within this factor (ln) of its prior centre."""
TOLD = 30.0
"""But not further than so many prior scales from it: a noise that is told is not looked for elsewhere."""
CELLS = (0.32, 0.65)
"""Widest distance of the first nodes of ln B and of ln C_mid: a curve with little noise falls between wider ones."""
FINE = (18, 20)
"""Nodes of ln B and ln C_mid at last."""
NEGLIGIBLE = 1e-3
"""A node whose marginal weight is below this share of the largest lies outside the refined grid."""
PLACING_DRIFTS = slice(None, None, 2)
"""Every other rho is enough while the grid is being placed."""
RARE = 0.02
"""Noises with less posterior weight than this are not refined."""
PLACING = 3
"""Every how many-th departure is enough while the grid is being placed."""
UNLIKELY = 0.01
"""Departures with less posterior weight than this are not refined."""
RESOLVED = 6.0
"""Effective nodes in the plane of B and C_mid at which the coarse grid is in place."""
MAX_REFINEMENTS = 4
"""Times at most that the coarse grid is laid anew; it is in place before as a rule."""
IMPOSSIBLE = 1e-9
"""Floor of the probability that a first phase ends in a cell, whose logarithm is taken."""
CERTAIN = 5.0
"""Standard deviations from a bound beyond which a normal distribution is taken to lie inside it."""


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
class Axes:
    """Nodes of the grid.

    Attributes:
        departures: h candidates.
        noise, drift: (j,) pairs of ln s and rho; noise_prior: (j,) log density;
            noise_cell: spacing of the ln of the whole noise.
        log_exponent: (b,) ln B, equidistant.
        log_midpoint: (b, m) ln C_mid, equidistant in each row and sheared along the ridge on which B and C_mid trade
            against each other.
    """

    departures: tuple[Departure, ...]
    noise: Array
    drift: Array
    noise_prior: Array
    noise_cell: float
    log_exponent: Array
    log_midpoint: Array


@dataclass(frozen=True, eq=False)
class Grid:
    """Posterior on the grid: arrays of shape (h, j, b, m).

    Attributes:
        weight: posterior probability of each node, summing to 1.
        initial, asymptote: conditional mean of R_0 and A.
        initial_variance, asymptote_variance, covariance: their conditional second moments.
    """

    axes: Axes
    weight: Array
    initial: Array
    asymptote: Array
    initial_variance: Array
    asymptote_variance: Array
    covariance: Array
    log_evidence: float

    def best(self) -> SigmoidParameters:
        """The node (B, C_mid) of the largest weight, with the mean R_0 and A there, within their bounds."""
        plane = self.weight.sum(axis=(0, 1))
        row, column = np.unravel_index(int(np.argmax(plane)), plane.shape)
        share = self.weight[..., row, column] / plane[row, column]
        asymptote = float(np.clip(np.sum(share * self.asymptote[..., row, column]), 0.0, 1.0))
        initial = float(np.clip(np.sum(share * self.initial[..., row, column]), 0.0, asymptote))
        return SigmoidParameters(
            initial=initial,
            asymptote=asymptote,
            exponent=float(np.exp(self.axes.log_exponent[row])),
            midpoint=float(np.exp(self.axes.log_midpoint[row, column])),
        )


def solve(
    observations: Observations,
    prior: Prior,
    linear: LinearPrior,
    noise_prior: NoisePrior,
    departures: list[Departure],
) -> Grid:
    """The posterior on a grid that resolves it.

    The grid is placed with departures from the whole list, since each has its posterior elsewhere: a grid placed with
    one of them would cut the others off. Noises and departures that turn out unlikely are dropped before the end.
    """
    axes = _placed(observations, prior, linear, noise_prior, departures[::-PLACING][::-1])
    grid = evaluate(observations, prior, linear, replace(axes, departures=tuple(departures)))
    carrying = grid.weight.sum(axis=(1, 2, 3)) > UNLIKELY
    axes = replace(
        _moved(grid, FINE), departures=tuple(d for d, keep in zip(departures, carrying, strict=True) if keep)
    )
    return evaluate(observations, prior, linear, axes)


def _placed(
    observations: Observations,
    prior: Prior,
    linear: LinearPrior,
    noise_prior: NoisePrior,
    departures: list[Departure],
) -> Axes:
    """Coarse axes over the posterior under these departures, with the likely ones of all noises."""
    reference = _log_reference(prior, observations)
    centre, scale = np.mean(noise_prior, axis=0)
    noise = _around(centre, max(REACH * scale, min(NOISE_REACH, TOLD * scale)), COARSE[0])
    exponents = _around(prior.log_exponent[0], REACH * prior.log_exponent[1], COARSE[1], CELLS[0])
    midpoints = _around(reference + prior.log_midpoint[0], REACH * prior.log_midpoint[1], COARSE[2], CELLS[1])
    axes = Axes(
        departures=tuple(departures),
        **_noise_axis(noise, prior, noise_prior, drifts=PLACING_DRIFTS),
        log_exponent=exponents,
        log_midpoint=np.tile(midpoints, (exponents.size, 1)),
    )
    for _ in range(MAX_REFINEMENTS):
        grid = evaluate(observations, prior, linear, axes)
        noise = _narrow(noise, grid.weight.sum(axis=(0, 2, 3)).reshape(noise.size, -1).sum(axis=1), COARSE[0])
        axes = replace(_moved(grid, COARSE[1:]), **_noise_axis(noise, prior, noise_prior, drifts=PLACING_DRIFTS))
        if _spread(grid.weight.sum(axis=(0, 1))) >= RESOLVED:
            break
    likeliest = np.argsort(grid.weight.sum(axis=(1, 2, 3)))[-2:]
    axes = replace(
        axes,
        departures=tuple(departures[index] for index in likeliest),
        **_noise_axis(noise, prior, noise_prior),
    )
    grid = evaluate(observations, prior, linear, axes)
    likely = grid.weight.sum(axis=(0, 2, 3)) > RARE
    return replace(axes, noise=axes.noise[likely], drift=axes.drift[likely], noise_prior=axes.noise_prior[likely])


def evaluate(observations: Observations, prior: Prior, linear: LinearPrior, axes: Axes) -> Grid:
    """Weights and conditional Gaussians at every node."""
    shape = (len(axes.departures), axes.noise.size, *axes.log_midpoint.shape)
    count = observations.log_compute.size
    argument = np.exp(axes.log_exponent)[:, None, None] * (observations.log_compute - axes.log_midpoint[:, :, None])
    rise = observations.rotation @ (0.5 + 0.5 * np.tanh(0.5 * argument)).reshape(-1, count).T
    one = observations.rotation.sum(axis=1)
    data = observations.rotation @ observations.pass_rate
    variance = np.exp(2 * axes.noise)[:, None] * (1.0 + axes.drift[:, None] ** 2 * observations.eigenvalues)
    weight = 1.0 / variance

    # Normal equations in (R_0, A) without a departure: (noise, node), or (noise, 1) where the node plays no part.
    rise_rise = weight @ (rise * rise)
    rise_one = (weight * one) @ rise
    rise_data = (weight * data) @ rise
    one_one = (weight @ (one * one))[:, None]
    one_data = (weight @ (one * data))[:, None]
    mixed = rise_one - rise_rise
    plain = Normal(
        p_00=one_one + 1.0 / linear.variance[0] - rise_one - mixed,
        p_01=mixed,
        p_11=rise_rise + 1.0 / linear.variance[1],
        b_0=one_data + linear.mean[0] / linear.variance[0] - rise_data,
        b_1=rise_data + linear.mean[1] / linear.variance[1],
        constant=(weight @ (data * data) + np.log(variance).sum(axis=1))[:, None],
    )
    parts = _solved(_with_departures(plain, observations, axes.departures, weight, rise))
    log_weight = parts[0].reshape(shape) + _log_prior(prior, axes, _log_reference(prior, observations))
    peak = float(log_weight.max())
    unnormalised = np.exp(log_weight - peak)
    total = float(unnormalised.sum())
    cell = (axes.log_exponent[1] - axes.log_exponent[0]) * (axes.log_midpoint[0, 1] - axes.log_midpoint[0, 0])
    initial, asymptote, initial_variance, asymptote_variance, covariance = (part.reshape(shape) for part in parts[1:])
    return Grid(
        axes=axes,
        weight=unnormalised / total,
        initial=initial,
        asymptote=asymptote,
        initial_variance=initial_variance,
        asymptote_variance=asymptote_variance,
        covariance=covariance,
        log_evidence=peak + float(np.log(total * abs(cell) * axes.noise_cell)),
    )


def _with_departures(
    plain: Normal, observations: Observations, departures: Sequence[Departure], weight: Array, rise: Array
) -> Normal:
    """The normal equations of every departure: it takes phi phi^T off those without; phi = 0 stands for none.

    weight: (j, n) of the points under each noise; rise: (n, b m) of the law at every node, in the points' rotation.
    """
    scales = np.array([departure.scale if departure.shape is not None else 1.0 for departure in departures])
    none = np.zeros(observations.log_compute.size)
    shapes = [none if departure.shape is None else departure.shape for departure in departures]
    phi = np.stack(shapes) @ observations.rotation.T
    weighted = weight * phi[:, None]
    scale = 1.0 / scales[:, None] ** 2 + np.einsum("hjn,hn->hj", weighted, phi)
    weighted /= np.sqrt(scale)[:, :, None]
    along_rise = weighted @ rise
    along_fall = (weighted @ observations.rotation.sum(axis=1))[:, :, None] - along_rise
    along_data = (weighted @ (observations.rotation @ observations.pass_rate))[:, :, None]
    return Normal(
        p_00=plain.p_00 - along_fall * along_fall,
        p_01=plain.p_01 - along_fall * along_rise,
        p_11=plain.p_11 - along_rise * along_rise,
        b_0=plain.b_0 - along_fall * along_data,
        b_1=plain.b_1 - along_rise * along_data,
        constant=plain.constant - along_data**2 + np.log(scale * scales[:, None] ** 2)[:, :, None],
    )


class Normal(NamedTuple):
    """Normal equations p (R_0, A) = b of the linear part; `constant` is what else -2 log evidence holds."""

    p_00: Array
    p_01: Array
    p_11: Array
    b_0: Array
    b_1: Array
    constant: Array


def _solved(normal: Normal) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Log evidence, means of R_0 and A, their variances and covariance."""
    p_00, p_01, p_11, b_0, b_1, constant = normal
    inverse = 1.0 / (p_00 * p_11 - p_01 * p_01)
    initial = (p_11 * b_0 - p_01 * b_1) * inverse
    asymptote = (p_00 * b_1 - p_01 * b_0) * inverse
    asymptote_variance = p_00 * inverse
    scale = 1.0 / np.sqrt(asymptote_variance)
    from_one, from_zero = (1.0 - asymptote) * scale, asymptote * scale
    log_evidence = initial * b_0
    log_evidence += asymptote * b_1
    log_evidence -= constant
    inside = np.ones(())
    if from_one.min() < CERTAIN:
        inside = _probability(from_one)
    if from_zero.min() < CERTAIN:
        inside = inside - _probability(-from_zero)
    log_evidence += np.log(inverse * np.square(np.maximum(inside, 1e-100)))
    return 0.5 * log_evidence, initial, asymptote, p_11 * inverse, asymptote_variance, -p_01 * inverse


def _probability(deviation: Array) -> Array:
    """The normal distribution function within 3e-4 (Page 1977); the exact one would be half of the cost of a refit."""
    slope, cubic = 0.7978845608, 0.035677408  # sqrt(2 / pi), the slope at 0; Page's fitted coefficient of the cube
    return np.asarray(0.5 + 0.5 * np.tanh(deviation * (slope + cubic * deviation * deviation)))


def _log_reference(prior: Prior, observations: Observations) -> float:
    if prior.midpoint_reference is not None:
        return float(np.log(prior.midpoint_reference))
    return float(observations.log_compute[-1])


def _log_prior(prior: Prior, axes: Axes, reference: float) -> Array:
    exponent = _log_student_t((axes.log_exponent - prior.log_exponent[0]) / prior.log_exponent[1], EXPONENT_DEGREES)
    midpoint = -0.5 * ((axes.log_midpoint - reference - prior.log_midpoint[0]) / prior.log_midpoint[1]) ** 2
    departure = np.array([candidate.log_prior for candidate in axes.departures])[:, None, None]
    departure = departure + _log_ending(prior, axes) + (exponent[:, None] + midpoint)
    total: Array = departure[:, None] + axes.noise_prior[:, None, None]
    return total


def _log_student_t(deviation: Array, degrees: float) -> Array:
    """ln of the density at a deviation in scales, without its constant."""
    return np.asarray(-0.5 * (degrees + 1.0) * np.log1p(deviation**2 / degrees))


def _log_ending(prior: Prior, axes: Axes) -> Array:
    """(h, b, m) ln of the probability that a first phase ends within the cell of each departure, given C_mid."""
    edges = np.array([candidate.cell for candidate in axes.departures])[:, :, None, None]
    centre, scale = prior.first_phase
    below = ndtr((edges - axes.log_midpoint - centre) / scale)
    return np.asarray(np.log(np.maximum(below[:, 1] - below[:, 0], IMPOSSIBLE)))


class NoiseAxis(TypedDict):
    """The part of `Axes` that concerns the noise."""

    noise: Array
    drift: Array
    noise_prior: Array
    noise_cell: float


def _noise_axis(whole: Array, prior: Prior, noise_prior: NoisePrior, drifts: slice = slice(None)) -> NoiseAxis:
    """Every ln of the whole noise, s^2 (1 + rho^2), with every rho of `drifts`; the whole is the slower index."""
    rho, weight = np.array(prior.drift)[drifts], np.log(np.array(prior.drift_weight)[drifts])
    centre, scale = np.where(rho[:, None] == 0, noise_prior.white, noise_prior.drifting).T
    density = _log_student_t((whole[:, None] - centre) / scale, NOISE_DEGREES) - np.log(scale)
    return NoiseAxis(
        noise=(whole[:, None] - 0.5 * np.log1p(rho**2)).ravel(),
        drift=np.tile(rho, whole.size),
        noise_prior=(density + weight).ravel(),
        noise_cell=float(whole[1] - whole[0]),
    )


def _moved(grid: Grid, num_nodes: tuple[int, ...]) -> Axes:
    """The grid's axes, B and C_mid laid over the part that carries weight."""
    axes = grid.axes
    plane = grid.weight.sum(axis=(0, 1))
    rows = np.broadcast_to(axes.log_exponent[:, None], plane.shape)
    centre = float(np.sum(plane * rows))
    offset = rows - centre
    slope = float(np.sum(plane * offset * axes.log_midpoint) / max(float(np.sum(plane * offset**2)), 1e-12))
    across = axes.log_midpoint - slope * offset
    carrying = plane > NEGLIGIBLE * plane.max()
    cell_row = axes.log_exponent[1] - axes.log_exponent[0]
    cell = abs(axes.log_midpoint[0, 1] - axes.log_midpoint[0, 0])
    new_rows = np.linspace(rows[carrying].min() - cell_row, rows[carrying].max() + cell_row, num_nodes[0])
    new_across = np.linspace(across[carrying].min() - cell, across[carrying].max() + cell, num_nodes[1])
    return replace(
        axes,
        log_exponent=new_rows,
        log_midpoint=new_across + slope * (new_rows - centre)[:, None],
    )


def _around(centre: float, reach: float, num_nodes: int, widest_cell: float = np.inf) -> Array:
    """`num_nodes` nodes, more where they would lie further apart than `widest_cell`."""
    return np.linspace(centre - reach, centre + reach, max(num_nodes, int(np.ceil(2.0 * reach / widest_cell)) + 1))


def _narrow(nodes: Array, marginal: Array, num_nodes: int) -> Array:
    """`num_nodes` nodes over the part of `nodes` that carries weight, one old cell wider on each side."""
    carrying = np.flatnonzero(marginal > NEGLIGIBLE * marginal.max())
    cell = nodes[1] - nodes[0]
    return np.linspace(nodes[carrying[0]] - cell, nodes[carrying[-1]] + cell, num_nodes)


def _spread(marginal: Array) -> float:
    """Effective number of nodes, the exponential of the entropy."""
    carrying = marginal[marginal > 0]
    return float(np.exp(-np.sum(carrying * np.log(carrying))))

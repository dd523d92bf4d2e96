"""The posterior over a dense grid, its linear part in closed form.

For given (B, C_mid) the law is linear in (R_0, A): R = R_0 (1 - S) + A S with S = 1 / (1 + (C_mid / C)^B). With a
Gaussian prior on (R_0, A) and a noise (s, rho) of the grid, their posterior is Gaussian and the evidence of the node is
exact. A departure from the law is a rank-one update of the covariance. The grid has the axes departure, noise (s and
rho), B, C_mid. It is laid over everything plausible first and then moved to where the weight is, until the posterior of
B and C_mid spreads over several nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from scipy.special import expit, ndtr

from rollcast.scaling.curve import Array, SigmoidParameters
from rollcast.scaling.departure import Departure
from rollcast.scaling.observations import Observations
from rollcast.scaling.prior import Prior

COARSE = (6, 8, 14)
"""Nodes of ln s, ln B and ln C_mid while the grid is being placed."""
NOISE_REACH = 1.8
"""The noise is looked for at least within this factor (ln) of its prior centre."""
CELLS = (0.32, 0.65)
"""Widest distance of the first nodes of ln B and of ln C_mid: a curve with little noise falls between wider ones."""
FINE = (16, 24)
"""Nodes of ln B and ln C_mid at last."""
NEGLIGIBLE = 1e-3
"""A node whose marginal weight is below this share of the largest lies outside the refined grid."""
PLACING_DRIFTS = slice(None, None, 2)
"""Every other rho is enough while the grid is being placed."""
RARE = 0.02
"""Noises with less posterior weight than this are not refined."""
MAX_PLACINGS = 3
LIKELY = 0.4
"""Posterior weight of a departure without which the grid cannot be placed."""
RESOLVED = 6.0
"""Effective nodes in the plane of B and C_mid at which the coarse grid is in place."""
MAX_REFINEMENTS = 4
CERTAIN = 5.0
"""Standard deviations from a bound beyond which a normal distribution is taken to lie inside it."""


@dataclass(frozen=True, eq=False)
class LinearPrior:
    """Independent Gaussians on (R_0, A): mean (2,) and variance (2,)."""

    mean: Array
    variance: Array


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
    noise_prior: tuple[float, float],
    departures: list[Departure],
) -> Grid:
    """The posterior on a grid that resolves it.

    The grid is placed with the last departure (the longest; no departure is the special case of an amplitude near 0)
    and a few of the drifts, then stripped of the noises that turned out unlikely, then refined with all departures.
    Another departure that turns out likely has its posterior elsewhere: the grid is then placed anew with that one.
    """
    placing = departures[-1]
    for _ in range(MAX_PLACINGS):
        axes, noise = _place(observations, prior, linear, noise_prior, placing)
        axes = replace(axes, **_noise_axis(noise, prior, noise_prior))
        grid = evaluate(observations, prior, linear, axes)
        likely = grid.weight.sum(axis=(0, 2, 3)) > RARE
        axes = replace(
            _moved(grid, FINE),
            departures=tuple(departures),
            noise=axes.noise[likely],
            drift=axes.drift[likely],
            noise_prior=axes.noise_prior[likely],
        )
        grid = evaluate(observations, prior, linear, axes)
        weight = grid.weight.sum(axis=(1, 2, 3))
        top = departures[int(np.argmax(weight))]
        if top is placing or top.shape is None or weight.max() < LIKELY:
            break
        placing = top
    return grid


def _place(
    observations: Observations,
    prior: Prior,
    linear: LinearPrior,
    noise_prior: tuple[float, float],
    departure: Departure,
) -> tuple[Axes, Array]:
    """Coarse axes over the posterior under this departure, and the nodes of the ln of the whole noise."""
    reference = _log_reference(prior, observations)
    noise = _around(noise_prior[0], max(3.0 * noise_prior[1], NOISE_REACH), COARSE[0])
    exponents = _around(prior.log_exponent[0], 3.0 * prior.log_exponent[1], COARSE[1], CELLS[0])
    midpoints = _around(reference + prior.log_midpoint[0], 3.0 * prior.log_midpoint[1], COARSE[2], CELLS[1])
    axes = Axes(
        departures=(departure,),
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
    return axes, noise


def evaluate(observations: Observations, prior: Prior, linear: LinearPrior, axes: Axes) -> Grid:
    """Weights and conditional Gaussians at every node."""
    shape = (len(axes.departures), axes.noise.size, *axes.log_midpoint.shape)
    count = observations.log_compute.size
    argument = np.exp(axes.log_exponent)[:, None, None] * (observations.log_compute - axes.log_midpoint[:, :, None])
    rise = observations.rotation @ expit(argument).reshape(-1, count).T
    one = observations.rotation.sum(axis=1)
    data = observations.rotation @ observations.pass_rate
    variance = np.exp(2 * axes.noise)[:, None] * (1.0 + axes.drift[:, None] ** 2 * observations.eigenvalues)
    weight = 1.0 / variance

    # Sums over the rotated points: (noise, 1) or (noise, node).
    rise_rise = weight @ (rise * rise)
    rise_one = (weight * one) @ rise
    rise_data = (weight * data) @ rise
    one_one = (weight @ (one * one))[:, None]
    one_data = (weight @ (one * data))[:, None]
    data_data = (weight @ (data * data))[:, None]
    log_determinant = np.log(variance).sum(axis=1)[:, None]

    parts = np.empty((6, len(axes.departures), *rise_rise.shape))
    for index, departure in enumerate(axes.departures):
        if departure.shape is None:
            parts[:, index] = _linear_part(
                linear, rise_rise, rise_one, rise_data, one_one, one_data, data_data, log_determinant
            )
            continue
        phi = observations.rotation @ departure.shape
        weighted = weight * phi
        phi_rise = weighted @ rise
        phi_one = (weighted @ one)[:, None]
        phi_data = (weighted @ data)[:, None]
        scale = 1.0 / departure.scale**2 + (weighted @ phi)[:, None]
        scaled_rise = phi_rise / scale
        parts[:, index] = _linear_part(
            linear,
            rise_rise - scaled_rise * phi_rise,
            rise_one - scaled_rise * phi_one,
            rise_data - scaled_rise * phi_data,
            one_one - phi_one**2 / scale,
            one_data - phi_one * phi_data / scale,
            data_data - phi_data**2 / scale,
            log_determinant + np.log(scale * departure.scale**2),
        )
    log_weight = parts[0].reshape(shape) + _log_prior(prior, axes, _log_reference(prior, observations))
    peak = float(log_weight.max())
    unnormalised = np.exp(log_weight - peak)
    total = float(unnormalised.sum())
    cell = (axes.log_exponent[1] - axes.log_exponent[0]) * (axes.log_midpoint[0, 1] - axes.log_midpoint[0, 0])
    initial, asymptote, initial_variance, asymptote_variance, covariance = parts[1:].reshape(5, *shape)
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


def _linear_part(
    linear: LinearPrior,
    rise_rise: Array,
    rise_one: Array,
    rise_data: Array,
    one_one: Array,
    one_data: Array,
    data_data: Array,
    log_determinant: Array,
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Normal equations in (R_0, A): log evidence, means of R_0 and A, their variances and covariance."""
    p_11 = rise_rise + 1.0 / linear.variance[1]
    p_01 = rise_one - rise_rise
    p_00 = one_one + 1.0 / linear.variance[0] - rise_one - p_01
    b_0 = one_data + linear.mean[0] / linear.variance[0] - rise_data
    b_1 = rise_data + linear.mean[1] / linear.variance[1]
    inverse = 1.0 / (p_00 * p_11 - p_01 * p_01)
    initial = (p_11 * b_0 - p_01 * b_1) * inverse
    asymptote = (p_00 * b_1 - p_01 * b_0) * inverse
    asymptote_variance = p_00 * inverse
    scale = 1.0 / np.sqrt(asymptote_variance)
    inside = ndtr((1.0 - asymptote) * scale)
    from_zero = asymptote * scale
    if from_zero.min() < CERTAIN:
        inside -= ndtr(-from_zero)
    log_evidence = initial * b_0 + asymptote * b_1
    log_evidence += np.log(inverse * np.square(np.maximum(inside, 1e-100)))
    log_evidence -= data_data + log_determinant
    return 0.5 * log_evidence, initial, asymptote, p_11 * inverse, asymptote_variance, -p_01 * inverse


def _log_reference(prior: Prior, observations: Observations) -> float:
    if prior.midpoint_reference is not None:
        return float(np.log(prior.midpoint_reference))
    return float(observations.log_compute[-1])


def _log_prior(prior: Prior, axes: Axes, reference: float) -> Array:
    exponent = -0.5 * ((axes.log_exponent - prior.log_exponent[0]) / prior.log_exponent[1]) ** 2
    midpoint = -0.5 * ((axes.log_midpoint - reference - prior.log_midpoint[0]) / prior.log_midpoint[1]) ** 2
    departure = np.array([candidate.log_prior for candidate in axes.departures])
    total: Array = departure[:, None, None, None] + axes.noise_prior[:, None, None] + (exponent[:, None] + midpoint)
    return total


class NoiseAxis(TypedDict):
    """The part of `Axes` that concerns the noise."""

    noise: Array
    drift: Array
    noise_prior: Array
    noise_cell: float


def _noise_axis(whole: Array, prior: Prior, noise_prior: tuple[float, float], drifts: slice = slice(None)) -> NoiseAxis:
    """Every ln of the whole noise, s^2 (1 + rho^2), with every rho of `drifts`; the whole is the slower index."""
    density = -2.0 * np.log1p(((whole - noise_prior[0]) / noise_prior[1]) ** 2 / 3.0)
    rho, weight = np.array(prior.drift)[drifts], np.log(np.array(prior.drift_weight)[drifts])
    return NoiseAxis(
        noise=(whole[:, None] - 0.5 * np.log1p(rho**2)).ravel(),
        drift=np.tile(rho, whole.size),
        noise_prior=(density[:, None] + weight).ravel(),
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

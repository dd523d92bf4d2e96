"""The posterior over a dense grid, its linear part in closed form.

For given (B, C_mid) the law is linear in (R_0, A): R = R_0 (1 - S) + A S with S = 1 / (1 + (C_mid / C)^B). With a
Gaussian prior on (R_0, A) and a noise (s, rho) of the grid, their posterior is Gaussian and the evidence of the node is
exact. A departure from the law is a rank-one update of the covariance. The grid has the axes departure, noise (s and
rho), B, C_mid. It is laid over everything plausible first and then moved to where the weight is, until the posterior of
B and C_mid spreads over several nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, TypedDict

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
    log_evidence_of,
    with_departures,
)
from rollcast.scaling.posterior.prior import Prior

EXPONENT_DEGREES = 4.0
"""Degrees of freedom of Student's t, the prior of ln B: heavy tails, since a few runs are far steeper or flatter than
most."""
NOISE_DEGREES = 3.0
"""The same of the ln of the whole noise: heavier tails still."""
COARSE = (8, 10, 16)
"""Nodes of ln s, ln B and ln C_mid while the grid is being placed; those of ln s stay, and with six of them most of the
error of an interval is theirs."""
REACH = 4.0
"""Scales of the prior, on either side of its centre, over which the first grid is laid."""
NOISE_REACH = 1.8
"""The noise is looked for at least within this factor (ln) of its prior centre."""
TOLD = 30.0
"""But not further than so many prior scales from it: a noise that is told is not looked for elsewhere."""
CLOSEST = 1e-6
"""All points together tell R no closer than this: readings that repeat to the last digit would take the noise to 0,
and the normal equations, whose precision ends there, with it."""
CELLS = (0.22, 0.5)
"""Widest distance of the first nodes of ln B and of ln C_mid: a curve with little noise falls between wider ones."""
FINE = (16, 32)
"""Nodes of ln B and ln C_mid at last: a curve of few points may leave C_mid in several narrow places."""
NEGLIGIBLE = 3e-3
"""A node whose marginal weight is below this share of the largest lies outside the refined grid."""
RARE = 0.02
"""Noises with less posterior weight than this are not refined."""
PLACING = 5
"""Every how many-th first phase is enough while the grid is being placed."""
UNLIKELY = 0.04
"""Posterior weight of all departures together that are not refined."""
RESOLVED = 6.0
"""Effective nodes in the plane of B and C_mid at which the coarse grid is in place."""
MAX_REFINEMENTS = 8
"""Times at most that the coarse grid is laid anew; it is in place before as a rule."""
IMPOSSIBLE = 1e-9
"""Floor of the probability that a first phase ends in a cell, whose logarithm is taken."""


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
    """Posterior on the grid.

    Attributes:
        weight: (h, j, b, m) posterior probability of each node, summing to 1.
        normal: the normal equations of each node (h, j, b m), of R_0 and A less `level`.
    """

    axes: Axes
    weight: Array
    normal: Normal
    level: float
    log_evidence: float

    def conditional(self, nodes: NDArray[np.intp]) -> Conditional:
        """R_0 and A given each of these nodes, whose places in `weight.ravel()` are told."""
        return conditional(*(part.ravel()[nodes] for part in self.normal[:5]), level=self.level)

    def best(self) -> SigmoidParameters:
        """The node (B, C_mid) of the largest weight, with the mean R_0 and A there, within their bounds."""
        plane = self.weight.sum(axis=(0, 1))
        row, column = np.unravel_index(int(np.argmax(plane)), plane.shape)
        share = self.weight[..., row, column] / plane[row, column]
        at = np.arange(self.weight.size).reshape(self.weight.shape)[..., row, column]
        given = self.conditional(at)
        asymptote = float(np.clip(np.sum(share * given.asymptote), 0.0, 1.0))
        initial = float(np.clip(np.sum(share * given.initial), 0.0, asymptote))
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
    """The posterior on a grid that resolves it; noises and departures that turn out unlikely are dropped from it."""
    grid = outline(observations, prior, linear, noise_prior, departures)
    carrying = _carrying(grid.weight.sum(axis=(1, 2, 3)))
    axes = replace(_moved(grid, FINE), departures=tuple(departures[index] for index in carrying))
    return evaluate(observations, prior, linear, axes)


def outline(
    observations: Observations,
    prior: Prior,
    linear: LinearPrior,
    noise_prior: NoisePrior,
    departures: list[Departure],
) -> Grid:
    """The same on a coarse grid with all departures: enough to tell the likeliest law.

    The grid is placed with departures from the whole list, since each has its posterior elsewhere: a grid placed with
    one of them would cut the others off.
    """
    axes = _placed(observations, prior, linear, noise_prior, _few(departures))
    return evaluate(observations, prior, linear, replace(axes, departures=tuple(departures)))


def _carrying(weight: Array) -> list[int]:
    """The fewest departures, in order, that carry all but `UNLIKELY` of the weight."""
    falling = np.argsort(weight)[::-1]
    count = int(np.searchsorted(np.cumsum(weight[falling]), 1.0 - UNLIKELY)) + 1
    return sorted(falling[:count].tolist())


def _few(departures: list[Departure]) -> list[Departure]:
    """Some first phases without a tail, the longest among them, and without one the largest tail of each onset.

    A small tail moves the law next to nowhere.
    """
    phases = [departure for departure in departures if departure.tail is None]
    step = PLACING if len(phases) > PLACING else 1
    tails = [(d.tail.scale, d) for d in departures if d.tail is not None and d.shape is None]
    largest = max((scale for scale, _ in tails), default=0.0)
    return phases[::-step][::-1] + [departure for scale, departure in tails if scale == largest]


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
    least = min(centre, float(np.log(CLOSEST) + 0.5 * np.log(observations.precision.sum())))
    reach = max(REACH * scale, min(NOISE_REACH, TOLD * scale))
    noise = np.linspace(max(centre - reach, least), centre + reach, COARSE[0])
    exponents = _around(prior.log_exponent[0], REACH * prior.log_exponent[1], COARSE[1], CELLS[0])
    midpoints = _around(reference + prior.log_midpoint[0], REACH * prior.log_midpoint[1], COARSE[2], CELLS[1])
    axes = Axes(
        departures=tuple(departures),
        **_noise_axis(noise, prior, noise_prior, placing=True),
        log_exponent=exponents,
        log_midpoint=np.tile(midpoints, (exponents.size, 1)),
    )
    for _ in range(MAX_REFINEMENTS):
        grid = evaluate(observations, prior, linear, axes)
        of_noise = grid.weight.sum(axis=(0, 2, 3)).reshape(noise.size, -1).sum(axis=1)
        beyond = _at_an_edge(of_noise) or _at_an_edge(grid.weight.sum(axis=(0, 1)))
        noise = _narrow(noise, of_noise, COARSE[0], least)
        axes = replace(_moved(grid, COARSE[1:]), **_noise_axis(noise, prior, noise_prior, placing=True))
        if _spread(grid.weight.sum(axis=(0, 1))) >= RESOLVED and not beyond:
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
    data, above = observations.centred, linear.mean - observations.level
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
        b_0=one_data + above[0] / linear.variance[0] - rise_data,
        b_1=rise_data + above[1] / linear.variance[1],
        constant=(weight @ (data * data) + np.log(variance).sum(axis=1))[:, None],
    )
    normal = with_departures(plain, observations, axes.departures, weight, rise)
    log_weight = log_evidence_of(normal, observations.level).reshape(shape)
    log_weight += _log_prior(prior, axes, _log_reference(prior, observations))
    peak = float(log_weight.max())
    unnormalised = np.exp(log_weight - peak)
    total = float(unnormalised.sum())
    cell = (axes.log_exponent[1] - axes.log_exponent[0]) * (axes.log_midpoint[0, 1] - axes.log_midpoint[0, 0])
    return Grid(
        axes=axes,
        weight=unnormalised / total,
        normal=normal,
        level=observations.level,
        log_evidence=peak + float(np.log(total * abs(cell) * axes.noise_cell)),
    )


def _log_reference(prior: Prior, observations: Observations) -> float:
    if prior.midpoint_reference is not None:
        return float(np.log(prior.midpoint_reference))
    return float(observations.log_compute[-1])


def _log_prior(prior: Prior, axes: Axes, reference: float) -> Array:
    exponent = _log_student_t(axes.log_exponent, prior.log_exponent, EXPONENT_DEGREES)
    centre, scale = reference + prior.log_midpoint[0], prior.log_midpoint[1]
    midpoint = -0.5 * ((axes.log_midpoint - centre) / scale) ** 2 - np.log(scale)
    departure = np.array([candidate.log_prior for candidate in axes.departures])[:, None, None]
    departure = departure + _log_ending(prior, axes) + (exponent[:, None] + midpoint)
    total: Array = departure[:, None] + axes.noise_prior[:, None, None]
    return total


def _log_student_t(value: Array, of: tuple[float | Array, float | Array], degrees: float) -> Array:
    """ln of the density of a centre and a scale, without the constant of its degrees."""
    deviation = (value - of[0]) / of[1]
    return np.asarray(-0.5 * (degrees + 1.0) * np.log1p(deviation**2 / degrees) - np.log(of[1]))


def _log_ending(prior: Prior, axes: Axes) -> Array:
    """(h, b, m) ln of the probability that a first phase ends within the cell of each departure, given C_mid."""
    cells = list(dict.fromkeys(candidate.cell for candidate in axes.departures))  # one for all tails of a first phase
    of_cell = [cells.index(candidate.cell) for candidate in axes.departures]
    edges = np.array(cells)[:, :, None, None]
    centre, scale = prior.first_phase
    below = ndtr((edges - axes.log_midpoint - centre) / scale)
    return np.asarray(np.log(np.maximum(below[:, 1] - below[:, 0], IMPOSSIBLE)))[of_cell]


class NoiseAxis(TypedDict):
    """The part of `Axes` that concerns the noise."""

    noise: Array
    drift: Array
    noise_prior: Array
    noise_cell: float


def _noise_axis(whole: Array, prior: Prior, noise_prior: NoisePrior, *, placing: bool = False) -> NoiseAxis:
    """Every ln of the whole noise, s^2 (1 + rho^2), with every rho that has weight; the whole is the slower index."""
    likely = np.flatnonzero(prior.drift_weight)
    if placing:  # One is enough: the whole noise decides how far the posterior reaches, and rho only shares it out.
        likely = likely[[likely.size // 2]]
    rho, weight = np.array(prior.drift)[likely], np.log(np.array(prior.drift_weight)[likely])
    centre, scale = np.where(rho[:, None] == 0, noise_prior.white, noise_prior.drifting).T
    density = _log_student_t(whole[:, None], (centre, scale), NOISE_DEGREES)
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


def _around(centre: float, reach: float, num_nodes: int, widest_cell: float) -> Array:
    """`num_nodes` nodes, more where they would lie further apart than `widest_cell`."""
    return np.linspace(centre - reach, centre + reach, max(num_nodes, int(np.ceil(2.0 * reach / widest_cell)) + 1))


def _narrow(nodes: Array, marginal: Array, num_nodes: int, least: float) -> Array:
    """`num_nodes` nodes over the part of `nodes` that carries weight, one old cell wider on each side, from `least`.

    As wide again as all of `nodes` above, where the likeliest is the last: errors that are told may be far too small.
    """
    carrying = np.flatnonzero(marginal > NEGLIGIBLE * marginal.max())
    cell, width, top = nodes[1] - nodes[0], nodes[-1] - nodes[0], int(np.argmax(marginal))
    above = width if top == nodes.size - 1 else cell
    return np.linspace(max(nodes[carrying[0]] - cell, least), nodes[carrying[-1]] + above, num_nodes)


def _at_an_edge(marginal: Array) -> bool:
    """Whether the most likely node is the first or the last of an axis: more may lie beyond."""
    top = np.unravel_index(int(np.argmax(marginal)), marginal.shape)
    return any(place in (0, size - 1) for place, size in zip(top, marginal.shape, strict=True))


def _spread(marginal: Array) -> float:
    """Effective number of nodes, the exponential of the entropy."""
    carrying = marginal[marginal > 0]
    return float(np.exp(-np.sum(carrying * np.log(carrying))))

"""The law across splits of a step, for choosing `rollouts_per_prompt` and `prompts_per_step` before
the run.

At a fixed compute C, in the way of IsoCompute (arXiv 2603.12151), which fits a sigmoid to every
setting and compares the sigmoids at C:

    R(n, P | C) = b_0 + b_1 u + b_2 u^2 + b_3 v + b_4 v^2 + e,   u = ln(n / n_0),   v = ln(P / P_0)

n is the number of rollouts of a prompt, P that of prompts in a step; the number of steps follows
from C. n_0 and P_0 are the geometric means of the splits that were trained. e is the spread between
runs of one split, and the error of the law.

The paper gives no equation for R over n and P. It reports that the best n grows with C up to a
limit, as a sigmoid of ln n over ln C, and that P hardly matters in a moderate range. The parabola
is ours: it is the smallest law with a best n inside, and close to any smooth one over the few
doublings that runs cover. As b depends on C, the best n may grow with C without that growth being
assumed. Before the runs are seen, splits may differ as much as the curves are steep at C: a split
shifts the bend in compute, which matters during the climb and little on a plateau. Given the size
of e the posterior of b is normal, in closed form; the sizes are summed over a grid.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollcast.scaling.law.curve import Array
from rollcast.scaling.law.settings import (
    BATCH_SHAPE_LAW_CLIMB_STD,
    BATCH_SHAPE_LAW_FLAT_STD,
    BATCH_SHAPE_LAW_PRIOR_MEAN,
    FLAT_SPLIT_SPREAD,
    PRIOR_LOG_SPREAD_STD,
)


@dataclass(frozen=True, order=True)
class BatchShape:
    """The rollouts of one step: `rollouts` of each of `prompts` prompts."""

    rollouts: int
    prompts: int

    @property
    def rollouts_per_step(self) -> int:
        return self.rollouts * self.prompts

    @property
    def name(self) -> str:
        """The name that commands write."""
        return f"{self.rollouts}x{self.prompts}"


@dataclass(frozen=True, eq=False)
class BatchShapeLaw:
    """Equally likely settings of the law at one compute.

    Attributes:
        centre: ln n_0 and ln P_0.
        coefficients: (d, 5) b_0 to b_4.
        spread: (d,) standard deviation of e, in pass rate.
    """

    centre: Array
    coefficients: Array
    spread: Array

    def level(self, batch_shapes: Sequence[BatchShape]) -> Array:
        """The mean over runs of each split (k,) -> (k, d)."""
        return np.asarray(_design(batch_shapes, self.centre) @ self.coefficients.T)

    def pass_rate(
        self, batch_shapes: Sequence[BatchShape], quantiles: Sequence[float] = (0.05, 0.5, 0.95)
    ) -> Array:
        """Pass rate that one new run of each split (k,) reaches, without the noise of its
        evaluations -> (q, k).
        """
        strays = self.spread * np.random.default_rng(1).standard_normal(self.spread.size)
        return np.asarray(
            np.quantile(np.clip(self.level(batch_shapes) + strays, 0.0, 1.0), quantiles, axis=1)
        )


def fit_batch_shape_law(
    batch_shapes: Sequence[BatchShape], level: Sequence[float], error: Sequence[float], slope: float
) -> BatchShapeLaw:
    """The posterior from runs (r,): the split of each, its pass rate at the compute, and the
    standard error of that.

    `slope`: dR / d ln C of the runs at the compute, on average.

    Raises:
        ValueError: no run, lengths differ, an error is not positive, or the slope is negative.
    """
    if not batch_shapes or not len(batch_shapes) == len(level) == len(error):
        raise ValueError(
            f"runs: {len(batch_shapes)} splits, {len(level)} pass rates and {len(error)} errors; "
            "give one of each per run."
        )
    variance = np.square(np.asarray(error, dtype=float))
    if not np.all(variance > 0):
        raise ValueError("runs: the standard error of every pass rate must be positive.")
    if not slope >= 0:
        raise ValueError(f"slope: {slope:g} is negative; the law only rises.")
    centre = _logs(batch_shapes).mean(axis=0)
    design = _design(batch_shapes, centre)
    residual = np.asarray(level, dtype=float) - design @ np.array(BATCH_SHAPE_LAW_PRIOR_MEAN)
    prior_std = np.array(BATCH_SHAPE_LAW_FLAT_STD) + slope * np.array(BATCH_SHAPE_LAW_CLIMB_STD)
    prior_covariance = np.diag(prior_std**2)
    # 0.05: further spread for each unit of dR / d ln C: runs of one split are a twentieth apart in
    # compute; chosen, not measured.
    usual_spread = FLAT_SPLIT_SPREAD + slope * 0.05
    gain_of_points = prior_covariance @ design.T
    # 0.2: pass rate: largest spread that is tried.
    # 0.001: pass rate: smallest spread that is tried.
    # 25: spreads that are tried, in equal steps of ln; chosen, not measured.
    nodes = np.geomspace(0.001, 0.2, 25)
    log_weight = []
    means = []
    factors = []
    for spread in nodes:
        covariance = design @ gain_of_points + np.diag(variance + spread**2)
        gain = np.linalg.solve(covariance, gain_of_points.T).T
        means.append(np.array(BATCH_SHAPE_LAW_PRIOR_MEAN) + gain @ residual)
        posterior = prior_covariance - gain @ gain_of_points.T
        factors.append(_root(posterior))
        misfit = (
            float(residual @ np.linalg.solve(covariance, residual))
            + np.linalg.slogdet(covariance)[1]
        )
        surprise = np.log(spread / usual_spread) / PRIOR_LOG_SPREAD_STD
        log_weight.append(-0.5 * (misfit + surprise**2))
    weight = np.exp(np.array(log_weight) - max(log_weight))
    rng = np.random.default_rng(0)
    # Draws of the law across splits of a step: as many as of one forecast.
    num_law_draws = 4096
    node = rng.choice(nodes.size, num_law_draws, p=weight / weight.sum())
    normal = rng.standard_normal((num_law_draws, len(BATCH_SHAPE_LAW_PRIOR_MEAN)))
    coefficients = np.array(means)[node] + np.einsum("dij,dj->di", np.array(factors)[node], normal)
    return BatchShapeLaw(centre, coefficients, nodes[node])


def _logs(batch_shapes: Sequence[BatchShape]) -> Array:
    """(k, 2) ln n and ln P."""
    return np.asarray(
        np.log(
            np.array(
                [(batch_shape.rollouts, batch_shape.prompts) for batch_shape in batch_shapes],
                dtype=float,
            )
        )
    )


def _design(batch_shapes: Sequence[BatchShape], centre: Array) -> Array:
    """(k, 5) what b_0 to b_4 are multiplied with."""
    u, v = (_logs(batch_shapes) - centre).T
    return np.stack([np.ones_like(u), u, u**2, v, v**2], axis=1)


def _root(covariance: Array) -> Array:
    """A square root of a covariance that rounding may have made slightly indefinite."""
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))

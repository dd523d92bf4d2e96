"""The posterior of one curve and every question asked of it.

A forecast is a set of equally likely settings of law and noise. Each answer is a quantile over them, so that an
interval is as wide as what the curve leaves open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rollcast.scaling.decisions.verdict import Verdict, VerdictKind
from rollcast.scaling.law.curve import Array, Curve, SigmoidParameters
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.posterior.departure import transient_shape
from rollcast.scaling.posterior.draws import Draws
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.turns import drawn_turns

__all__ = ["Forecast", "Verdict", "VerdictKind"]

Quantiles = Sequence[float] | Array
MEDIAN_AND_90 = (0.05, 0.5, 0.95)
LEAST_DRAWS = 40
"""Without a tail, from which the parameters of the law are told: one in a hundred."""
NUM_READINGS = 2048
"""Draws from which readings are made. Each gets noise of its own, so that the lower end of a 90 % interval is known to
1 % of the interval's width and the upper one, where turns begin, to 3 %. Twice as many would leave 1 and 2 %, and a
live refit would spend as long on its band as on its fit."""
DRAWS_AT_ONCE = 512
"""So many in one go stay in the processor's cache with all that is made from them."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """Posterior and verdict. Compute is in device-hours, pass rates in [0, 1].

    Attributes:
        excluded: number of points before the fitted part.
        best: the law at the node of maximum posterior.
        draws: the whole grid posterior as settings; the grid itself, a megabyte, is not kept.
    """

    curve: Curve
    options: FitOptions
    excluded: int
    best: SigmoidParameters
    draws: Draws
    observations: Observations
    verdict: Verdict

    @property
    def reading_error(self) -> float:
        """White noise of one evaluation like the last ones: a standard deviation in pass rate, drift left out."""
        return float(np.median(self.draws.noise) * self.observations.spread[-1])

    @property
    def ceiling_probability(self) -> float:
        """Probability that gains end within sight; A, B, C_mid and R_0 are told of the law with a ceiling."""
        return float(np.mean(self.draws.has_ceiling))

    def initial(self, quantiles: Quantiles = MEDIAN_AND_90) -> Array:
        """R_0 (q,)."""
        return _quantile(self.of_law(self.draws.initial), quantiles)

    def asymptote(self, quantiles: Quantiles = MEDIAN_AND_90) -> Array:
        """A (q,)."""
        return _quantile(self.of_law(self.draws.asymptote), quantiles)

    def exponent(self, quantiles: Quantiles = MEDIAN_AND_90) -> Array:
        """B (q,)."""
        return _quantile(self.of_law(self.draws.exponent), quantiles)

    def midpoint(self, quantiles: Quantiles = MEDIAN_AND_90) -> Array:
        """C_mid (q,) in device-hours."""
        return np.exp(_quantile(self.of_law(self.draws.log_midpoint), quantiles))

    def of_law(self, values: Array) -> Array:
        """Those of the draws' `values` (d,) that have no tail, or all where hardly any is without one -> (e,)."""
        plain = self.draws.tail == 0.0
        return values[plain] if plain.sum() >= LEAST_DRAWS else values

    def pass_rate(self, compute: ArrayLike, quantiles: Quantiles = MEDIAN_AND_90) -> Array:
        """The law's pass rate at `compute` (m,) -> (q, m)."""
        return _quantile(self.draws.law(compute), quantiles)

    def predictive(
        self, compute: ArrayLike, quantiles: Quantiles = MEDIAN_AND_90, standard_error: float | None = None
    ) -> Array:
        """What a new evaluation at `compute` (m,) will read -> (q, m).

        Law, first phase, drift (which carries on from the last points and fades), white noise. `standard_error` is
        that of the new reading; unset, it is as noisy as the curve's own points; 0 asks for the mean of many readings.
        """
        at = np.atleast_1d(np.asarray(compute, dtype=float))
        draws = self.draws[:: max(1, self.draws.initial.size // NUM_READINGS)]
        chance = np.random.default_rng(0)
        normal, uniform = chance.standard_normal((2, draws.initial.size)), chance.random((3, draws.initial.size))
        if standard_error is None:
            noise = draws.noise * self.observations.spread[-1]
        else:
            noise = np.full_like(draws.noise, standard_error)
        reading = np.empty((at.size, draws.initial.size))
        for start in range(0, draws.initial.size, DRAWS_AT_ONCE):
            part = slice(start, start + DRAWS_AT_ONCE)
            mean, variance = self._off_law(at, draws[part])
            off = mean + np.sqrt(variance) * normal[0, part]
            turn = drawn_turns(self.options.prior, at / self.curve.compute[-1], uniform[:, part])
            reading[:, part] = draws[part].law(at) + off + turn + noise[part] * normal[1, part]
        return _quantile(np.clip(reading, 0.0, 1.0), quantiles)

    def compute_to_target(self, target: float, quantiles: Quantiles = MEDIAN_AND_90) -> Array:
        """Device-hours until the law reaches `target` -> (q,), inf where it never does.

        Raises:
            ValueError: target is no pass rate.
        """
        if not 0 <= target <= 1:
            raise ValueError(f"target: {target:g} is no pass rate; give a value in [0, 1].")
        return _quantile(self.draws.compute_to(target), quantiles)

    def expected_gain(self, start: float, stop: float) -> tuple[float, float, float]:
        """R(stop) - R(start) of the law: mean, 5 % and 95 % quantile."""
        values = self.draws.law([start, stop])
        gain = values[1] - values[0]
        low, high = _quantile(gain, (0.05, 0.95))
        return float(np.mean(gain)), float(low), float(high)

    def headroom(self, quantiles: Quantiles = MEDIAN_AND_90) -> Array:
        """A - R at the last compute of the curve -> (q,). R is the law, not a reading, and without a tail.

        The interval includes the drift: every draw is weighed by its likelihood under a covariance that holds it. So A
        and the law now are as uncertain as readings that wander together leave them. How far A lies from what the next
        evaluation shows is another question: the present drift would have to be taken off, and it fades.
        """
        return _quantile(self.of_law(self.draws.asymptote - self.draws.sigmoid([self.curve.compute[-1]])[0]), quantiles)

    def _off_law(self, compute: Array, draws: Draws) -> tuple[Array, Array]:
        """Mean and variance of transient and drift at `compute` (m,) given the points: each (m, d)."""
        points = self.observations
        residual = points.rotation @ (points.pass_rate[:, None] - draws.law(np.exp(points.log_compute)))
        precision = 1.0 / (draws.noise**2 * (1.0 + draws.drift**2 * points.eigenvalues[:, None]))
        amplitude, scale = np.zeros(draws.initial.size), np.ones(draws.initial.size)
        shapes = np.zeros((compute.size, len(draws.departures)))
        for index, departure in enumerate(draws.departures):
            mine = draws.departure == index
            if departure.shape is None or not np.any(mine):
                continue
            phi = (points.rotation @ departure.shape)[:, None]
            weighted = phi * precision[:, mine]
            scale[mine] = 1.0 / departure.scale**2 + np.sum(weighted * phi, axis=0)
            amplitude[mine] = np.sum(weighted * residual[:, mine], axis=0) / scale[mine]
            residual[:, mine] -= phi * amplitude[mine]
            shapes[:, index] = transient_shape(compute, departure.at)
        shape = shapes[:, draws.departure]
        mean, variance = shape * amplitude, shape**2 / scale
        with np.errstate(divide="ignore"):
            near = points.near(np.log(compute), self.options.prior.drift_length, float(points.spread[-1]))
        drift = (draws.noise * draws.drift) ** 2
        mean += drift * (near @ (precision * residual))
        variance += np.maximum(drift * points.spread[-1] ** 2 - drift**2 * (near**2 @ precision), 0.0)
        return mean, variance


def _quantile(values: Array, quantiles: Quantiles) -> Array:
    """Quantiles over the last axis (..., d) -> (q, ...); an order statistic, so that inf stays inf."""
    ordered = np.sort(values, axis=-1)
    index = np.rint(np.asarray(quantiles, dtype=float) * (ordered.shape[-1] - 1)).astype(int)
    return np.moveaxis(ordered[..., index], -1, 0)

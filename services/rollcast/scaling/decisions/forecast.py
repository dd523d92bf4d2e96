"""The posterior of one curve and every question asked of it.

A forecast is a set of equally likely settings of law and noise. Each answer is a quantile over
them, so an interval is as wide as the curve leaves it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from rollcast.scaling.decisions.settings import CUT_ROUNDING
from rollcast.scaling.decisions.verdict import Verdict, VerdictKind
from rollcast.scaling.law.curve import Array, Curve, SigmoidParameters
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.outlook.combined import combine_quantiles, order_statistics
from rollcast.scaling.outlook.settings import MIN_OUTLOOK_POINTS
from rollcast.scaling.outlook.simple import Summary
from rollcast.scaling.posterior.departure import transient_shape
from rollcast.scaling.posterior.draws import Draws
from rollcast.scaling.posterior.fitting import cut_before
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.turns import drawn_turns

__all__ = ["Forecast", "Verdict", "VerdictKind"]

Quantiles = Sequence[float] | Array
MEDIAN_AND_90 = (0.05, 0.5, 0.95)


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
        """White noise of one evaluation like the last ones: a standard deviation in pass rate,
        drift left out.
        """
        return float(np.median(self.draws.noise) * self.observations.spread[-1])

    @property
    def ceiling_probability(self) -> float:
        """Probability that gains end within sight; A, B, C_mid and R_0 are those of the law with a
        ceiling.
        """
        return float(np.mean(self.draws.has_ceiling))

    def initial(self, quantiles: Quantiles = MEDIAN_AND_90) -> Array:
        """R_0 (q,)."""
        return _quantile(self.law_values(self.draws.initial), quantiles)

    def asymptote(self, quantiles: Quantiles = MEDIAN_AND_90) -> Array:
        """A (q,), not below the level that the run has reached."""
        return _quantile(
            np.maximum(self.law_values(self.draws.asymptote), self._reached), quantiles
        )

    def exponent(self, quantiles: Quantiles = MEDIAN_AND_90) -> Array:
        """B (q,)."""
        return _quantile(self.law_values(self.draws.exponent), quantiles)

    def midpoint(self, quantiles: Quantiles = MEDIAN_AND_90) -> Array:
        """C_mid (q,) in device-hours."""
        return np.exp(_quantile(self.law_values(self.draws.log_midpoint), quantiles))

    def law_values(self, values: Array) -> Array:
        """The `values` (d,) of the draws that have no tail -> (e,); all of them if hardly any draw
        is without one.
        """
        without_tail = self.draws.tail == 0.0
        # 40: draws without a tail from which A, B, C_mid and R_0 are reported of these alone: one
        # in a hundred of all.
        if without_tail.sum() < 40:
            return values
        return np.asarray(values[without_tail])

    def pass_rate(self, compute: ArrayLike, quantiles: Quantiles = MEDIAN_AND_90) -> Array:
        """The law's pass rate at `compute` (m,) -> (q, m)."""
        return _quantile(self.draws.law(compute), quantiles)

    def predictive(
        self,
        compute: ArrayLike,
        quantiles: Quantiles = MEDIAN_AND_90,
        standard_error: float | None = None,
    ) -> Array:
        """Quantiles (q, m) of the mean of three readings at `compute` (m,).

        From the last compute on: the law's own forecast and simple methods, combined as learned
        from curves of other groups (`outlook/combined.py`). Before it, and with a prior without a
        stack, the law's alone: law, first phase, drift (which continues from the last points and
        fades), turns, white noise.

        Args:
            standard_error: of the new reading; None: it is as noisy as the curve's own points; 0:
                the mean of many.
        """
        at = np.atleast_1d(np.asarray(compute, dtype=float))
        levels = np.asarray(quantiles, dtype=float)
        readings, gain = self.law_readings(at, standard_error)
        stack = self.options.prior.stack
        answer = order_statistics(readings, levels)
        if stack is None or len(self.counted_curve) < MIN_OUTLOOK_POINTS:
            return answer
        ahead = at > self.curve.compute[-1] * (1.0 - CUT_ROUNDING)
        answer[:, ahead] = combine_quantiles(
            stack, self.summary, at[ahead], levels, readings[ahead], gain[ahead]
        )
        return answer

    @cached_property
    def summary(self) -> Summary:
        """The readings that count in a few numbers, for the simple methods.

        Of five readings or more.
        """
        return Summary.from_curve(self.counted_curve)

    @cached_property
    def counted_curve(self) -> Curve:
        """The part of the curve that is forecast from: without what the user leaves out, from a
        change of regime on.
        """
        start = cut_before(self.options)
        if self.verdict.kind is VerdictKind.REGIME_CHANGE and self.verdict.has_forecast:
            start = max(start, self.verdict.at or 0.0)
        return self.curve.window(start) if start > 0.0 else self.curve

    def law_readings(self, at: Array, standard_error: float | None = None) -> tuple[Array, Array]:
        """Equally likely readings of the law at `at` (m,) -> (m, d) ascending, and its median gain
        until then (m,).
        """
        ahead = at / self.curve.compute[-1]
        # 2048: draws from which readings are simulated: the ends of a 90 % interval are then known
        # to 1 % and 3 % of its width. Twice as many would take as long as the fit (lab notes,
        # "Drift by compute, and a grid with more noises").
        draws = self.draws[:: max(1, self.draws.initial.size // 2048)]
        count = draws.initial.size
        random = np.random.default_rng(0)
        normal = random.standard_normal((2, count))
        uniform = random.random((3, count))
        if standard_error is None:
            noise = draws.noise * self.observations.spread[-1]
        else:
            noise = np.full_like(draws.noise, standard_error)
        reading = np.empty((at.size, count))
        gain = np.empty((at.size, count))
        # Draws for which readings are simulated at a time: all of it stays in a processor's cache.
        # Chosen for speed.
        draws_per_batch = 512
        for start in range(0, count, draws_per_batch):
            batch = slice(start, start + draws_per_batch)
            law = draws[batch].law(np.append(at, self.curve.compute[-1]))
            gain[:, batch] = law[:-1] - law[-1]
            mean, variance = self._off_law(at, draws[batch])
            off_law = mean + np.sqrt(variance) * normal[0, batch]
            turn = drawn_turns(self.options.prior, ahead, uniform[:, batch])
            reading[:, batch] = law[:-1] + off_law + turn + noise[batch] * normal[1, batch]
        return np.sort(np.clip(reading, 0.0, 1.0), axis=-1), np.median(gain, axis=-1)

    def compute_to_target(self, target: float, quantiles: Quantiles = MEDIAN_AND_90) -> Array:
        """Device-hours until the law reaches `target` -> (q,), inf if it never does.

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
        """A - R at the last compute of the curve -> (q,). R is the law without a tail, or the level
        if that is higher.

        The interval includes the drift, which is in the covariance of the points.
        """
        law_now = self.draws.sigmoid([self.curve.compute[-1]])[0]
        remaining_gain = np.maximum(self.draws.asymptote, self._reached) - np.maximum(
            law_now, self._reached
        )
        return _quantile(self.law_values(remaining_gain), quantiles)

    @property
    def _reached(self) -> float:
        """The level that the run has reached, by the last five readings or the smoothed ones; 0 for
        the law alone.
        """
        if self.options.prior.stack is None or len(self.counted_curve) < MIN_OUTLOOK_POINTS:
            return 0.0
        return max(self.summary.last_five, self.summary.smoothed)

    def _off_law(self, compute: Array, draws: Draws) -> tuple[Array, Array]:
        """Mean and variance (m, d) of first phase and drift at `compute` (m,), given the points
        (n,).
        """
        points = self.observations
        # (n, d) rotated residuals and their precision: the rotated points are independent.
        residual = points.rotation @ (
            points.pass_rate[:, None] - draws.law(np.exp(points.log_compute))
        )
        precision = 1.0 / (draws.noise**2 * (1.0 + draws.drift**2 * points.eigenvalues[:, None]))

        # The amplitude of each draw's first phase, by regression on its shape; the drift gets the
        # rest of the residual.
        amplitude = np.zeros(draws.initial.size)
        information = np.ones(draws.initial.size)
        shapes = np.zeros((compute.size, len(draws.departures)))  # (m, h)
        for index, departure in enumerate(draws.departures):
            has_departure = draws.departure == index
            if departure.shape is None or not np.any(has_departure):
                continue
            phi = (points.rotation @ departure.shape)[:, None]
            weighted = phi * precision[:, has_departure]
            information[has_departure] = 1.0 / departure.scale**2 + np.sum(weighted * phi, axis=0)
            amplitude[has_departure] = (
                np.sum(weighted * residual[:, has_departure], axis=0) / information[has_departure]
            )
            residual[:, has_departure] -= phi * amplitude[has_departure]
            shapes[:, index] = transient_shape(compute, departure.at)
        shape = shapes[:, draws.departure]  # (m, d)
        mean = shape * amplitude
        variance = shape**2 / information

        # The drift given the points: the conditional mean and variance of a Gaussian process
        # (kriging).
        with np.errstate(divide="ignore"):
            log_compute = np.log(compute)
        drift_correlation = points.drift_correlation(
            log_compute, self.options.prior.drift_length, float(points.spread[-1])
        )  # (m, n)
        drift_variance = (draws.noise * draws.drift) ** 2
        mean += drift_variance * (drift_correlation @ (precision * residual))
        explained = drift_variance**2 * (drift_correlation**2 @ precision)
        variance += np.maximum(drift_variance * points.spread[-1] ** 2 - explained, 0.0)
        return mean, variance


def _quantile(values: Array, quantiles: Quantiles) -> Array:
    """Quantiles over the last axis (..., d) -> (q, ...); an order statistic, so
    that inf stays inf.
    """
    return order_statistics(np.sort(values, axis=-1), np.asarray(quantiles, dtype=float))

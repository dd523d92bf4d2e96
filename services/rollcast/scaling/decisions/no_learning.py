"""Whether a run has learned anything yet: no_learning if its level has not moved beyond its noise
since the start.

Three looks at the readings, each in standard errors, and a bound. All of them use the order of the
readings alone, so that they also hold for rates of a thousandth and for readings of a few episodes,
whose values are steps of a lattice:

    rise        the mean of the last third against that of the first third
    trend       the rank correlation of reading and order (Spearman), which ties and single lucky
                readings hardly move
    excursion   the farthest running mean from the first one: a run that rose quickly and then
                stopped has learned
    bound       the largest movement that the noise could hide, successive readings being alike
                included

A fall counts as movement too: `falls.py` judges it.
"""

from dataclasses import dataclass

import numpy as np

from rollcast.scaling.decisions.digits import difference
from rollcast.scaling.decisions.settings import MIN_READINGS_WITHOUT_LEARNING
from rollcast.scaling.decisions.smoothing import window_sums
from rollcast.scaling.decisions.verdict import Verdict, VerdictKind
from rollcast.scaling.law.curve import Array, Curve
from rollcast.scaling.law.settings import ASYMPTOTE_MARGIN, MIN_STANDARD_ERROR


@dataclass(frozen=True)
class LearningStatistics:
    """How far the level of a run has moved since its start.

    Attributes:
        count: readings, the measured start included.
        level: their mean.
        noise: standard deviation of one reading, from the differences of successive ones.
        rise: mean of the last third minus mean of the first third, in pass rate.
        rise_errors: the rise in standard errors of independent readings.
        trend_errors: rank correlation of reading and order, in standard errors.
        excursion_errors: largest distance of a running mean from the first one, in standard errors
            of independent readings.
        largest_move: 95 % bound of the size of the rise, wider if successive readings are alike.
    """

    count: int
    level: float
    noise: float
    rise: float
    rise_errors: float
    trend_errors: float
    excursion_errors: float
    largest_move: float


def learning_statistics(curve: Curve) -> LearningStatistics:
    """The statistics of a curve of two readings or more."""
    readings = curve.pass_rate
    if curve.initial is not None:
        readings = np.append(curve.initial, readings)
    count = readings.size
    # Readings that are ranked as they are; more are averaged in blocks first. Chosen for speed.
    max_ranked_readings = 5000
    if count > max_ranked_readings:
        # Means of equally many neighbours show a movement as well, and ranks of a million readings
        # take long.
        block = -(-count // max_ranked_readings)
        readings = readings[: count - count % block].reshape(-1, block).mean(axis=1)
    third = max(1, readings.size // 3)
    # Of one reading, from the mean square of successive differences (von Neumann). A median would
    # be 0 for readings of which most are equal, as those of a few episodes are.
    noise = max(float(np.sqrt(np.mean(np.diff(readings) ** 2) / 2.0)), MIN_STANDARD_ERROR)
    rise = float(readings[-third:].mean() - readings[:third].mean())
    error = noise * float(np.sqrt(2.0 / third))
    # 1.645: 95 % quantile of the normal distribution.
    return LearningStatistics(
        count=count,
        level=float(readings.mean()),
        noise=noise,
        rise=rise,
        rise_errors=rise / error,
        trend_errors=_trend(readings),
        excursion_errors=_excursion(readings) / noise,
        largest_move=abs(rise) + 1.645 * _correlated_spread(readings) * float(np.sqrt(2.0 / third)),
    )


def judge_no_learning(curve: Curve) -> Verdict | None:
    """The verdict that the run has learned nothing so far, or None."""
    if not has_not_moved(curve):
        return None
    statistics = learning_statistics(curve)
    return Verdict(
        VerdictKind.NO_LEARNING,
        f"The level has not moved beyond its noise since the start: it is {statistics.level:.3f}, "
        f"and the last third of the {statistics.count} readings differs from the first by "
        f"{difference(statistics.rise)} ({abs(statistics.rise_errors):.1f} standard errors).",
    )


def judge_early(curve: Curve) -> Verdict | None:
    """The verdict that it is too early for a run that has not moved yet, or None."""
    if len(curve) >= MIN_READINGS_WITHOUT_LEARNING or not _is_where_it_began(curve):
        return None
    return Verdict(
        VerdictKind.TOO_EARLY,
        f"The level has not moved yet. After {MIN_READINGS_WITHOUT_LEARNING} evaluations that "
        f"counts as no learning; these are {len(curve)}.",
    )


def has_not_moved(curve: Curve) -> bool:
    """Whether the level has stayed at its start, as far as the noise of enough readings shows."""
    return len(curve) >= MIN_READINGS_WITHOUT_LEARNING and _is_where_it_began(curve)


def _is_where_it_began(curve: Curve) -> bool:
    """Whether the level does not differ from that at the start. At the ceiling all is learned."""
    statistics = learning_statistics(curve)
    # 4.0: standard errors by which the farthest running mean may be away from the first: it is the
    # best of many places.
    # 2.5: standard errors by which the last third may be away from the first.
    # 2.5: standard errors of the rank correlation of reading and order.
    has_moved = (
        abs(statistics.rise_errors) > 2.5
        or abs(statistics.trend_errors) > 2.5
        or statistics.excursion_errors > 4.0
    )
    is_at_the_ceiling = statistics.level > 1.0 - ASYMPTOTE_MARGIN
    # 0.03: pass rate: 95 % bound of the movement that the noise may hide.
    return not (has_moved or is_at_the_ceiling or statistics.largest_move > 0.03)


def _trend(readings: Array) -> float:
    """Spearman's rank correlation of reading and order, times the root of n - 1: normal if there is
    no trend.
    """
    ranks = _ranks(readings)
    spread = float(np.std(ranks))
    if spread == 0.0:
        return 0.0
    order = np.arange(readings.size, dtype=float)
    correlation = float(np.mean((ranks - ranks.mean()) * (order - order.mean()))) / (
        spread * float(np.std(order))
    )
    return correlation * float(np.sqrt(readings.size - 1))


def _ranks(readings: Array) -> Array:
    """Ranks from 1 on; equal readings share the mean of theirs."""
    _, value_indices, count = np.unique(readings, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - 0.5 * (count - 1.0))[value_indices])


def _excursion(readings: Array) -> float:
    """Largest distance of a running mean from the first one, per standard error of such a
    difference of unit noise.
    """
    width = max(2, readings.size // 10)
    means = window_sums(readings, width) / width
    return float(np.abs(means - means[0]).max()) / float(np.sqrt(2.0 / width))


def _correlated_spread(readings: Array) -> float:
    """Standard deviation about the straight line, as if readings were independent: wandering counts
    as noise.
    """
    order = np.arange(readings.size) - (readings.size - 1) / 2.0
    slope = float(order @ readings) / float(order @ order)
    residual = readings - readings.mean() - slope * order
    deviation = float(np.std(residual))
    if deviation < MIN_STANDARD_ERROR:
        return deviation
    # 0.9: largest correlation of successive readings that widens the bound of the movement.
    alike = float(np.clip(np.mean(residual[1:] * residual[:-1]) / deviation**2, 0.0, 0.9))
    return deviation * float(np.sqrt((1.0 + alike) / (1.0 - alike)))

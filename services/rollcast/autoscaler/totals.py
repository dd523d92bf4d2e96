"""Measurements as totals that only rise, and the rates between two of them."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import linear_regression

TREND_SECONDS = 1_800.0
"""Time over which the trend of the lengths is fitted: the mean of one batch varies by a few per
cent."""
CONSUMPTION_WINDOWS = 3.0
"""Windows over which consumption is measured, between the ends of steps: it comes in batches and
changes slowly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Since the autoscaler's start.

    Every integral over generators leaves out those that could not be read.
    """

    at: float
    """Seconds on the clock of all totals."""
    batch_wait: float
    """Seconds that the trainer waited for a batch; the only wait that more generators shorten."""
    straggler_wait: float
    """Seconds that it waited for stragglers."""
    redis_wait: float
    """Seconds that it waited for Redis."""
    consumed_tokens: float
    """Tokens of groups that the trainer settled, used or filtered, and of evaluations."""
    steps: float
    """Optimizer steps."""
    sampled_tokens: float
    """Tokens that the generators sampled while they were watched."""
    watched_seconds: float
    """Seconds that generators were watched, summed over them."""
    running_seconds: float
    """Running rollouts times seconds, over watched generators."""
    joined_seconds: float
    """Members of the weight group times seconds, as the trainer counts them."""
    joined: int
    """Members now."""
    undisturbed_since: float
    """When a member last came or the pipeline was full again after the trainer's start, on the same
    clock."""
    filled_since: float
    """When the pipeline was full after the trainer's last start: a trainer that is away or loads
    consumes nothing."""
    outstanding: int
    """Groups dispatched and not settled, now."""
    mean_tokens: float | None
    """Mean completion of the last batch; None before the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRates:
    """One window of a run."""

    seconds: float
    """How long the window is."""
    generators: float
    """Members on average."""
    generators_now: int
    batch_wait: float
    """Share of the time that the trainer waited for a batch."""
    long_batch_wait: float
    """The share over CONSUMPTION_WINDOWS windows, or since the pipeline filled."""
    straggler_wait: float
    """Share of that longer time that it waited for stragglers."""
    redis_wait: float
    """Share of the time that it waited for Redis."""
    sampled: float
    """Tokens a second, all generators together."""
    consumption: float | None
    """Tokens a second that the trainer consumes while it does not wait for a batch; None = fewer
    than two steps."""
    running: float
    """Rollouts that one generator runs, on average."""
    outstanding: int
    """Groups dispatched and not settled, now."""
    mean_tokens: float | None
    """Mean completion of the last batch; None = not known."""
    growth: float
    """Relative change of the mean completion a second; 0 = not known."""

    @property
    def sampled_by_one(self) -> float:
        """Tokens a second of one generator."""
        return self.sampled / self.generators


def rates(history: Sequence[Totals], window_seconds: float) -> WindowRates | None:
    """The rates of the last `window_seconds`, or since the last disturbance if that is later.

    `history` in order of time. None while there is less than half of a window to measure, or no
    generator in it.
    """
    if not history:
        return None
    last = history[-1]
    start = max(last.at - window_seconds, last.undisturbed_since)
    first = history[
        min(bisect_left(history, start, key=lambda totals: totals.at), len(history) - 1)
    ]
    seconds = last.at - first.at
    watched = last.watched_seconds - first.watched_seconds
    joined = last.joined_seconds - first.joined_seconds
    if seconds < window_seconds / 2 or watched <= 0 or joined <= 0:
        return None
    generators = joined / seconds
    batch_wait = min(1.0, (last.batch_wait - first.batch_wait) / seconds)
    since = max(
        last.filled_since,
        # Share of the time waited for batches above which lengths have jumped, so that one window
        # is used
        last.at - (1.0 if batch_wait > 0.1 else CONSUMPTION_WINDOWS) * window_seconds,
    )
    long_window_start = history[bisect_left(history, since, key=lambda totals: totals.at)]
    long_seconds = max(last.at - long_window_start.at, seconds)
    return WindowRates(
        seconds=seconds,
        generators=generators,
        generators_now=last.joined,
        batch_wait=batch_wait,
        long_batch_wait=min(1.0, (last.batch_wait - long_window_start.batch_wait) / long_seconds),
        straggler_wait=min(
            1.0, (last.straggler_wait - long_window_start.straggler_wait) / long_seconds
        ),
        redis_wait=min(1.0, (last.redis_wait - first.redis_wait) / seconds),
        sampled=(last.sampled_tokens - first.sampled_tokens) / watched * generators,
        consumption=_consumption(history, since),
        running=(last.running_seconds - first.running_seconds) / watched,
        outstanding=last.outstanding,
        mean_tokens=last.mean_tokens,
        growth=_growth(history),
    )


def _consumption(history: Sequence[Totals], since: float) -> float | None:
    step_ends = [
        later
        for earlier, later in pairwise(history)
        if later.steps > earlier.steps and later.at >= since
    ]
    if len(step_ends) < 2:
        return None
    first_end = step_ends[0]
    last_end = step_ends[-1]
    busy_seconds = last_end.at - first_end.at - (last_end.batch_wait - first_end.batch_wait)
    return (
        (last_end.consumed_tokens - first_end.consumed_tokens) / busy_seconds
        if busy_seconds > 0
        else None
    )


def _growth(history: Sequence[Totals]) -> float:
    """Relative change of the mean completion a second, by least squares on its logarithm.

    The smaller of the slopes of the trend's two halves, 0 if their signs differ: a jump is not a
    trend.
    """
    last = history[-1].at
    points = [(totals.at, math.log(totals.mean_tokens)) for totals in history if totals.mean_tokens]
    points = [point for point in points if point[0] >= last - TREND_SECONDS]
    # Share of TREND_SECONDS that must have been measured before a trend is fitted
    if not points or last - points[0][0] < 0.5 * TREND_SECONDS:
        return 0.0
    middle = (points[0][0] + last) / 2
    slopes = []
    for half in (
        [point for point in points if point[0] <= middle],
        [point for point in points if point[0] > middle],
    ):
        if len(half) < 3:
            return 0.0
        slopes.append(linear_regression([at for at, _ in half], [log for _, log in half]).slope)
    smaller_slope, larger_slope = sorted(slopes, key=abs)
    return smaller_slope if smaller_slope * larger_slope > 0 else 0.0

"""Several runs, one budget: which to stop, which to continue, and the expected loss of each choice.

Only the best run counts in the end. Runs that continue share the budget in equal parts and end as
their forecasts say; a stopped run keeps its present pass rate. A run that broke has no forecast: it
keeps the mean of its last readings and gets nothing. Runs count as independent of each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.settings import MIN_RECENT_READINGS
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.law.chances import best_chances
from rollcast.scaling.law.curve import Array

Spread = tuple[float, float, float]
"""Mean, 5 % and 95 % quantile."""


@dataclass(frozen=True)
class Choice:
    """The best set of a given size to continue.

    Attributes:
        continued, stopped: positions of the runs; those without a forecast are always among the
            stopped.
        hours: device-hours that each of `continued` gets.
        best: pass rate of the best run at the end.
        expected_loss: of the mean of `best` against the best of all choices.
        loss_upper: 95 % quantile of that loss.
        saved: device-hours not spent.
        best_probability: for each run, the probability to end as the best one.
    """

    continued: tuple[int, ...]
    stopped: tuple[int, ...]
    hours: float
    best: Spread
    expected_loss: float
    loss_upper: float
    saved: float
    best_probability: tuple[float, ...]


@dataclass(frozen=True)
class Outlook:
    """One run under the recommended choice, and how much hangs on it.

    Attributes:
        has_forecast: without one it counts with its last readings and gets nothing.
        present_pass_rate: pass rate that it keeps when it is stopped.
        hours: device-hours that it gets.
        gain: of pass rate by these.
        gain_alone: by the whole budget.
        stop_loss: expected loss of the best choice that stops it.
        alone_loss: expected loss of giving it the whole budget and stopping all others.
    """

    verdict: VerdictKind
    has_forecast: bool
    present_pass_rate: Spread
    hours: float
    gain: Spread
    gain_alone: Spread
    stop_loss: float
    alone_loss: float


@dataclass(frozen=True)
class Allocation:
    """One choice for each number of runs that continue, from all of them to no run; one is
    recommended.
    """

    budget: float
    least_gain: float
    choices: tuple[Choice, ...]
    recommended: Choice
    runs: tuple[Outlook, ...]


def allocate(forecasts: Sequence[Forecast], budget: float, least_gain: float = 0.01) -> Allocation:
    """The choices, and the fewest runs that are expected to bring the best run as far as any choice
    does.

    No run is recommended if the gain of the best choice is below `least_gain` with 95 %: the budget
    is not worth it.

    Args:
        forecasts: n runs, their compute in the same device-hours.
        budget: further device-hours for all of them together.
        least_gain: pass rate that the budget must still be able to gain.

    Raises:
        ValueError: no runs, the budget is not above 0, or `least_gain` is no pass rate.
    """
    if not forecasts:
        raise ValueError("forecasts: no run is given; give one or more.")
    if not (budget > 0 and math.isfinite(budget)):
        raise ValueError(
            f"budget: {budget:g} further device-hours cannot be shared; give more than 0."
        )
    if not 0 <= least_gain <= 1:
        raise ValueError(f"least_gain: {least_gain:g} is no pass rate; give a value in [0, 1].")
    runs = _Runs(forecasts)
    means: dict[tuple[int, ...], float] = {}
    rates_by_set: list[tuple[tuple[int, ...], Array]] = []
    continued = runs.described_runs
    for size in range(len(runs.described_runs), -1, -1):
        # From all runs down to none: with many runs each size looks only at subsets of the best
        # larger set.
        final = runs.rates_after(budget / size) if size else runs.present_pass_rates
        candidates = _candidates(runs.described_runs, size, continued)
        for candidate in candidates:
            means[candidate] = float(runs.final_rates(final, candidate).max(axis=0).mean())
        continued = max(candidates, key=means.__getitem__)
        rates_by_set.append((continued, runs.final_rates(final, continued)))
    choices = _choices(rates_by_set, budget)
    recommended = choices[-1]
    if runs.described_runs and recommended.loss_upper >= least_gain:
        # 0.001: pass rate: choices whose expected losses differ by less are equally good. No
        # evaluation shows less.
        recommended = [choice for choice in choices[:-1] if choice.expected_loss <= 0.001][-1]
    return Allocation(
        budget, least_gain, choices, recommended, _outlooks(runs, recommended, means, budget)
    )


class _Runs:
    """Equally likely pass rates (n, d) of n runs, each run's in an order of its own: the runs are
    independent.
    """

    def __init__(self, forecasts: Sequence[Forecast]) -> None:
        self.forecasts = forecasts
        self.described_runs = tuple(
            run_index
            for run_index, forecast in enumerate(forecasts)
            if forecast.verdict.kind.is_described
        )
        self.present_pass_rates = self.rates_after(0.0)

    def rates_after(self, hours: float) -> Array:
        """(n, d) the pass rates if each run that has a forecast continues
        for `hours` device-hours.
        """
        rates = []
        for run_index, forecast in enumerate(self.forecasts):
            # The same at each call: an order of its own, or readings of its own.
            rng = np.random.default_rng(run_index)
            if run_index in self.described_runs:
                law = forecast.draws.law([float(forecast.curve.compute[-1]) + hours])[0]
                rates.append(law[rng.permutation(law.size)])
            else:
                rates.append(_recent(forecast, rng))
        return np.array(rates)

    def final_rates(self, final: Array, continued: tuple[int, ...]) -> Array:
        """`final` for those that continue, now for the others."""
        ends = self.present_pass_rates.copy()
        ends[list(continued)] = final[list(continued)]
        return ends


def _recent(forecast: Forecast, rng: np.random.Generator) -> Array:
    """Draws (d,) of the mean of the last readings, as uncertain as their scatter about it."""
    readings = forecast.curve.pass_rate
    readings = readings[-max(MIN_RECENT_READINGS, readings.size // 10) :]
    # A single reading shows no scatter: its noise is then that of the fit.
    scatter = float(np.std(readings, ddof=1)) if readings.size > 1 else forecast.reading_error
    spread = scatter / np.sqrt(readings.size)
    draws: Array = readings.mean() + spread * rng.standard_normal(forecast.draws.asymptote.size)
    return draws.clip(0.0, 1.0)


def _candidates(
    described_runs: tuple[int, ...], size: int, larger: tuple[int, ...]
) -> list[tuple[int, ...]]:
    """Sets of `size` runs to look at; `larger` is the best that was found with one run more."""
    # 10: up to this many runs every subset is tried (1,024 of them); with more, runs are stopped
    # one by one.
    if len(described_runs) <= 10 or size <= 1:
        return list(combinations(described_runs, size))
    if size == len(described_runs):
        return [described_runs]
    return [tuple(run for run in larger if run != stopped_run) for stopped_run in larger]


def _choices(
    rates_by_set: Sequence[tuple[tuple[int, ...], Array]], budget: float
) -> tuple[Choice, ...]:
    """`rates_by_set`: the sets that continue, and with each the pass rates (n, d)
    of all runs at the end.
    """
    best_rates = [end_rates.max(axis=0) for _, end_rates in rates_by_set]
    highest_rates = max(best_rates, key=np.mean)
    return tuple(
        Choice(
            continued=continued,
            stopped=tuple(run for run in range(of_all.shape[0]) if run not in continued),
            hours=budget / len(continued) if continued else 0.0,
            best=_spread(reached),
            expected_loss=float(np.mean(highest_rates - reached)),
            loss_upper=float(np.quantile(highest_rates - reached, 0.95)),
            saved=0.0 if continued else budget,
            best_probability=tuple(best_chances(of_all).tolist()),
        )
        for (continued, of_all), reached in zip(rates_by_set, best_rates, strict=True)
    )


def _outlooks(
    runs: _Runs, recommended: Choice, means: dict[tuple[int, ...], float], budget: float
) -> tuple[Outlook, ...]:
    """`means`: expected pass rate of the best run, by the sets that were looked at."""
    highest_mean = max(means.values())
    recommended_gains = runs.rates_after(recommended.hours) - runs.present_pass_rates
    alone = runs.rates_after(budget) - runs.present_pass_rates
    return tuple(
        Outlook(
            verdict=forecast.verdict.kind,
            has_forecast=run in runs.described_runs,
            present_pass_rate=_spread(runs.present_pass_rates[run]),
            hours=recommended.hours if run in recommended.continued else 0.0,
            gain=_spread(recommended_gains[run])
            if run in recommended.continued
            else (0.0, 0.0, 0.0),
            gain_alone=_spread(alone[run]),
            stop_loss=highest_mean
            - max(mean for continued, mean in means.items() if run not in continued),
            alone_loss=highest_mean - means[(run,) if run in runs.described_runs else ()],
        )
        for run, forecast in enumerate(runs.forecasts)
    )


def _spread(draws: Array) -> Spread:
    low, high = np.quantile(draws, (0.05, 0.95))
    return float(draws.mean()), float(low), float(high)

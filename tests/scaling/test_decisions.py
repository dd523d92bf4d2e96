"""Stopping, allocation, comparison, leave-one-out, backtest and the choice of a model size."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from rollcast.scaling.decisions.allocation import allocate
from rollcast.scaling.decisions.backtest import backtest
from rollcast.scaling.decisions.compare import compare, log_replot, with_asymptote
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.leave_one_out import PartKind, leave_one_out
from rollcast.scaling.decisions.stopping import Refit, StopRule, stop_reason
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.law.curve import Curve, SigmoidParameters
from rollcast.scaling.law.model_size import fit_model_size
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import LAW_PRIOR


@cache
def run(
    asymptote: float = 0.7,
    exponent: float = 1.7,
    stop: float = 5.0,
    seed: int = 0,
    noise: float = 0.004,
    name: str = "",
) -> Forecast:
    compute = np.linspace(stop / 50, stop, 50)
    law = SigmoidParameters(0.2, asymptote, exponent, 1.0).pass_rate(compute)
    curve = Curve.from_points(
        compute, law + noise * np.random.default_rng(seed).standard_normal(50), name=name
    )
    return fit(curve, FitOptions(prior=LAW_PRIOR))


def refit(verdict: VerdictKind, gain: float, num_points: int = 20, rise: float = 0.3) -> Refit:
    return Refit(1.0, verdict, gain, num_points, rise)


def test_a_run_stops_only_after_three_refits_below_the_asked_gain() -> None:
    rule = StopRule(least_gain=0.02)
    low, high = refit(VerdictKind.FORECASTABLE, 0.01), refit(VerdictKind.FORECASTABLE, 0.05)
    assert stop_reason(rule, [low, low]) is None
    assert stop_reason(rule, [low, low, high]) is None
    assert stop_reason(rule, [high, low, low]) is None
    reason = stop_reason(rule, [high, low, low, low])
    assert reason is not None
    assert "at most 0.0100" in reason


def test_a_run_stops_when_saturated_where_that_is_asked_for() -> None:
    saturated = refit(VerdictKind.SATURATED, 0.5)
    assert "saturated" in str(stop_reason(StopRule(), [saturated] * 3))
    assert stop_reason(StopRule(on_saturated=False), [saturated] * 3) is None
    with pytest.raises(ValueError, match="least_gain"):
        StopRule(least_gain=3)


def test_a_run_that_broke_ends_on_three_refits_whatever_its_rest_may_gain() -> None:
    fallen = refit(VerdictKind.BROKEN, 0.5)
    assert "broken: the pass rate fell from its peak" in str(stop_reason(StopRule(), [fallen] * 3))
    assert stop_reason(StopRule(), [refit(VerdictKind.TOO_EARLY, 0.5), fallen, fallen]) is None
    assert stop_reason(StopRule(), [refit(VerdictKind.BROKEN, 0.5, num_points=9)] * 3) is None


def test_a_run_that_learns_nothing_ends_by_itself_only_in_the_second_half_of_its_budget() -> None:
    dead = refit(VerdictKind.NO_LEARNING, 0.5)
    assert "no learning" in str(stop_reason(StopRule(), [dead] * 3))
    assert stop_reason(StopRule(), [replace(dead, budget_share=0.49), dead, dead]) is None


@pytest.mark.parametrize(
    "kind", [VerdictKind.TOO_EARLY, VerdictKind.NOT_SIGMOID, VerdictKind.REGIME_CHANGE]
)
def test_a_rest_that_gains_nothing_ends_a_run_of_any_verdict_with_enough_evaluations(
    kind: VerdictKind,
) -> None:
    reason = str(stop_reason(StopRule(), [refit(kind, 0.0)] * 3))
    assert f"verdict {kind.replace('_', ' ')}" in reason
    assert (
        stop_reason(StopRule(), [refit(kind, 0.0, num_points=9), *[refit(kind, 0.0)] * 2]) is None
    )
    assert stop_reason(StopRule(), [refit(kind, 0.02)] * 3) is None


def test_a_run_that_learns_nothing_is_stopped_as_flat_and_one_that_climbs_is_not() -> None:
    compute = np.linspace(1.0, 25.0, 25)
    noise: NDArray[np.float64] = 0.004 * np.random.default_rng(0).standard_normal(compute.size)

    def reason(pass_rate: NDArray[np.float64], budget: float) -> str | None:
        curve = Curve.from_points(compute, pass_rate + noise)
        refits = [
            Refit.from_forecast(fit(curve.window(stop=stop)), budget) for stop in (23.0, 24.0, 25.0)
        ]
        return stop_reason(StopRule(), refits)

    flat, climbing = np.full(compute.size, 0.5), 0.3 + 0.01 * compute
    assert "no learning" in str(reason(flat, 30.0))
    assert reason(climbing, 30.0) is None
    assert reason(flat, 2_500.0) is None, "so much budget may still bring a rise"


def test_a_refit_asks_for_the_gain_of_the_rest_of_the_budget() -> None:
    forecast = run(stop=2.0)
    assert Refit.from_forecast(forecast, 2.0).gain_upper == pytest.approx(0.0)
    assert Refit.from_forecast(forecast, 20.0).gain_upper == pytest.approx(
        forecast.expected_gain(2.0, 20.0)[2]
    )


def law_of_draws(forecast: Forecast, compute: float, seed: int) -> np.ndarray:
    """Eq (1) of each draw, in an order that has nothing to do with that of another run."""
    draws = forecast.draws
    rise = 1 / (1 + np.exp(draws.exponent * (draws.log_midpoint - np.log(compute))))
    return np.random.default_rng(1000 + seed).permutation(
        draws.initial + (draws.asymptote - draws.initial) * rise
    )


def expected_best(forecasts: list[Forecast], continued: tuple[int, ...], budget: float) -> float:
    """By brute force: what the best run has, on average, if these share the budget."""
    ends = [
        law_of_draws(
            forecast,
            forecast.curve.compute[-1] + (budget / len(continued) if i in continued else 0),
            i,
        )
        for i, forecast in enumerate(forecasts)
    ]
    return float(np.mean(np.max(ends, axis=0)))


def subsets(count: int) -> list[tuple[int, ...]]:
    return [kept for size in range(count, -1, -1) for kept in combinations(range(count), size)]


@pytest.mark.parametrize("budget", [1.0, 12.0, 100.0])
def test_every_allocation_is_the_best_subset_by_brute_force(budget: float) -> None:
    forecasts = [
        run(asymptote=a, stop=s, seed=i)
        for i, (a, s) in enumerate([(0.6, 2.0), (0.72, 0.9), (0.7, 1.5)])
    ]
    allocation = allocate(forecasts, budget)
    value = {kept: expected_best(forecasts, kept, budget) for kept in subsets(3)}
    most = max(value.values())
    assert [len(choice.continued) for choice in allocation.choices] == [3, 2, 1, 0]
    for choice in allocation.choices:
        of_that_size = [value[kept] for kept in value if len(kept) == len(choice.continued)]
        assert value[choice.continued] == pytest.approx(max(of_that_size), abs=0.002)
        assert choice.best[0] == pytest.approx(value[choice.continued], abs=0.002)
        assert choice.expected_loss == pytest.approx(most - value[choice.continued], abs=0.003)
        assert choice.best[1] < choice.best[0] < choice.best[2]
        assert sorted((*choice.continued, *choice.stopped)) == [0, 1, 2]
        assert choice.hours * len(choice.continued) + choice.saved == pytest.approx(budget)
        assert sum(choice.best_probability) == pytest.approx(1.0)
    assert min(choice.expected_loss for choice in allocation.choices) == 0
    assert value[allocation.recommended.continued] == pytest.approx(most, abs=0.003)
    for place, one in enumerate(allocation.runs):
        without = max(value[kept] for kept in value if place not in kept)
        assert one.stop_loss == pytest.approx(most - without, abs=0.003)
        assert one.alone_loss == pytest.approx(most - value[(place,)], abs=0.003)
        last = forecasts[place].curve.compute[-1]
        assert one.gain_alone == pytest.approx(
            forecasts[place].expected_gain(last, last + budget), abs=0.001
        )
        assert one.gain == pytest.approx(
            forecasts[place].expected_gain(last, last + one.hours), abs=0.001
        )


def test_two_runs_that_may_each_turn_out_best_share_the_budget_and_equals_do_not() -> None:
    """With the whole budget two open runs are worth more than one; of two that are known and equal
    one is enough.
    """
    open_runs = [run(stop=0.8, noise=0.015, seed=seed) for seed in (1, 2)]
    both = allocate(open_runs, 1000.0).recommended
    assert both.continued == (0, 1)
    assert both.best[0] == pytest.approx(expected_best(open_runs, (0, 1), 1000.0), abs=0.003), (
        "they are independent"
    )
    known = [run(stop=3.0, noise=0.001, seed=seed) for seed in (1, 2)]
    assert len(allocate(known, 1000.0).recommended.continued) == 1


def test_more_runs_than_are_enumerated_are_stopped_one_by_one_and_lose_next_to_nothing() -> None:
    forecasts = [run(asymptote=0.5 + 0.02 * i, stop=1.0 + 0.1 * i, seed=i) for i in range(12)]
    allocation = allocate(forecasts, 4.0)
    assert [len(choice.continued) for choice in allocation.choices] == list(range(12, -1, -1))
    reached = expected_best(forecasts, allocation.recommended.continued, 4.0)
    assert (
        reached
        > max(expected_best(forecasts, kept, 4.0) for kept in subsets(12) if len(kept) <= 2) - 0.003
    )


def test_all_runs_are_stopped_where_the_budget_gains_less_than_is_asked_for() -> None:
    done = [run(stop=30.0, seed=seed) for seed in (1, 2)]
    allocation = allocate(done, 30.0, least_gain=0.02)
    assert allocation.recommended is allocation.choices[-1]
    assert (allocation.recommended.continued, allocation.recommended.saved) == ((), 30.0)
    assert allocation.recommended.loss_upper < 0.02
    assert allocate(done, 30.0, least_gain=0.0).recommended.continued != ()


def test_all_runs_are_stopped_by_the_upper_bound_of_the_gain_not_by_its_mean() -> None:
    forecasts = [run(stop=2.0, seed=seed) for seed in (1, 2)]
    nothing = allocate(forecasts, 4.0).choices[-1]
    mean, upper = nothing.expected_loss, nothing.loss_upper
    assert mean < upper
    assert allocate(forecasts, 4.0, least_gain=(mean + upper) / 2).recommended.continued != ()
    assert allocate(forecasts, 4.0, least_gain=upper + 1e-6).recommended.continued == ()


@pytest.mark.parametrize(
    ("level", "verdict"), [(0.35, VerdictKind.BROKEN), (0.95, VerdictKind.REGIME_CHANGE)]
)
def test_a_run_that_broke_is_worth_its_last_readings_and_gets_nothing(
    level: float, verdict: VerdictKind
) -> None:
    compute = np.linspace(0.1, 5.0, 50)
    readings = SigmoidParameters(0.2, 0.8, 1.7, 1.0).pass_rate(compute)
    readings[35:] = level
    broke = fit(
        Curve.from_points(compute, readings + 0.004 * np.random.default_rng(3).standard_normal(50))
    )
    allocation = allocate([broke, run(0.6)], 20.0)
    assert [one.verdict for one in allocation.runs] == [verdict, VerdictKind.SATURATED]
    assert [choice.continued for choice in allocation.choices] == [(1,), ()]
    lost = allocation.runs[0]
    assert (lost.has_forecast, lost.hours, lost.gain, lost.stop_loss) == (
        False,
        0.0,
        (0.0, 0.0, 0.0),
        0.0,
    )
    assert lost.present_pass_rate[0] == pytest.approx(level, abs=0.01)
    assert allocation.choices[0].best[0] == pytest.approx(max(0.6, level), abs=0.02)
    assert allocation.choices[0].best_probability == ((0.0, 1.0) if level < 0.6 else (1.0, 0.0))
    assert allocate([broke], 20.0, least_gain=0.0).recommended.continued == ()
    (nothing,) = allocate([broke], 20.0).choices
    assert (nothing.continued, nothing.expected_loss) == ((), 0.0)
    assert nothing.best[0] == pytest.approx(level, abs=0.01)


@pytest.mark.parametrize(
    ("runs", "budget", "least_gain", "sentence"),
    [
        (0, 1.0, 0.01, "no run is given"),
        (1, 0.0, 0.01, "budget: 0 further device-hours"),
        (1, -3.0, 0.01, "budget: -3 further device-hours"),
        (1, float("nan"), 0.01, "budget: nan"),
        (1, float("inf"), 0.01, "budget: inf"),
        (1, 1.0, 2.0, "least_gain: 2 is no pass rate"),
    ],
)
def test_an_allocation_of_nothing_is_refused(
    runs: int, budget: float, least_gain: float, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        allocate([run()] * runs, budget, least_gain)


def test_runs_are_told_apart_by_asymptote_first_and_then_by_efficiency() -> None:
    better, base, slow = (
        run(0.76, seed=1, name="better"),
        run(0.7, seed=2, name="base"),
        run(0.7, 1.2, 8.0, 3, name="slow"),
    )
    by_asymptote, _, by_exponent = compare([better, base, slow])
    assert by_asymptote.common_asymptote is None
    assert by_asymptote.asymptote_difference[1] == pytest.approx(0.06, abs=0.015)
    assert by_asymptote.verdict.startswith("better has the higher asymptote")
    assert by_exponent.common_asymptote == pytest.approx(0.7, abs=0.015)
    assert by_exponent.exponent_difference is not None
    assert by_exponent.exponent_difference[1] == pytest.approx(0.5, abs=0.2)
    assert "base is more efficient" in by_exponent.verdict


def test_asymptotes_are_called_the_same_only_where_the_interval_says_so() -> None:
    (ignorant,) = compare([run(stop=0.5, seed=1, noise=0.02), run(stop=0.5, seed=2, noise=0.02)])
    assert ignorant.asymptote_difference[2] - ignorant.asymptote_difference[0] > 0.1
    assert "cannot be separated" in ignorant.verdict
    assert "within the margin" not in ignorant.verdict
    (certain,) = compare([run(stop=20.0, seed=1), run(stop=20.0, seed=2)])
    assert max(map(abs, certain.asymptote_difference)) < 0.02
    assert "within the margin" in certain.verdict


def test_the_log_replot_of_exact_points_is_a_line_of_slope_b_through_the_origin() -> None:
    law = SigmoidParameters(0.4, 0.61, 1.92, 2542.0)
    compute = np.geomspace(500, 16_000, 20)
    log_compute, log_factor = log_replot(Curve.from_points(compute, law.pass_rate(compute)), law)
    assert log_factor == pytest.approx(1.92 * log_compute)


def test_an_asymptote_can_be_held() -> None:
    held = with_asymptote(run(stop=1.0, noise=0.01).curve, 0.75)
    assert held.asymptote() == pytest.approx([0.75] * 3, abs=0.005)


@pytest.mark.parametrize(("exponent", "midpoint"), [(1.92, 2542.0), (0.8, 0.03), (4.55, 900.0)])
def test_the_log_replot_of_noiseless_points_has_the_slope_b_by_plain_least_squares(
    exponent: float, midpoint: float
) -> None:
    law = SigmoidParameters(0.4, 0.61, exponent, midpoint)
    compute = midpoint * np.geomspace(0.2, 6, 30)
    slope, offset = np.polyfit(
        *log_replot(Curve.from_points(compute, law.pass_rate(compute)), law), 1
    )
    assert slope == pytest.approx(exponent, abs=1e-6)
    assert offset == pytest.approx(0.0, abs=1e-6)


def test_leave_one_out_finds_the_part_that_matters() -> None:
    whole = run(0.7, seed=1, name="whole")
    table = leave_one_out(
        whole, [run(0.62, seed=2, name="no fp32"), run(0.7, seed=3, name="no filter")]
    )
    assert [row.name for row in table.rows] == ["whole", "no fp32", "no filter"]
    assert [row.kind for row in table.rows] == [None, PartKind.CEILING_MOVER, PartKind.CANNOT_TELL]
    loss = table.rows[1].asymptote_loss
    assert loss is not None
    assert loss[1] == pytest.approx(0.08, abs=0.015)
    assert loss[0] < loss[1] < loss[2]
    assert [held.best.asymptote for held in table.at_common] == pytest.approx(
        [table.common_asymptote] * 3, abs=0.005
    )
    assert table.common_asymptote == pytest.approx(0.7, abs=0.01)  # of those that share the ceiling


def test_leave_one_out_tells_efficiency_from_the_ceiling_and_a_twin_from_both() -> None:
    whole = run(0.7, seed=1, name="whole")
    table = leave_one_out(
        whole, [run(0.7, 1.1, 8.0, 2, name="slow"), run(0.7, seed=3, name="twin")]
    )
    assert [row.kind for row in table.rows] == [
        None,
        PartKind.EFFICIENCY_SHAPER,
        PartKind.CANNOT_TELL,
    ]
    loss = table.rows[1].exponent_loss
    assert loss is not None
    assert loss[1] == pytest.approx(0.6, abs=0.2)


def test_a_backtest_is_the_forecast_that_a_cut_curve_gives() -> None:
    curve = run(seed=5).curve
    (past,) = backtest(curve, shares=(0.5,))
    assert past.num_points == 25
    assert past.outcome == pytest.approx(curve.pass_rate[-3:].mean())
    again = fit(curve.window(stop=2.5001))
    expected = again.predictive(
        [curve.compute[-3:].mean()], standard_error=again.reading_error / np.sqrt(3)
    )[:, 0]
    assert past.forecast == pytest.approx(tuple(expected))
    assert past.covered
    assert abs(past.error) < abs(past.last_value - past.outcome)
    with pytest.raises(ValueError, match="between 0 and 1"):
        backtest(curve, shares=(50.0,))
    with pytest.raises(ValueError, match="is not below the highest reading"):
        backtest(curve, options=FitOptions(initial=0.95))
    above_what_was_seen = FitOptions(initial=float(curve.pass_rate[:5].max()))
    assert [cut.num_points for cut in backtest(curve, (0.1,), above_what_was_seen)] == [5]
    with pytest.raises(ValueError, match="too few"):
        backtest(curve.window(stop=0.3))


def test_the_law_across_sizes_recovers_its_settings_and_extrapolates_in_size() -> None:
    rng = np.random.default_rng(0)
    sizes, computes = (
        np.repeat([0.5e9, 1.5e9, 3e9, 7e9], 12),
        np.tile(np.geomspace(10, 1000, 12), 4),
    )

    def loss(size: float, compute: float) -> float:
        return float(np.exp(1.0 - 0.02 * np.log(size) - 0.2 / (1 + 2e9 / size) * np.log(compute)))

    truth = np.array([loss(n, x) for n, x in zip(sizes, computes, strict=True)])
    law = fit_model_size(
        sizes, computes, 1 - truth * np.exp(0.01 * rng.standard_normal(truth.size))
    )
    low, median, high = law.pass_rate(14e9, [2000.0], (0.01, 0.5, 0.99))[:, 0]
    expected = 1 - loss(14e9, 2000.0)
    assert median == pytest.approx(expected, abs=0.03)
    assert low < expected < high
    reach = law.compute_to_target(7e9, 1 - loss(7e9, 500.0))
    assert reach[1] == pytest.approx(500.0, rel=0.2)
    assert law.best_size([0.5e9, 7e9], 1000.0)[0] == 1
    with pytest.raises(ValueError, match="4 or more"):
        fit_model_size([1e9], [1.0], [0.5])


def test_the_best_size_changes_where_two_laws_cross() -> None:
    sizes, computes = np.repeat([1e9, 10e9], 20), np.tile(np.geomspace(1, 1000, 20), 2)
    small = sizes == 1e9
    truth = np.where(small, 0.6 * computes**-0.05, 0.9 * computes**-0.15)
    law = fit_model_size(
        sizes, computes, 1 - truth * np.exp(0.005 * np.random.default_rng(0).standard_normal(40))
    )
    grid = np.geomspace(1, 1000, 200)
    switches = law.switches([1e9, 10e9], grid)
    assert [position for _, position in switches] == [0, 1]
    assert switches[1][0] == pytest.approx(1.5**10, rel=0.25)

"""The policy of a sweep against slow references, and on simulated sweeps with a known best arm."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from rollcast.scaling.law.curve import Array
from rollcast.scaling.sweep import belief as belief_module
from rollcast.scaling.sweep.belief import SweepBelief
from rollcast.scaling.sweep.policy import decide
from rollcast.scaling.sweep.prior import SweepPrior, learned_sweep_prior, read_sweep_prior
from rollcast.scaling.sweep.state import SweepRun, SweepState, bin_readings
from testkit.forecast.sweep_learning import Family, learn_sweep_prior

PRIOR = SweepPrior(
    time_scale=0.1,
    common_level=0.15,
    common_path=0.1,
    common_trend=0.2,
    arm_level=0.08,
    arm_path=0.15,
    arm_trend=0.05,
    reading=0.03,
    log_scale=0.3,
    log_reading=0.3,
)


@pytest.fixture
def fixed_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scale and scatter are those of the prior, whatever the readings say."""
    monkeypatch.setattr(belief_module, "GRID", (0.0,))


def simulate(num_arms: int, rng: np.random.Generator, prior: SweepPrior = PRIOR) -> Array:
    """(arms, 20) levels at the ends of the twentieths, step by step and arm by arm."""

    def path(scale: float) -> list[float]:
        value, values, before = 0.0, [], 0.0
        for place in range(1, 21):
            w = math.log1p(place / 20 / prior.time_scale) / math.log1p(1 / prior.time_scale)
            value += scale * math.sqrt(w - before) * rng.standard_normal()
            values.append(value)
            before = w
        return values

    def part(level: float, path_scale: float, trend: float) -> Array:
        slope = trend * rng.standard_normal()
        places = np.arange(1, 21) / 20 / prior.time_scale
        w = np.log1p(places) / math.log1p(1 / prior.time_scale)
        return np.asarray(level * rng.standard_normal() + np.array(path(path_scale)) + slope * w)

    common = 0.35 + part(prior.common_level, prior.common_path, prior.common_trend)
    arms = [part(prior.arm_level, prior.arm_path, prior.arm_trend) for _ in range(num_arms)]
    return np.asarray(common + np.array(arms))


class SimulatedSweep:
    """Arms whose levels are known, and a budget."""

    def __init__(self, levels: Array, budget: float, rng: np.random.Generator) -> None:
        self.readings = levels + PRIOR.reading * rng.standard_normal(levels.shape)
        self.spent = [0] * len(levels)
        self.left = round(20 * budget)

    @property
    def state(self) -> SweepState:
        runs = [
            SweepRun(
                str(arm), spent / 20, [(k + 1, self.readings[arm, k], None) for k in range(spent)]
            )
            for arm, spent in enumerate(self.spent)
        ]
        return SweepState(runs, 20.0, self.left / 20)

    def run(self, arm: int) -> None:
        self.spent[arm] += 1
        self.left -= 1


@pytest.mark.usefixtures("fixed_prior")
def test_the_belief_is_the_conditional_gaussian_entry_by_entry() -> None:
    """Two arms, one of them with two seeds that share its law."""
    readings = [(0, 0, 0.1, 0.3), (0, 0, 0.3, 0.4), (0, 1, 0.1, 0.35), (1, 2, 0.2, 0.5)]
    runs = [
        SweepRun("a", 0.3, [(10.0, 0.3, None), (30.0, 0.4, None)]),
        SweepRun("a", 0.1, [(10.0, 0.35, 0.05)]),
        SweepRun("b", 0.2, [(20.0, 0.5, None)]),
    ]
    belief = SweepBelief(SweepState(runs, 100.0, 1.0), PRIOR)

    def warp(share: float) -> float:
        return math.log(1 + share / 0.1) / math.log(11)

    def covariance(p: tuple[int, int, float], q: tuple[int, int, float]) -> float:
        u, v = warp(p[2]), warp(q[2])
        total = 0.15**2 + 0.1**2 * min(u, v) + 0.2**2 * u * v
        if p[0] == q[0]:
            total += 0.08**2 + 0.15**2 * min(u, v) + 0.05**2 * u * v
        if p[1] == q[1] >= 0:
            total += PRIOR.seed_path**2 * min(u, v)
        return total

    seen = [(arm, run, share) for arm, run, share, _ in readings]
    ends = [(0, -1, 1.0), (1, -1, 1.0)]
    noise = np.diag([0.03**2, 0.03**2, 0.05**2, 0.03**2])
    among = np.array([[covariance(p, q) for q in seen] for p in seen]) + noise
    across = np.array([[covariance(p, q) for q in seen] for p in ends])
    weights = across @ np.linalg.inv(among)
    mean = 0.35 + weights @ (np.array([rate for *_, rate in readings]) - 0.35)
    spread = np.array([[covariance(p, q) for q in ends] for p in ends]) - weights @ across.T
    assert belief.mean == pytest.approx(mean, abs=1e-4)
    assert belief.covariance == pytest.approx(spread, abs=1e-5)


@pytest.mark.usefixtures("fixed_prior")
def test_the_gain_is_that_of_readings_drawn_and_believed() -> None:
    """Reference: draw what two more slices of an arm would read, believe it, take the best."""
    rng = np.random.default_rng(3)
    sweep = SimulatedSweep(simulate(3, rng), 2.0, rng)
    for arm in (0, 0, 0, 1, 1, 2, 2):
        sweep.run(arm)
    before = SweepBelief(sweep.state, PRIOR)
    shifts = before.shifts(1, range(2, 4))
    expected = (before.mean + rng.standard_normal((200_000, 2)) @ shifts).max(axis=1).mean()

    # The two readings at the middles of the slices, jointly normal given those so far.
    def believe(third: float, fourth: float) -> Array:
        runs = list(sweep.state.runs)
        more = [*runs[1].readings, (2.5, third, None), (3.5, fourth, None)]
        runs[1] = SweepRun("1", 0.2, more)
        return SweepBelief(SweepState(runs, 20.0, 1.0), PRIOR).mean

    origin = believe(0.0, 0.0)
    slope = np.stack([believe(1.0, 0.0) - origin, believe(0.0, 1.0) - origin])
    # Means are linear in readings, so their shifts are `slope` times what the readings surprise by.
    factor = np.linalg.lstsq(slope.T, shifts.T, rcond=None)[0].T
    assert factor @ slope == pytest.approx(shifts, abs=1e-6)
    again = (before.mean + rng.standard_normal((200_000, 2)) @ factor @ slope).max(axis=1).mean()
    assert expected == pytest.approx(again, abs=5e-4)
    assert expected > before.mean.max()


def test_chances_are_right_and_the_policy_beats_equal_shares() -> None:
    """40 simulated sweeps of five arms with a fifth of the compute of all."""
    rng = np.random.default_rng(11)
    right, chances, regret, regret_of_equal_shares = [], [], [], []
    for _ in range(40):
        levels = simulate(5, rng)
        sweep = SimulatedSweep(levels, 1.0, rng)
        while sweep.left:
            decision = decide(sweep.state, PRIOR)
            assert decision.run is not None
            sweep.run(decision.run)
        outlook = decide(sweep.state, PRIOR)
        chosen = int(outlook.best.arm)
        right.append(chosen == levels[:, -1].argmax())
        chances.append(outlook.best.chance)
        regret.append(levels[:, -1].max() - levels[chosen, -1])
        equal = SimulatedSweep(levels, 1.0, rng)
        equal_choice = equal.readings[:, 1:4].mean(axis=1).argmax()
        regret_of_equal_shares.append(levels[:, -1].max() - levels[equal_choice, -1])
    # Two standard errors of a share of 40 are 0.16.
    assert np.mean(right) == pytest.approx(np.mean(chances), abs=0.16)
    assert np.mean(regret) < 0.85 * np.mean(regret_of_equal_shares)


def test_no_slice_is_planned_beyond_the_budget_or_the_end() -> None:
    full = [(float(k), 0.5, None) for k in range(1, 21)]
    done, fresh = SweepRun("a", 1.0, full), SweepRun("b", 0.0, [])
    assert decide(SweepState([done, fresh], 20.0, 0.04), PRIOR).run is None
    assert decide(SweepState([done, done], 20.0, 5.0), PRIOR).run is None
    decision = decide(SweepState([done, fresh], 20.0, 0.1), PRIOR)
    assert (decision.run, decision.share <= 0.1) == (1, True)


def test_a_target_far_below_the_readings_makes_few_bins() -> None:
    """A user may lower the target of a sweep that goes on."""
    readings = [(float(x), 0.3 + 0.001 * x, None) for x in range(1, 65)]
    binned = bin_readings(SweepState([SweepRun("a", 1.0, readings)], 1.0, 1.0))
    means = {
        (round(x, 1), round(y, 4)) for x, y in zip(binned.share, binned.pass_rate, strict=True)
    }
    assert len(binned.run) == 7
    assert {(1.0, 0.301), (2.5, 0.3025), (64.0, 0.364)} <= means
    assert binned.num_averaged.sum() == 64


def test_an_arm_far_behind_gets_nothing_and_its_chance_is_small() -> None:
    ahead = [(float(k), 0.7 + 0.001 * k, 0.01) for k in range(1, 11)]
    behind = [(float(k), 0.1, 0.01) for k in range(1, 11)]
    runs = [
        SweepRun(arm, 0.5, readings)
        for arm, readings in zip("abc", (ahead, ahead, behind), strict=True)
    ]
    decision = decide(SweepState(runs, 20.0, 1.0), PRIOR)
    assert decision.run in (0, 1)
    chance = {outlook.arm: outlook.chance for outlook in decision.arms}
    assert chance["c"] < 0.01
    assert chance["a"] == pytest.approx(0.5, abs=0.05)
    assert sum(chance.values()) == pytest.approx(1.0)


def test_the_prior_of_simulated_families_is_found_again() -> None:
    rng = np.random.default_rng(5)
    families = []
    for number in range(12):
        levels = simulate(4, rng)
        sweep = SimulatedSweep(levels, 4.0, rng)
        sweep.spent = [20] * 4
        families.append(Family(f"group-{number}", bin_readings(sweep.state), np.arange(4)))
    learned = learn_sweep_prior(families)
    assert learned.arm_path == pytest.approx(PRIOR.arm_path, rel=0.3)
    assert learned.reading == pytest.approx(PRIOR.reading, rel=0.2)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is no prior"),
        ('{"sweep": {"time_scale": 0.1}}', "sweep.common_level None: give a number above 0"),
        ('{"sweep": {"bend": 1}}', "give an object with the fields time_scale"),
        ('{"sweep": 3}', "give an object with the fields time_scale"),
    ],
)
def test_a_file_that_holds_no_prior_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "prior.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=sentence):
        read_sweep_prior(file)


def test_a_prior_without_sweeps_leaves_the_built_in_numbers(tmp_path: Path) -> None:
    file = tmp_path / "prior.json"
    file.write_text('{"prior": {}}')
    assert read_sweep_prior(file) == learned_sweep_prior()

"""The search for the best split of random rates, against simulating every split."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

from rollcast.recipe.schedule import PipelineRL, PPOOffPolicy
from rollcast.simulation.generator import EngineSpeed
from rollcast.simulation.split import (
    EQUAL_RATE_SHARE,
    MAX_SIMULATIONS,
    Rates,
    SplitSimulator,
    list_splits,
)
from rollcast.simulation.workload import lognormal_with_mean

FEW_DEVICES = 22
MANY_DEVICES = 48


def random_rates(seed: int) -> Rates:
    rng = random.Random(seed)
    max_staleness = rng.choice([1, 2, 8])
    groups = rng.choice([4, 8])
    schedule = (
        PipelineRL(max_staleness, groups)
        if rng.random() < 0.8
        else PPOOffPolicy(max_staleness, groups)
    )
    return Rates(
        schedule=schedule,
        lengths=lognormal_with_mean(100.0, rng.choice([0.0, 0.5, 1.0]), 400.0),
        rollouts_per_group=rng.choice([2, 4]),
        engine=EngineSpeed(
            slots=rng.choice([4, 16]),
            seconds_per_token=0.01,
            seconds_per_token_per_rollout=rng.choice([0.0, 0.001]),
        ),
        devices_per_generator=rng.choice([1, 2]),
        step_seconds=rng.choice([1.0, 5.0, 30.0]),
        trainer_devices=rng.choice([1, 4]),
        trainer_scaling=rng.choice([1.0, 0.8]),
        trainer_multiple=rng.choice([1, 2]),
    )


def check_few(seed: int) -> None:
    """Few splits are searched as a whole."""
    rates = random_rates(seed)
    simulator, splits = _simulator(rates), list_splits(FEW_DEVICES, rates)
    every = [simulator.simulate(split) for split in splits]
    found = simulator.search(splits)
    assert found.best.steps_per_hour == max(outcome.steps_per_hour for outcome in every)
    assert found.passed_over == 0
    assert len(found.outcomes) + found.beaten == len(splits)
    assert all(outcome.steps_per_hour <= 1.03 * outcome.bound for outcome in every)
    assert all(outcome.staleness_max <= rates.schedule.max_staleness for outcome in every)


def check_many(seed: int) -> None:
    """Of many splits few are simulated, and one within the margin of the best is found."""
    rates = replace(random_rates(seed), devices_per_generator=1, trainer_multiple=1)
    simulator, splits = _simulator(rates), list_splits(MANY_DEVICES, rates)
    best = max(simulator.simulate(split).steps_per_hour for split in splits)
    found = simulator.search(splits)
    assert found.best.steps_per_hour >= (1 - EQUAL_RATE_SHARE) * best
    assert found.passed_over > 0, "the search had to close in"
    assert len(found.outcomes) <= MAX_SIMULATIONS
    assert len(found.outcomes) + found.beaten + found.passed_over == len(splits)


def _simulator(rates: Rates) -> SplitSimulator:
    """One whose simulations, which are the same each time, are made once for both
    of their readers.
    """
    simulator = SplitSimulator(rates)
    simulator.simulate = cache(simulator.simulate)  # type: ignore[method-assign]
    return simulator

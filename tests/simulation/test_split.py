"""The choice of a split against the closed form and against simulating every split."""

from __future__ import annotations

import pytest

from rollcast.recipe.schedule import PipelineRL
from rollcast.simulation.generator import EngineSpeed
from rollcast.simulation.split import Rates, Split, SplitSimulator, list_splits
from rollcast.simulation.workload import constant
from tests.simulation.split_search import check_few, check_many


def equal_lengths(**changes: object) -> Rates:
    """A group takes 1 s; a generator holds 4 groups at once, so it makes one batch of 4 a second; a
    step takes 12 s.
    """
    settings: dict[str, object] = {
        "schedule": PipelineRL(max_staleness=8, groups_per_step=4),
        "lengths": constant(100.0),
        "rollouts_per_group": 2,
        "engine": EngineSpeed(slots=8, seconds_per_token=0.01),
        "step_seconds": 12.0,
        "publish_seconds": 0.0,
        **changes,
    }
    return Rates(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("generators", range(1, 8))
def test_with_equal_lengths_a_step_takes_the_longer_of_generation_and_training(
    generators: int,
) -> None:
    rates = equal_lengths()
    trainer = 8 - generators
    outcome = SplitSimulator(rates).simulate(Split(generators, 1, trainer))
    seconds = max(1.0 / generators, 12.0 / trainer)
    assert 3600 / outcome.steps_per_hour == pytest.approx(seconds, rel=0.01)
    assert outcome.trainer_idle == pytest.approx(1 - (12.0 / trainer) / seconds, abs=0.01)
    assert outcome.bound == pytest.approx(3600 / seconds)


def test_with_equal_lengths_the_best_split_is_that_of_the_closed_form() -> None:
    rates = equal_lengths(step_seconds=3.0)
    found = SplitSimulator(rates).search(list_splits(20, rates))
    closed_form = min(range(1, 20), key=lambda trainer: max(1.0 / (20 - trainer), 3.0 / trainer))
    assert found.best.split == Split(20 - closed_form, 1, closed_form)


def test_when_generation_limits_the_generators_are_full() -> None:
    outcome = SplitSimulator(equal_lengths(step_seconds=1.0)).simulate(Split(1, 1, 4))
    assert outcome.generator_load == pytest.approx(1.0, abs=0.02)
    assert set(outcome.waits) == {"batch"}
    assert outcome.waits["batch"] == pytest.approx(0.75, abs=0.01)


def test_few_splits_give_what_simulating_all_of_them_gives() -> None:
    """The seed that sees a bound which is a fifth too low; test_split_search.py has others."""
    check_few(7)


def test_of_many_splits_one_within_the_margin_is_found_with_few_simulations() -> None:
    check_many(4)


@pytest.mark.parametrize("per_generator", [1, 2, 3])
@pytest.mark.parametrize("multiple", [1, 2, 5])
def test_no_split_that_could_be_better_is_left_out(per_generator: int, multiple: int) -> None:
    rates = equal_lengths(devices_per_generator=per_generator, trainer_multiple=multiple)
    listed = {(split.generators, split.trainer_devices) for split in list_splits(17, rates)}
    possible = {
        (generators, trainer)
        for generators in range(1, 18)
        for trainer in range(multiple, 18, multiple)
        if generators * per_generator + trainer <= 17
    }
    undominated = {
        (g, t)
        for g, t in possible
        if not any(h >= g and u >= t and (h, u) != (g, t) for h, u in possible)
    }
    assert listed == undominated
    assert all(
        s.generators * s.devices_per_generator + s.trainer_devices + s.unused == 17
        for s in list_splits(17, rates)
    )


@pytest.mark.parametrize(("generators", "step_seconds"), [(64, 12.0), (64, 20.0), (500, 20.0)])
def test_a_large_run_takes_as_long_as_its_closed_form(generators: int, step_seconds: float) -> None:
    """4,096 groups of a step, of which a generator makes 4 a second: a smaller run is simulated."""
    rates = equal_lengths(
        schedule=PipelineRL(max_staleness=8, groups_per_step=4096), step_seconds=step_seconds
    )
    outcome = SplitSimulator(rates).simulate(Split(generators, 1, 1))
    seconds = max(4096 / 4 / generators, step_seconds)
    assert 3600 / outcome.steps_per_hour == pytest.approx(seconds, rel=0.01)
    assert outcome.generator_load == pytest.approx(4096 / 4 / generators / seconds, rel=0.02)


def test_generators_without_a_group_are_idle() -> None:
    """9 batches of 4 groups are under way at most, a group for each of 36 generators."""
    rates = equal_lengths()
    outcomes = [
        SplitSimulator(rates).simulate(Split(generators, 1, 1)) for generators in (36, 3600)
    ]
    assert outcomes[1].steps_per_hour == pytest.approx(outcomes[0].steps_per_hour)
    assert outcomes[1].generator_load == pytest.approx(outcomes[0].generator_load / 100)

"""Groups that are filtered on arrival and replaced: the gate stays strict and the run goes on,
whatever the order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.recipe.schedule import Batch, PipelineRL, PipelineState, PPOOffPolicy, Schedule, Wait
from rollcast.recipe.staleness import Group


@dataclass
class Task:
    first_step: int | None = None
    ready: bool = False


def play(schedule: Schedule, rng: random.Random, *, filtered_share: float, turns: int) -> int:
    """Generators start, finish and acknowledge in any order the rules allow; returns the steps that
    were made.
    """
    step, sequence, acknowledged = 0, 0, 0
    tasks: dict[int, Task] = {}
    for turn in range(turns):
        hurried = (
            turn >= turns // 2
        )  # from here on everything is finished at once and nothing is filtered
        published = max(number for number in range(step + 1) if schedule.publishes(number))
        acknowledged = (
            published
            if hurried
            else rng.randint(max(acknowledged, schedule.floor(step)), published)
        )

        def state(step: int = step, acknowledged: int = acknowledged) -> PipelineState:
            groups = tuple(
                Group(number, task.first_step, task.ready) for number, task in tasks.items()
            )
            return PipelineState(
                step=step, steps_since_start=step, acknowledged=acknowledged, groups=groups
            )

        assert schedule.unusable(state()) == ()
        for _ in range(schedule.dispatch(state())):
            tasks[sequence] = Task()
            sequence += 1
        for number, task in list(tasks.items()):
            if task.first_step is None and (hurried or rng.random() < 0.7):
                task.first_step = rng.randint(acknowledged, published)
            elif task.first_step is not None and not task.ready and (hurried or rng.random() < 0.3):
                task.ready = True
                if not hurried and rng.random() < filtered_share:
                    del tasks[number]
        match schedule.next_batch(state()):
            case Batch(sequences=chosen):
                firsts = [tasks.pop(number).first_step for number in chosen]
                assert len(firsts) == schedule.groups_per_step
                assert all(
                    first is not None and step - first <= schedule.max_staleness for first in firsts
                )
                step += 1
            case Wait():
                pass
    return step


@given(
    st.integers(0, 10_000), st.integers(0, 9), st.integers(1, 5), st.sampled_from([0.0, 0.3, 0.8])
)
@settings(max_examples=25)
def test_a_refilled_pipeline_is_strict_and_never_stands_still(
    seed: int, max_staleness: int, size: int, share: float
) -> None:
    schedule = PipelineRL(max_staleness=max_staleness, groups_per_step=size)
    assert play(schedule, random.Random(seed), filtered_share=share, turns=120) >= 3


@pytest.mark.parametrize("updates", [1, 2, 8])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_refilled_rounds_are_strict_and_never_stand_still(updates: int, share: float) -> None:
    schedule = PPOOffPolicy(updates=updates, groups_per_step=3)
    for seed in range(4):
        assert play(schedule, random.Random(seed), filtered_share=share, turns=400) >= updates

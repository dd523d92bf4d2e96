"""What a generator claims, when, and what it hands in."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace

import pytest

from rollcast.config.errors import UserError
from rollcast.generator import claims as claims_module
from rollcast.generator.slots import Slots
from rollcast.rollouts.records import (
    GradingStatus,
    Purpose,
    StopReason,
)
from rollcast.telemetry import generator_metrics
from testkit.generator.scripted_engine import ScriptedEngine
from tests.generator.claiming import SLOTS, V1, generator, make_task


async def test_nothing_is_claimed_before_a_version_came() -> None:
    async with generator(ScriptedEngine()) as run:
        run.trainer.dispatch([make_task(1)])
        await asyncio.sleep(0.7)
        assert run.claimed(Purpose.TRAIN) == 0
        await run.engine.apply(V1)
        await run.until(lambda: run.claimed(Purpose.TRAIN) == 1)
        assert run.trainer.outstanding().claims[1].first_version == V1


async def test_nothing_is_claimed_while_no_trainer_is_reached_and_groups_under_way_go_on() -> None:
    reached = [True]
    engine = ScriptedEngine(num_tokens=lambda request: 3 + 4)
    async with generator(engine, reaches_trainer=lambda: reached[0]) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1)])
        await run.until(lambda: run.engine.num_running == 2)
        await asyncio.sleep(0.1)  # a claim waits for the next task by now
        reached[0] = False
        run.trainer.dispatch([make_task(2), make_task(100, Purpose.EVAL)])
        (delivery,) = await run.advance_until_published(1)
        assert delivery.group.sequence == 1
        await asyncio.sleep(0.7)
        assert set(run.trainer.outstanding().waiting) == {2, 100}
        reached[0] = True
        assert {delivery.group.sequence for delivery in await run.advance_until_published(2)} == {
            2,
            100,
        }


async def test_groups_are_sampled_graded_and_published() -> None:
    async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 4)) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(sequence) for sequence in range(1, 8)])
        deliveries = await run.advance_until_published(7)
        assert sorted(delivery.group.sequence for delivery in deliveries) == list(range(1, 8))
        for group in (delivery.group for delivery in deliveries):
            assert group.first_version == V1
            assert group.generator == "g-1"
            assert [rollout.index for rollout in group.rollouts] == [0, 1]
            for rollout in group.rollouts:
                assert rollout.token_ids.tolist() == [3, 4, 5, 6]
                assert rollout.stop_reason is StopReason.END
                assert rollout.grading_status is GradingStatus.OK
                assert rollout.reward == 1.0
        assert run.engine.most_running <= SLOTS.total
        assert run.count(generator_metrics.GRADINGS, status="ok") == 14


async def test_evaluation_comes_first_but_leaves_its_share_to_training() -> None:
    async with generator(ScriptedEngine()) as run:
        run.trainer.dispatch([make_task(sequence) for sequence in range(1, 20)])
        run.trainer.dispatch([make_task(sequence, Purpose.EVAL) for sequence in range(100, 120)])
        await run.engine.apply(V1)
        await run.until(lambda: run.claims.num_running == SLOTS.total)
        assert run.claimed(Purpose.EVAL) == 4
        assert run.claimed(Purpose.TRAIN) == 2
        await asyncio.sleep(0.6)
        assert run.claims.num_running == SLOTS.total


async def test_evaluation_takes_every_slot_when_no_training_waits() -> None:
    async with generator(ScriptedEngine()) as run:
        run.trainer.dispatch([make_task(sequence, Purpose.EVAL) for sequence in range(100, 120)])
        await run.engine.apply(V1)
        await run.until(lambda: run.claimed(Purpose.EVAL) == SLOTS.total)


def test_a_share_smaller_than_one_prompt_still_lets_evaluation_through() -> None:
    slots = Slots(total=8, train_rollouts=8, eval_rollouts=4, max_eval_share=0.1)
    assert slots.eval_tasks(0, 0, training_waits=True) == 1
    assert slots.eval_tasks(4, 4, training_waits=True) == 0
    assert slots.train_tasks(4) == 0
    with pytest.raises(UserError, match=r"generator.slots = 4: fewer than the 8 rollouts"):
        Slots(total=4, train_rollouts=8, eval_rollouts=4, max_eval_share=0.5)


async def test_idle_time_is_exactly_the_time_without_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock that the test turns: a wait that ends in a claim counts, one beside a running
    group does not.
    """
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(claims_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 2)) as run:
        await run.engine.apply(V1)
        await asyncio.sleep(0.1)  # a claim waits by now
        for sequence in (1, 2):
            clock.now += 100.0
            run.trainer.dispatch([make_task(sequence)])
            await run.until(lambda: run.engine.num_running == 2)
            clock.now += 7.0
            await asyncio.sleep(0.6)  # a claim waits in vain
            await run.advance_until_published(1)
            await run.until(lambda: run.engine.num_running == 0)
        await asyncio.sleep(0.1)
        clock.now += 10.0
        await run.until(lambda: run.count(generator_metrics.GENERATOR_IDLE) > 200.0)
        assert run.count(generator_metrics.GENERATOR_IDLE) == 210.0


async def test_a_prompt_the_engine_refuses_counts_as_a_failure() -> None:
    async with generator(ScriptedEngine()) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1, first_token=666)])
        await run.until(lambda: 1 in run.trainer.outstanding().dead)
        assert "unlucky prompt" in run.trainer.outstanding().dead[1].reason


async def test_an_unknown_verifier_is_a_failure_and_not_a_wrong_answer() -> None:
    async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 2)) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([dataclasses.replace(make_task(1), verifier="nonsense")])
        async with asyncio.timeout(10):
            while 1 not in run.trainer.outstanding().dead:
                await run.engine.advance(1)
        assert "neither built in nor installed" in run.trainer.outstanding().dead[1].reason
        assert run.count(generator_metrics.GRADINGS, status="wrong") == 0


async def test_wrong_answers_and_failed_graders_are_told_apart() -> None:
    async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 2)) as run:
        await run.engine.apply(V1)
        wrong = dataclasses.replace(make_task(1), reference='"2"')
        broken = dataclasses.replace(make_task(2), reference="this is not JSON")
        run.trainer.dispatch([wrong, broken])
        groups = {
            delivery.group.sequence: delivery.group
            for delivery in await run.advance_until_published(2)
        }
        assert {rollout.grading_status for rollout in groups[1].rollouts} == {GradingStatus.WRONG}
        assert {rollout.grading_status for rollout in groups[2].rollouts} == {GradingStatus.ERROR}
        assert run.count(generator_metrics.GRADINGS, status="wrong") == 2
        assert run.count(generator_metrics.GRADINGS, status="error") == 2


async def test_rollouts_of_one_prompt_share_its_blocks() -> None:
    async with generator(ScriptedEngine()) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1)])
        await run.until(lambda: run.engine.num_running == 2)
        assert run.engine.salts == ["1.1/1", "1.1/1"]

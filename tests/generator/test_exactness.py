"""Every log-prob equals what a plain replay of the recorded spans and marks gives."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rollcast.generator.sampling import RolloutSampler
from rollcast.recipe.length_control import interruption_position
from rollcast.rollouts.records import LegKind, LengthBudget, StopReason
from tests.generator.conftest import Versions, make_task, random_prompt, sample_all

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

TOLERANCE = 1e-4
PHRASE = (30, 31, 32, 33, 34)


async def test_rollouts_straddle_updates(versions: Versions) -> None:
    await versions.apply(1)
    task = make_task(1, random_prompt(1), LengthBudget(max_tokens=300), rollouts=8)
    rollouts = await sample_all(versions, task, [None] * 8, [2, 3, 4])
    assert max(len(rollout.version_spans) for rollout in rollouts) >= 3
    for rollout in rollouts:
        assert rollout.stop_reason in (StopReason.END, StopReason.LENGTH)
        assert versions.largest_gap(rollout, task) < TOLERANCE


async def test_two_legs_with_a_forced_phrase(versions: Versions) -> None:
    await versions.apply(10)
    budget = LengthBudget(
        max_tokens=200, interrupt_from=90, interrupt_to=110, answer_tokens=40, phrase=PHRASE, seed=3
    )
    task = make_task(2, random_prompt(2), budget, rollouts=12)
    rollouts = await sample_all(versions, task, [None] * 12, [11, 12, 13])
    cut = [rollout for rollout in rollouts if rollout.interrupted]
    assert cut
    for rollout in rollouts:
        assert versions.largest_gap(rollout, task) < TOLERANCE
        position = interruption_position(
            seed=3, sequence=2, rollout=rollout.index, low=90, high=110
        )
        assert (
            rollout.legs[0].end == position
            if rollout.interrupted
            else rollout.num_tokens <= position
        )
    for rollout in cut:
        thinking, phrase, answer = rollout.legs
        assert (thinking.kind, phrase.kind, answer.kind) == (
            LegKind.THINKING,
            LegKind.INTERRUPTION_PHRASE,
            LegKind.ANSWER,
        )
        assert tuple(rollout.token_ids[phrase.start : phrase.end]) == PHRASE
        assert rollout.loss_masked == ((phrase.start, phrase.end),)
        assert (rollout.logprobs[phrase.start : phrase.end] == 0).all()
        assert answer.end - answer.start <= 40
        mark = rollout.kv_marks[0]
        assert mark.position == answer.start
        assert mark.num_kept >= 32, "the second leg did not hit its own blocks"


async def test_partial_rollouts_are_continued_exactly(versions: Versions) -> None:
    await versions.apply(20)
    task = make_task(3, random_prompt(3), LengthBudget(max_tokens=300))
    samplers = [RolloutSampler(versions.engine, task, index) for index in range(4)]
    running = [asyncio.create_task(sampler.run()) for sampler in samplers]
    await asyncio.sleep(0.1)
    await versions.apply(21)
    await asyncio.sleep(0.05)
    for sampler in samplers:
        sampler.stop()
    await asyncio.wait_for(asyncio.gather(*running), 10)
    await versions.engine.observe()
    partial = [sampler.rollout() for sampler in samplers]
    assert any(rollout.partial and rollout.num_tokens for rollout in partial)
    await versions.apply(22)
    unfinished = [rollout for rollout in partial if rollout.partial]
    rollouts = await sample_all(versions, task, list(unfinished), [23])
    for before, after in zip(unfinished, rollouts, strict=True):
        assert after.token_ids[: before.num_tokens].tolist() == before.token_ids.tolist()
        assert after.logprobs[: before.num_tokens].tolist() == before.logprobs.tolist()
        assert not after.partial
        assert versions.largest_gap(after, task) < TOLERANCE


async def test_new_requests_never_hit_older_blocks(versions: Versions) -> None:
    await versions.apply(30)
    task = make_task(4, random_prompt(4, 120), LengthBudget(max_tokens=8), rollouts=2)
    first = await sample_all(versions, task, [None] * 2, [])
    await versions.apply(31)
    second = await sample_all(versions, task, [None] * 2, [])
    for rollout in first + second:
        assert len(rollout.version_spans) == 1
        assert versions.largest_gap(rollout, task) < TOLERANCE


async def test_requests_without_a_token_are_submitted_again_at_an_update(
    versions: Versions,
) -> None:
    """Rollouts that begin in the very moment of an update hold one version's KV."""
    await versions.apply(40)
    task = make_task(5, random_prompt(5, 120), LengthBudget(max_tokens=60), rollouts=16)
    for step in range(41, 46):
        rollouts = await sample_all(versions, task, [None] * 16, [step], pause=0.001)
        for rollout in rollouts:
            assert versions.largest_gap(rollout, task) < TOLERANCE


async def test_temperature_is_part_of_the_behaviour_policy(versions: Versions) -> None:
    await versions.apply(50)
    task = make_task(6, random_prompt(6), LengthBudget(max_tokens=50), temperature=0.7)
    for rollout in await sample_all(versions, task, [None] * 4, [51]):
        assert versions.largest_gap(rollout, task) < TOLERANCE


async def test_nothing_is_sampled_without_a_version(versions: Versions) -> None:
    await versions.engine.withdraw()
    sampler = RolloutSampler(
        versions.engine, make_task(7, random_prompt(7), LengthBudget(max_tokens=5)), 0
    )
    running: asyncio.Task[Any] = asyncio.create_task(sampler.run())
    await asyncio.sleep(0.2)
    assert not running.done()
    assert versions.engine.num_running == 0
    await versions.apply(60)
    await asyncio.wait_for(running, 10)
    assert sampler.completion.versions == {versions.engine.version}


async def test_the_text_that_is_graded_keeps_special_tokens(versions: Versions) -> None:
    assert versions.engine.decode([3, 4, 13, 5]) == "01+2"
    assert versions.engine.decode([3, 1, 4]) == "0<bos>1"

"""Too little KV memory and prompts in chunks: preemptions are counted, marked, and replayed
exactly.
"""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import Any

import pytest

from rollcast.generator.sampling import RolloutSampler
from rollcast.rollouts.records import LengthBudget
from tests.generator.conftest import Versions, make_task, random_prompt, sample_all

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

TOLERANCE = 1e-4


@pytest.fixture
def versions(tight_versions: Versions) -> Versions:
    return tight_versions


@pytest.mark.parametrize("kind", ["shared prompt", "shared prompt of whole blocks", "two legs"])
async def test_rebuilt_kv_is_marked_and_replayed(versions: Versions, kind: str) -> None:
    budget = LengthBudget(max_tokens=250)
    if kind == "two legs":
        budget = LengthBudget(
            max_tokens=250,
            interrupt_from=100,
            interrupt_to=140,
            answer_tokens=80,
            phrase=(30, 31, 32),
            seed=1,
        )
    prompt = random_prompt(len(kind), 96 if "whole" in kind else 90)
    task = make_task(len(kind), prompt, budget, rollouts=12)
    before = versions.engine.counts.preemptions
    earlier = requests_kept(versions)
    base = 100 * len(kind)
    await versions.apply(base)
    rollouts = await sample_all(
        versions, task, [None] * 12, [base + step for step in range(1, 8)], pause=0.08
    )
    assert versions.engine.counts.preemptions > before
    assert sum(rollout.preemptions for rollout in rollouts) > 0
    marked = [rollout for rollout in rollouts if rollout.kv_marks]
    assert marked
    for rollout in rollouts:
        assert versions.largest_gap(rollout, task) < TOLERANCE
    assert requests_kept(versions) <= earlier, (
        "no rollout references a request any more, and one is kept"
    )


def requests_kept(versions: Versions) -> set[str]:
    """Ids of the requests that the engine's front end still knows."""
    gc.collect()
    return set(versions.engine._requests_by_id)


async def test_a_request_that_was_given_up_leaves_nothing(versions: Versions) -> None:
    earlier = requests_kept(versions)
    await versions.apply(6_000)
    task = make_task(6_000, random_prompt(6_000, 90), LengthBudget(max_tokens=250), rollouts=12)
    running = [
        asyncio.create_task(RolloutSampler(versions.engine, task, index).run())
        for index in range(12)
    ]
    await asyncio.sleep(0.5)
    for run in running:
        run.cancel()
    assert await asyncio.gather(*running, return_exceptions=True)
    del running, run
    await versions.engine.observe()
    assert requests_kept(versions) <= earlier


async def test_a_shared_prompt_that_another_rollout_computed_again_is_marked(
    versions: Versions,
) -> None:
    """Two long rollouts displace two of one prompt, one after the other, and then the prompt. Of
    those two the one that runs again first computes it with newer weights, and the other one finds
    it in the prefix cache.

    The long ones fill all 23 blocks of 32 tokens before the first of them ends. Where a rollout
    draws its end too soon for that, or the update comes too late to lie between, all is tried
    again.
    """
    for attempt in range(5):
        first = 7_000 + 10 * attempt
        await versions.apply(first)
        versions.prepare(first + 1)
        long = [(120, 250, 1), (88, 290, 1), (90, 290, 2)]
        tasks = [
            make_task(
                first + i,
                random_prompt(first + i, prompt),
                LengthBudget(max_tokens=tokens),
                rollouts=rollouts,
            )
            for i, (prompt, tokens, rollouts) in enumerate(long)
        ]
        samplers = [
            RolloutSampler(versions.engine, task, index)
            for task in tasks
            for index in range(task.num_rollouts)
        ]
        running = [asyncio.create_task(sampler.run()) for sampler in samplers]
        await asyncio.sleep(0.1)
        await versions.apply(first + 1)
        await asyncio.wait_for(asyncio.gather(*running), 60)
        await versions.engine.observe()
        sooner, later = (sampler.rollout() for sampler in samplers[2:])
        assert versions.largest_gap(sooner, tasks[2]) < TOLERANCE
        assert versions.largest_gap(later, tasks[2]) < TOLERANCE
        if [mark.num_kept for rollout in (sooner, later) for mark in rollout.kv_marks[:1]] == [
            0,
            0,
        ]:
            found = replace(later.kv_marks[0], num_kept=64)  # what the cache had of it
            wrong = replace(later, kv_marks=(found, *later.kv_marks[1:]))
            if (
                versions.largest_gap(wrong, tasks[2]) > 100 * TOLERANCE
            ):  # so the mark decides something
                return
    pytest.fail("the prompt was not displaced, or not by one of the other version")


async def test_requests_without_a_token_are_submitted_again_at_an_update(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve prompts of 90 tokens take 17 steps of prefill: updates in that time meet prompts that
    are half done.

    On a busy machine an update may come too late; then it is tried again.
    """
    submitted = 0
    sample = versions.engine.sample

    async def counted(request: Any) -> Any:
        nonlocal submitted
        submitted += 1
        return await sample(request)

    monkeypatch.setattr(versions.engine, "sample", counted)
    length = LengthBudget(max_tokens=20, interrupt_from=20, interrupt_to=20)
    for attempt in range(10):
        first = 5000 + 10 * attempt
        steps = list(range(first + 1, first + 6))
        for step in (first, *steps):
            versions.prepare(step)
        await versions.apply(first)
        submitted, task = (
            0,
            make_task(9 + attempt, random_prompt(9 + attempt, 90), length, rollouts=12),
        )
        rollouts = await sample_all(versions, task, [None] * 12, steps, pause=0.005)
        for rollout in rollouts:
            assert versions.largest_gap(rollout, task) < TOLERANCE
        if submitted > 12:
            return
    pytest.fail("no update met a prompt that was half done")

"""Slots of the engine: waits for one, single answers and turns together, and turns
that get none.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

from rollcast.generator.episodes.record import EpisodeRecord
from rollcast.generator.episodes.sampler import EpisodeSampler
from rollcast.generator.slots import Slots
from rollcast.rollouts.base import Delivery
from rollcast.rollouts.records import EpisodeEnd, GradingStatus
from rollcast.telemetry import episode_metrics
from testkit.generator.episode_tasks import MAX_LENGTH, WORLD, episode_parts, episode_task
from testkit.generator.scripted_engine import ScriptedEngine
from testkit.generator.scripted_world import ScriptedWorld, ScriptedWorlds
from tests.generator.claiming import V1, generator, make_task
from tests.generator.playing import BUDGET, done_after, four_tokens, one_call, stepping


async def test_a_wait_for_a_slot_does_not_count_towards_the_seconds_of_an_episode() -> None:
    """But after as long a wait as the episode may last it is given up, without a verdict."""
    engine: Any = ScriptedEngine(four_tokens)
    await engine.apply(V1)
    parts = episode_parts(ScriptedWorlds(lambda: ScriptedWorld(done_after(1))), one_call, slots=1)
    await parts.slots.acquire()
    patient, impatient = (
        EpisodeSampler(engine, episode_task(1, 2, BUDGET, max_seconds=seconds), 0, parts)
        for seconds in (60.0, 0.3)
    )
    async with stepping(engine), asyncio.timeout(60):
        running = asyncio.create_task(patient.run())
        await impatient.run()
        attempt: Any = patient._attempt
        attempt.clock.deadline = time.monotonic()  # as if it had waited for as long as it may last
        parts.slots.release()
        await running
    given_up = impatient.rollout().episode
    assert given_up is not None
    assert (given_up.end, given_up.turns) == (EpisodeEnd.FAILED, ())
    assert (
        given_up.reason
        == "environment world: no slot of the engine was free in the 0.3 seconds of waiting"
    )
    failures = parts.exporter.registry.get_sample_value(
        episode_metrics.EPISODE_FAILURES.name,
        {"run": "test", "environment": WORLD, "stage": "slot"},
    )
    assert failures == 1
    assert impatient.verdict is not None
    assert impatient.verdict.status is GradingStatus.ERROR
    assert patient.rollout().episode.end is EpisodeEnd.DONE  # type: ignore[union-attr]


async def test_single_answers_and_turns_share_the_slots() -> None:
    """Both are in flight beyond the slots, and never are more of both together in the engine."""
    worlds = ScriptedWorlds(lambda: ScriptedWorld(done_after(3)))
    parts = episode_parts(worlds, one_call, slots=4)
    slots = Slots(
        total=4, train_rollouts=3, eval_rollouts=2, max_eval_share=0.5, episode_kv_tokens=1 << 20
    )
    single = [
        dataclasses.replace(make_task(sequence), num_rollouts=3) for sequence in range(101, 109)
    ]
    episodes = [episode_task(sequence, 3, BUDGET) for sequence in range(1, 9)]
    async with generator(ScriptedEngine(four_tokens), slots=slots, episodes=parts) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([task for pair in zip(single, episodes, strict=True) for task in pair])
        await run.until(lambda: run.engine.num_running == 4 and run.claims.num_running > 4)
        handed_back = [sequence for sequence in run.trainer.outstanding().claims if sequence > 100][
            -1:
        ]
        run.claims.hand_over(handed_back)  # does not wait for a slot
        await run.until(lambda: not set(handed_back) & set(run.trainer.outstanding().claims))
        found: list[Delivery] = []
        async with stepping(run.engine), asyncio.timeout(60):
            while len(found) < 16:
                found += run.trainer.read(100, 0.0)
                await asyncio.sleep(0.01)
        assert run.engine.most_running == 4
    assert sum(rollout.episode is None for one in found for rollout in one.group.rollouts) == 3 * 8


async def test_turns_of_a_later_sequence_keep_their_number_if_one_before_it_has_no_token() -> None:
    engine: Any = ScriptedEngine(four_tokens)
    await engine.apply(V1)
    task = episode_task(1, 2, BUDGET)
    record = EpisodeRecord(engine, task, 0, MAX_LENGTH)
    prompts = [task.prompt_token_ids.tolist(), [5, 6], [7, 8, 9], [5, 7]]
    first, empty, third, last_empty = map(record.begin_sequence, prompts)
    async with stepping(engine), asyncio.timeout(20):
        await record.sample_turn(first)
        assert await record.sample_turn(empty, max_tokens=0) == "length"
        await record.sample_turn(third)
        assert await record.sample_turn(last_empty, max_tokens=0) == "length"
    record.episode.end = EpisodeEnd.ANSWERED
    rollout = record.rollout()
    assert rollout.episode is not None
    assert [branch.prompt_token_ids.tolist() for branch in rollout.episode.branches] == [[7, 8, 9]]
    assert [turn.sequence for turn in rollout.episode.turns] == [0, 1]
    for number, turn in enumerate(rollout.episode.turns):
        assert (
            rollout.sequences[turn.sequence].token_ids[turn.start : turn.end].tolist()
            == record.turn_tokens(number)[1]
        )

"""Episodes that a generator hands in are taken by the trainer and trained on: the claim loop, the
wire, the batch.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from rollcast.config.episodes import Episodes, TurnCredit
from rollcast.config.recipe import Recipe
from rollcast.environments.base import EnvironmentFailedError, ToolResult
from rollcast.generator.slots import Slots
from rollcast.generator.vllm.engine_request import EngineRequest
from rollcast.rollouts.base import Delivery
from rollcast.rollouts.codec import decode_group, decode_task, encode_group, encode_task
from rollcast.rollouts.records import EpisodeEnd, LengthBudget
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.control.defects import DefectFinder
from testkit.generator.episode_tasks import MAX_LENGTH, episode_parts, episode_task
from testkit.generator.scripted_engine import ScriptedEngine
from testkit.generator.scripted_world import ScriptedWorld, ScriptedWorlds
from testkit.trainer.states import make_state
from tests.generator.claiming import V1, V2, Run, generator

TURN_TOKENS = 3
VOCAB = 1_000
NUM_TASKS = 6
NUM_ROLLOUTS = 4
TASKS = [
    episode_task(sequence, NUM_ROLLOUTS, LengthBudget(max_tokens=60), max_turns=3)
    for sequence in range(NUM_TASKS)
]


class FreshWorlds(ScriptedWorlds):
    """Uses no world twice."""

    async def release(self, environment: Any, *, is_reusable: bool) -> None:
        await super().release(environment, is_reusable=False)


def make_worlds() -> ScriptedWorlds:
    """Each ends after 1 to 3 calls, fails at the second, or never ends: in turn, and it is not used
    again.
    """
    made = itertools.count()

    def make() -> ScriptedWorld:
        number = next(made)
        last = 1 + number % 5

        def answer(call: int) -> ToolResult:
            if call == 2 and last == 4:
                raise EnvironmentFailedError("its process died")
            return ToolResult("ok", reward=call / 8, is_done=call >= last)

        world = ScriptedWorld(answer, seconds=lambda: last / 100)
        world.value = number % 3 / 2
        return world

    return FreshWorlds(make)


def three_tokens(request: EngineRequest) -> int:
    return len(request.token_ids) + TURN_TOKENS


def one_call(tokens: Sequence[int]) -> int:
    return 1


def splits(tokens: Sequence[int]) -> bool:
    return sum(tokens) % 3 == 0


@asynccontextmanager
async def updating(run: Run) -> AsyncIterator[None]:
    """The engine samples all the time, and its weights change once."""
    await run.engine.apply(V1)

    async def step() -> None:
        for _ in range(3):
            await run.engine.advance(1)
        await run.engine.apply(V2)
        while True:
            await run.engine.advance(1)

    running = asyncio.create_task(step())
    try:
        yield
    finally:
        running.cancel()


@pytest.fixture(scope="module")
def groups() -> list[Delivery]:
    return asyncio.run(played())


async def played() -> list[Delivery]:
    parts = episode_parts(make_worlds(), one_call, splits=splits, restarts=0)
    slots = Slots(
        total=8,
        train_rollouts=NUM_ROLLOUTS,
        eval_rollouts=1,
        max_eval_share=0.5,
        episode_kv_tokens=1 << 20,
    )
    async with generator(ScriptedEngine(three_tokens), slots=slots, episodes=parts) as run:
        run.trainer.dispatch(TASKS)
        found: list[Delivery] = []
        async with updating(run), asyncio.timeout(60):
            while len(found) < NUM_TASKS:
                await asyncio.sleep(0.01)
                found += run.trainer.read(100, 0.0)
    return found


def test_the_trainer_takes_every_group(groups: list[Delivery]) -> None:
    finder = DefectFinder(make_state(published=V2), VOCAB, MAX_LENGTH)
    for delivery in groups:
        task = decode_task(encode_task(TASKS[delivery.group.sequence]))
        assert finder.find(decode_group(encode_group(delivery.group)), task) is None
    rollouts = [rollout for delivery in groups for rollout in delivery.group.rollouts]
    episodes = [rollout.episode for rollout in rollouts if rollout.episode is not None]
    assert {EpisodeEnd.DONE, EpisodeEnd.TURNS, EpisodeEnd.FAILED} <= {
        episode.end for episode in episodes
    }
    assert any(episode.branches for episode in episodes)
    assert any(len(rollout.versions) > 1 for rollout in rollouts)


@pytest.mark.parametrize("credit", [None, TurnCredit(discount=0.5)], ids=["episode", "turn"])
def test_exactly_the_sampled_tokens_of_episodes_with_a_verdict_carry_loss(
    groups: list[Delivery], credit: TurnCredit | None
) -> None:
    recipe = Recipe(
        zero_variance_filter=False, episodes=Episodes(credit=credit) if credit else Episodes()
    )
    found = iter(assemble([delivery.group for delivery in groups], recipe).sequences)
    num_trained = 0
    for delivery in groups:
        for rollout in delivery.group.rollouts:
            if not rollout.has_verdict or rollout.truncated:
                continue
            assert rollout.episode is not None
            num_trained += 1
            for number, sequence in enumerate(rollout.sequences):
                one = next(found)
                trained = np.flatnonzero(one.loss_mask)
                turns = [turn for turn in rollout.episode.turns if turn.sequence == number]
                sampled = [at for turn in turns for at in range(turn.start, turn.end)]
                assert trained.tolist() == sampled
                np.testing.assert_array_equal(one.generator_logprobs, sequence.logprobs)
                assert (one.token_advantages is None) is (credit is None)
    assert num_trained > NUM_TASKS
    assert next(found, None) is None

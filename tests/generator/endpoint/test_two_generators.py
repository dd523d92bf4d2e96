"""Groups of 8 over two generators, for training and evaluation: the example's agent takes their
turns by HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollcast.config.recipe import Recipe
from rollcast.generator.slots import Slots
from rollcast.generator.vllm.engine_request import EngineRequest
from rollcast.rollouts.base import Delivery
from rollcast.rollouts.codec import decode_group, decode_task, encode_group, encode_task
from rollcast.rollouts.records import EpisodeEnd, LengthBudget, PromptTask, Purpose, Sampling
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.control.defects import DefectFinder
from testkit.generator.episode_tasks import MAX_LENGTH, episode_task
from testkit.generator.harness_endpoint import served_endpoint
from testkit.generator.scripted_engine import ScriptedEngine
from testkit.module_of import load_module
from testkit.rollouts.memory import MemoryBroker, MemoryTrainerQueue
from testkit.trainer.states import make_state
from tests.generator.claiming import V1, V2, generator

pytestmark = pytest.mark.timeout(
    600
)  # the first to import vLLM waits for it, on a busy machine for minutes
AGENT = Path(__file__).parents[3] / "examples" / "calculator" / "agent.py"
TOKEN = "of the run"
GENERATORS = ("g-1", "g-2")
NUM_TRAIN, NUM_EVAL = 6, 2
NUM_ROLLOUTS = 8
VOCAB = 1_000
SLOTS = Slots(
    total=8,
    train_rollouts=NUM_ROLLOUTS,
    eval_rollouts=NUM_ROLLOUTS,
    max_eval_share=0.5,
    episode_kv_tokens=1 << 20,
)


class GradedByLength(ScriptedEngine):
    """An answer is right if it has an odd number of tokens."""

    def decode(self, token_ids: list[int]) -> str:
        return f"|{len(token_ids) % 2}"


def two_to_five_tokens(request: EngineRequest) -> int:
    assert request.seed is not None
    return len(request.token_ids) + 2 + request.seed % 4


def short_turns_call(tokens: Sequence[int]) -> int:
    return int(len(tokens) < 4)


def make_task(sequence: int, purpose: Purpose) -> PromptTask:
    task = episode_task(
        sequence, NUM_ROLLOUTS, LengthBudget(max_tokens=200), max_turns=3, purpose=purpose
    )
    assert task.episode is not None
    return dataclasses.replace(
        task,
        reference=json.dumps({"prompt": "1 + 1"}),
        verifier="arithmetic",
        sampling=Sampling(seed=1 + sequence),
        episode=dataclasses.replace(task.episode, answer='"1"'),
    )


TASKS = [make_task(number, Purpose.TRAIN) for number in range(NUM_TRAIN)]
TASKS += [make_task(NUM_TRAIN + number, Purpose.EVAL) for number in range(NUM_EVAL)]


@asynccontextmanager
async def one_generator(name: str, broker: MemoryBroker, agent: Any) -> AsyncIterator[None]:
    """It samples all the time, its weights change once, and the agent works for it."""
    engine = GradedByLength(two_to_five_tokens)
    await engine.apply(V1)

    async def step() -> None:
        for number in range(1 << 30):
            if number == 20:
                await engine.apply(V2)
            await engine.advance(1)

    async with (
        served_endpoint(
            engine, {"reward": "verifier"}, short_turns_call, run_token=TOKEN
        ) as endpoint,
        generator(engine, broker, SLOTS, name, episodes=endpoint.parts, sessions=endpoint.sessions),
    ):
        running = [
            asyncio.create_task(step()),
            asyncio.create_task(agent.work_at(endpoint.sessions.url, TOKEN)),
        ]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def played() -> list[Delivery]:
    agent = load_module(AGENT)
    agent.AT_ONCE = NUM_ROLLOUTS
    broker = MemoryBroker()
    trainer = MemoryTrainerQueue(broker)
    trainer.dispatch(TASKS)
    found: list[Delivery] = []
    async with (
        one_generator(GENERATORS[0], broker, agent),
        one_generator(GENERATORS[1], broker, agent),
    ):
        async with asyncio.timeout(300):
            while len(found) < len(TASKS):
                await asyncio.sleep(0.02)
                found += trainer.read(100, 0.0)
    return found


@pytest.fixture(scope="module")
def groups() -> list[Delivery]:
    return asyncio.run(played())


def test_the_trainer_takes_every_group_of_both(groups: list[Delivery]) -> None:
    finder = DefectFinder(make_state(published=V2), VOCAB, MAX_LENGTH)
    for delivery in groups:
        task = decode_task(encode_task(TASKS[delivery.group.sequence]))
        assert finder.find(decode_group(encode_group(delivery.group)), task) is None
        assert len(delivery.group.rollouts) == NUM_ROLLOUTS
    assert {delivery.group.generator for delivery in groups} == set(GENERATORS)
    assert sum(delivery.group.purpose is Purpose.EVAL for delivery in groups) == NUM_EVAL
    rollouts = [rollout for delivery in groups for rollout in delivery.group.rollouts]
    episodes = [rollout.episode for rollout in rollouts if rollout.episode is not None]
    assert {episode.end for episode in episodes} == {EpisodeEnd.ANSWERED, EpisodeEnd.TURNS}
    assert all(rollout.has_verdict for rollout in rollouts)
    assert {len(episode.turns) for episode in episodes} == {1, 2, 3}
    assert not any(episode.branches for episode in episodes), "each history is found again"


def test_exactly_the_sampled_tokens_carry_loss(groups: list[Delivery]) -> None:
    trained = [delivery.group for delivery in groups if delivery.group.purpose is Purpose.TRAIN]
    batch = assemble(trained, Recipe(zero_variance_filter=False))
    found = iter(batch.sequences)
    for group in trained:
        for rollout in group.rollouts:
            if rollout.truncated:
                continue
            assert rollout.episode is not None
            one = next(found)
            sampled = [at for turn in rollout.episode.turns for at in range(turn.start, turn.end)]
            assert np.flatnonzero(one.loss_mask).tolist() == sampled
            np.testing.assert_array_equal(one.generator_logprobs, rollout.logprobs)
    assert next(found, None) is None
    assert {rollout.reward for group in trained for rollout in group.rollouts} == {0.0, 1.0}

"""Episodes of a mixture of experts, with what each turn saw of its routers' choices."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from rollcast.environments.base import ToolResult
from rollcast.generator.completion import Completion
from rollcast.generator.episodes.sampler import EpisodeSampler
from rollcast.rollouts.records import Branch, LengthBudget, Rollout, RoutedExperts, loss_mask
from rollcast.trainer.learner.batch import TrainingSequence
from testkit.generator.episode_tasks import episode_parts, episode_task
from testkit.generator.scripted_world import ScriptedWorld, ScriptedWorlds
from tests.generator.live_pair import LivePair

EPISODES = 24
MAX_TOKENS = 160
MAX_LENGTH = 256
STOP_TOKENS = (5, 17)
"""End a turn besides the end of the model's text, so that turns have some thirty tokens."""
Seen = tuple[int, RoutedExperts]
"""Tokens of a completion after one of its turns, and the choices recorded so far."""


async def sample_episodes(pair: LivePair) -> tuple[list[TrainingSequence], NDArray[np.bool_]]:
    """Return the sequences of episodes with splits, and for each sampled token whether it follows a
    choice made again.

    A turn computes again what the cache has no whole block of, and a tie may fall otherwise then.
    """
    worlds = ScriptedWorlds(lambda: ScriptedWorld(lambda number: ToolResult(f"door {number}")))
    parts = episode_parts(
        worlds,
        lambda tokens: 1,
        splits=lambda tokens: sum(tokens) % 5 == 0,
        stop_token_ids=STOP_TOKENS,
    )
    parts.max_sequence_tokens = MAX_LENGTH
    task = episode_task(2, EPISODES, LengthBudget(max_tokens=MAX_TOKENS), max_turns=6)
    samplers = [EpisodeSampler(pair.engine, task, index, parts) for index in range(EPISODES)]
    seen: defaultdict[Completion, list[Seen]] = defaultdict(list)
    record = Completion.record_experts

    def recorded(completion: Completion, start: int, experts: RoutedExperts) -> None:
        record(completion, start, experts)
        assert completion.routed_experts is not None
        seen[completion].append((len(completion.token_ids), completion.routed_experts))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Completion, "record_experts", recorded)
        async with asyncio.timeout(120):
            await asyncio.gather(*(sampler.run() for sampler in samplers))
    await pair.engine.observe()
    sequences, chosen_again = [], []
    for sampler in samplers:
        completions = [one.completion for one in sampler._attempt.record.sequences]
        rollout = sampler.rollout()
        for sequence, completion in zip(
            rollout.sequences, completions, strict=False
        ):  # the last may have no token
            prompt = rollout.sequence_prompt(sequence, task.prompt_token_ids)
            sequences.append(_training_sequence(prompt, sequence))
            chosen_again.append(
                _follows_another_choice(sequence, len(prompt), seen[completion])[
                    loss_mask(sequence)
                ]
            )
    assert sum(len(turns) for turns in seen.values()) > 2 * EPISODES
    assert len(sequences) > EPISODES, "no episode was split"
    assert any(
        mark.num_kept >= 32 for sampler in samplers for mark in sampler.rollout().kv_marks
    ), "no turn hit its blocks"
    return sequences, np.concatenate(chosen_again)


def _follows_another_choice(
    sequence: Rollout | Branch, num_prompt: int, seen: Sequence[Seen]
) -> NDArray[np.bool_]:
    last = sequence.routed_experts
    assert last is not None
    follows = np.zeros(len(sequence.token_ids), dtype=np.bool_)
    begin = 0
    for end, experts in seen:
        differs = (np.sort(experts, axis=-1) != np.sort(last[: len(experts)], axis=-1)).any(
            axis=(1, 2)
        )
        follows[begin:end] = (np.cumsum(differs) > 0)[num_prompt + begin - 1 : num_prompt + end - 1]
        begin = end
    return follows


def _training_sequence(prompt: NDArray[np.int32], sequence: Rollout | Branch) -> TrainingSequence:
    return TrainingSequence(
        prompt_token_ids=prompt,
        token_ids=sequence.token_ids,
        generator_logprobs=sequence.logprobs,
        loss_mask=loss_mask(sequence),
        advantage=1.0,
        weight=1.0,
        routed_experts=sequence.routed_experts,
    )

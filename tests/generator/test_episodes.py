"""Every log-prob of an episode equals what a plain replay of its sequences, spans and marks gives.

Turns with tools in between, through updates, splits, preemptions and a hand-over, with a model that
is random: its renderer reads a call from any tokens.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from typing import Any

import pytest

from rollcast.environments.base import Opening, ToolResult
from rollcast.generator.episodes.parts import EpisodeParts
from rollcast.generator.episodes.sampler import EpisodeSampler
from rollcast.rollouts.codec import decode_group, decode_task, encode_group, encode_task
from rollcast.rollouts.records import (
    EpisodeEnd,
    GradingStatus,
    LegKind,
    LengthBudget,
    PromptTask,
    Rollout,
    RolloutGroup,
    StopReason,
)
from rollcast.telemetry import episode_metrics, generator_metrics
from rollcast.trainer.control.episode_defects import episode_defect
from testkit.generator.episode_tasks import MAX_LENGTH, episode_parts, episode_task
from testkit.generator.scripted_world import TOOLS, AnyTokensRenderer, ScriptedWorld, ScriptedWorlds
from testkit.replay import replay_logprobs
from tests.generator.conftest import Versions

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

TOLERANCE = 1e-4
SLOTS = 10
"""Fewer than the episodes, so that turns wait for one."""
PHRASE = (30, 31, 32)
STOP_TOKENS = (5, 17)
"""End a turn besides the end of the model's text, so that turns have some thirty tokens."""


@pytest.fixture
def versions(tight_versions: Versions) -> Versions:
    return tight_versions


def calls_a_tool(tokens: Any) -> int:
    """0, 1 or 2 calls, by the tokens of the turn."""
    return 0 if sum(tokens) % 7 == 0 else 1 + (sum(tokens) % 2)


def make_parts(worlds: ScriptedWorlds, *, splits: int = 0, slots: int = SLOTS) -> EpisodeParts:
    """`splits`: about one in this many turns cannot be extended; 0 = all can."""
    return episode_parts(
        worlds,
        calls_a_tool,
        splits=lambda tokens: bool(splits) and sum(tokens) % splits == 0,
        stop_token_ids=STOP_TOKENS,
        slots=slots,
    )


def talkative_world(seconds: float = 0.02) -> ScriptedWorld:
    counter = itertools.count()
    return ScriptedWorld(
        answer=lambda number: ToolResult(
            f"door {number} leads to room {next(counter)}", reward=0.25
        ),
        seconds=lambda: seconds,
        opening=Opening(TOOLS, text=" look around."),
    )


def check_exact(versions: Versions, rollout: Rollout, task: PromptTask) -> None:
    """Sampled tokens are replayed within the tolerance, and given ones carry no loss."""
    for sequence in rollout.sequences:
        prompt = rollout.sequence_prompt(sequence, task.prompt_token_ids).tolist()
        replayed = replay_logprobs(sequence, prompt, versions.weights, versions.model)
        assert abs(replayed - sequence.logprobs).max() < TOLERANCE
        unsampled = [
            leg for leg in sequence.legs if leg.kind in (LegKind.GIVEN, LegKind.INTERRUPTION_PHRASE)
        ]
        assert sequence.loss_masked == tuple((leg.start, leg.end) for leg in unsampled)
        masked = {at for start, end in sequence.loss_masked for at in range(start, end)}
        assert {at for at, value in enumerate(sequence.logprobs) if value == 0} == masked
        assert sequence.legs[-1].end == len(sequence.token_ids)
        assert sequence.legs[-1].kind is not LegKind.GIVEN, "nothing follows it"
    check_turns(rollout)


def check_turns(rollout: Rollout) -> None:
    """Turns are what lies between the given tokens."""
    assert rollout.episode is not None
    assert rollout.num_tokens == sum(turn.end - turn.start for turn in rollout.episode.turns)
    assert [turn.sequence for turn in rollout.episode.turns] == sorted(
        turn.sequence for turn in rollout.episode.turns
    )


def check_travels(rollouts: list[Rollout], task: PromptTask) -> None:
    """Wire 1 takes the group, and the trainer would find no defect in its episodes."""
    group = RolloutGroup(
        sequence=task.sequence,
        attempt=0,
        incarnation=1,
        purpose=task.purpose,
        dataset=task.dataset,
        prompt_id=task.prompt_id,
        prompt_token_ids=task.prompt_token_ids,
        sampling=task.sampling,
        length=task.length,
        rollouts=rollouts,
        first_version=min(version for rollout in rollouts for version in rollout.versions),
        generator="test",
    )
    received = decode_group(encode_group(group))
    for rollout in received.rollouts:
        assert rollout.episode is not None
        assert episode_defect(rollout, rollout.episode, task, MAX_LENGTH) is None


def kv_tokens(parts: EpisodeParts, state: str) -> float:
    found = parts.exporter.registry.get_sample_value(
        generator_metrics.EPISODE_KV_TOKENS.name, {"run": "test", "state": state}
    )
    return found or 0.0


async def run_through_updates(
    versions: Versions, samplers: list[EpisodeSampler], steps: list[int]
) -> None:
    running = [asyncio.create_task(sampler.run()) for sampler in samplers]
    for step in steps:
        await asyncio.sleep(0.1)
        await versions.apply(step)
    await asyncio.wait_for(asyncio.gather(*running), 120)
    await versions.engine.observe()


async def test_episodes_through_updates_splits_and_preemptions(versions: Versions) -> None:
    await versions.apply(100)
    worlds = ScriptedWorlds(talkative_world)
    parts = make_parts(worlds, splits=5)
    task = episode_task(1, 24, LengthBudget(max_tokens=380))
    samplers = [
        EpisodeSampler(versions.engine, task, index, parts) for index in range(task.num_rollouts)
    ]
    await run_through_updates(versions, samplers, list(range(101, 112)))
    rollouts = [sampler.rollout() for sampler in samplers]
    episodes = [rollout.episode for rollout in rollouts if rollout.episode is not None]
    for rollout in rollouts:
        check_exact(versions, rollout, task)
    assert max(len(rollout.version_spans) for rollout in rollouts) >= 3
    assert sum(len(episode.branches) for episode in episodes) >= 3
    assert sum(rollout.preemptions for rollout in rollouts) > 0
    ends = {episode.end for episode in episodes}
    assert ends >= {EpisodeEnd.ANSWERED, EpisodeEnd.TURNS} or ends >= {
        EpisodeEnd.ANSWERED,
        EpisodeEnd.TOKENS,
    }
    assert worlds.in_use == 0
    assert worlds.most_in_use > SLOTS, "an episode whose tool runs holds no slot"
    assert sum(turn.tool_calls for episode in episodes for turn in episode.turns) > 24
    assert all(
        sampler.verdict is not None and sampler.verdict.status is GradingStatus.OK
        for sampler in samplers
    )
    assert kv_tokens(parts, "rebuilt") > 0
    prompts = [branch.prompt_token_ids for episode in episodes for branch in episode.branches]
    # Without the last token, whose KV comes with the next; more where an update came in between
    assert kv_tokens(parts, "split") >= sum(len(prompt) - 1 for prompt in prompts) > 0
    check_travels(rollouts, task)


async def test_thinking_is_cut_in_every_turn(versions: Versions) -> None:
    await versions.apply(200)
    budget = LengthBudget(
        max_tokens=300, interrupt_from=4, interrupt_to=8, answer_tokens=90, phrase=PHRASE, seed=3
    )
    task = episode_task(2, 12, budget)
    parts = make_parts(ScriptedWorlds(talkative_world))
    parts.renderer = AnyTokensRenderer(lambda tokens: 1, stop_token_ids=STOP_TOKENS)
    samplers = [
        EpisodeSampler(versions.engine, task, index, parts) for index in range(task.num_rollouts)
    ]
    await run_through_updates(versions, samplers, [201, 202])
    most_cuts = 0
    for sampler in samplers:
        rollout = sampler.rollout()
        check_exact(versions, rollout, task)
        assert rollout.episode is not None
        phrases = [leg for leg in rollout.legs if leg.kind is LegKind.INTERRUPTION_PHRASE]
        assert rollout.interrupted == bool(phrases)
        most_cuts = max(most_cuts, len(phrases))
        for phrase in phrases:
            turn = next(
                turn for turn in rollout.episode.turns if turn.start <= phrase.start < turn.end
            )
            assert 4 <= phrase.start - turn.start <= 8
            assert turn.end - phrase.end <= 90
    assert most_cuts >= 2
    assert kv_tokens(parts, "kept") > 0, "no later turn found its own KV"


async def stopped_after_a_first_turn(
    versions: Versions, task: PromptTask, parts: EpisodeParts
) -> list[Rollout]:
    """The episodes of a task that are stopped as soon as one of them has ended its first turn."""
    former = [
        EpisodeSampler(versions.engine, task, index, parts) for index in range(task.num_rollouts)
    ]
    running = [asyncio.create_task(sampler.run()) for sampler in former]
    async with asyncio.timeout(30):
        while not any(sampler._attempt.has_ended_turn for sampler in former):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    for sampler in former:
        sampler.stop()
    await asyncio.wait_for(asyncio.gather(*running), 30)
    await versions.engine.observe()
    return [sampler.rollout() for sampler in former]


async def test_a_hand_over_continues_a_first_turn_and_begins_other_episodes_again(
    versions: Versions,
) -> None:
    await versions.apply(300)
    task = episode_task(3, 12, LengthBudget(max_tokens=300))
    parts = make_parts(ScriptedWorlds(lambda: talkative_world(0.3)), slots=12)
    registry = parts.exporter.registry
    labels = {"run": "test", "environment": "world"}
    # On a busy machine none, or all, may be beyond their first turn before this process hears it.
    for _ in range(50):
        handed = await stopped_after_a_first_turn(versions, task, parts)
        begun = [rollout for rollout in handed if rollout.partial and rollout.num_tokens]
        discarded = registry.get_sample_value(episode_metrics.EPISODE_TOKENS_DISCARDED.name, labels)
        if begun and discarded:
            break
    assert begun, "no first turn was under way"
    assert discarded, "no episode was beyond its first turn"
    await versions.apply(301)
    first_version = min(version for rollout in begun for version in rollout.versions)
    handed_back = dataclasses.replace(task, rollouts=begun, first_version=first_version)
    starts = {rollout.index: rollout for rollout in decode_task(encode_task(handed_back)).rollouts}
    samplers = [
        EpisodeSampler(versions.engine, task, index, parts, starts.get(index))
        for index in range(12)
    ]
    await run_through_updates(versions, samplers, [302])
    for sampler in samplers:
        rollout = sampler.rollout()
        check_exact(versions, rollout, task)
        if (start := starts.get(rollout.index)) is not None:
            assert rollout.token_ids[: start.num_tokens].tolist() == start.token_ids.tolist()
            assert rollout.logprobs[: start.num_tokens].tolist() == start.logprobs.tolist()
    again = EpisodeSampler(versions.engine, task, 0, parts, samplers[0].rollout())
    assert again.finished, "a finished episode keeps its result"
    for kept, sequence in zip(
        again.rollout().sequences, samplers[0].rollout().sequences, strict=True
    ):
        assert kept.token_ids.tolist() == sequence.token_ids.tolist()
        assert kept.kv_marks == sequence.kv_marks


async def test_an_episode_that_is_out_of_tokens_is_truncated(versions: Versions) -> None:
    await versions.apply(400)
    task = episode_task(4, 6, LengthBudget(max_tokens=40))
    parts = make_parts(ScriptedWorlds(talkative_world))
    samplers = [EpisodeSampler(versions.engine, task, index, parts) for index in range(6)]
    await run_through_updates(versions, samplers, [])
    cut = 0
    for sampler in samplers:
        rollout = sampler.rollout()
        check_exact(versions, rollout, task)
        assert rollout.episode is not None
        assert sum(len(sequence.token_ids) for sequence in rollout.sequences) <= 40
        cut += rollout.episode.end is EpisodeEnd.TOKENS
        assert rollout.truncated == (rollout.episode.end is EpisodeEnd.TOKENS)
    assert cut


async def test_a_turn_is_cut_when_the_episodes_seconds_are_over(versions: Versions) -> None:
    await versions.apply(500)
    cut: list[Rollout] = []
    seconds = 0.2
    # On a busy machine the time may be over before the first token, and then the episode has no
    # verdict.
    while not cut and seconds < 60.0:
        task = episode_task(5, 6, LengthBudget(max_tokens=400), max_seconds=seconds)
        parts = make_parts(ScriptedWorlds(talkative_world))
        parts.renderer = AnyTokensRenderer(calls_a_tool)
        samplers = [EpisodeSampler(versions.engine, task, index, parts) for index in range(6)]
        await run_through_updates(versions, samplers, [])
        rollouts = [rollout for sampler in samplers if (rollout := sampler.rollout()).num_tokens]
        for rollout in rollouts:
            check_exact(versions, rollout, task)
        cut = [
            rollout
            for rollout in rollouts
            if rollout.episode and rollout.episode.end is EpisodeEnd.SECONDS
        ]
        seconds *= 2
    assert cut
    assert all(rollout.stop_reason is StopReason.LENGTH for rollout in cut)

"""Episodes and the claim loop: slots, the KV cache, environments that fail, hand-overs, lost
versions.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.environments.openenv import OpenEnvEnvironment
from rollcast.config.episodes import Episodes, TurnCredit
from rollcast.config.recipe import Recipe
from rollcast.environments.base import EnvironmentFailedError, Opening, ToolResult
from rollcast.generator.episodes import attempt as attempt_module
from rollcast.generator.episodes import calls as calls_module
from rollcast.generator.episodes.calls import MAX_ANSWER_CHARACTERS
from rollcast.generator.episodes.parts import MAX_REASON_CHARACTERS, EpisodeParts
from rollcast.generator.episodes.sampler import EpisodeSampler
from rollcast.generator.slots import Slots
from rollcast.rollouts.base import Delivery
from rollcast.rollouts.records import EpisodeEnd, GradingStatus, LengthBudget, Purpose, Rollout
from rollcast.telemetry import episode_metrics
from rollcast.telemetry.metric import Metric
from rollcast.trainer.control.episode_credit import compared_reward
from testkit.generator.episode_tasks import WORLD, episode_parts, episode_task
from testkit.generator.scripted_engine import ScriptedEngine
from testkit.generator.scripted_world import TOOLS, ScriptedWorld, ScriptedWorlds
from tests.generator.claiming import V1, V2, generator
from tests.generator.playing import BUDGET, TURN_TOKENS, done_after, four_tokens, one_call, stepping


async def play(parts: EpisodeParts, *, max_turns: int = 8, index: int = 0) -> EpisodeSampler:
    """One episode to its end."""
    engine: Any = ScriptedEngine(four_tokens)
    await engine.apply(V1)
    sampler = EpisodeSampler(engine, episode_task(1, 2, BUDGET, max_turns=max_turns), index, parts)
    async with stepping(engine), asyncio.timeout(20):
        await sampler.run()
        await asyncio.sleep(0.01)  # the environment is given back by a task of its own
    return sampler


def count(parts: EpisodeParts, metric: Metric, **labels: str) -> float:
    return parts.exporter.registry.get_sample_value(metric.name, {"run": "test", **labels}) or 0.0


def given_text(rollout: Rollout) -> int:
    return sum(end - start for start, end in rollout.loss_masked)


async def test_turns_are_recorded_with_their_calls_and_rewards() -> None:
    world = ScriptedWorld(
        lambda number: ToolResult("a door", reward=0.1 * number, is_done=number == 3)
    )
    world.opening = Opening(TOOLS, messages=[{"role": "user", "content": "begin."}])
    world.value = 0.5
    sampler = await play(episode_parts(ScriptedWorlds(lambda: world), one_call))
    rollout = sampler.rollout()
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.DONE
    assert rollout.episode.prompt_token_ids is not None, (
        "the environment's own chat replaced the row's"
    )
    assert [turn.tool_calls for turn in rollout.episode.turns] == [1, 1, 1]
    assert [turn.reward for turn in rollout.episode.turns] == pytest.approx([0.1, 0.2, 0.3])
    assert [turn.end - turn.start for turn in rollout.episode.turns] == [TURN_TOKENS] * 3
    assert sampler.verdict is not None
    assert (sampler.verdict.reward, sampler.verdict.status) == (0.5, GradingStatus.OK)
    assert world.rows == [{"room": 1}]


async def test_a_last_reward_that_is_the_episodes_counts_once() -> None:
    """As OpenEnv's servers give it: 0.1 for the first turn, 0.2 and 0.4 for the calls of the
    second.
    """
    rewards = [0.1, 0.2, 0.4]
    world = ScriptedWorld(
        lambda number: ToolResult("a door", reward=rewards[number - 1], is_done=number == 3)
    )
    world.value = rewards[-1]
    calls = iter([1, 2])
    parts = episode_parts(ScriptedWorlds(lambda: world), lambda tokens: next(calls))
    parts.settings = {
        WORLD: OpenEnvEnvironment(name=WORLD, url="http://127.0.0.1:9", interpreter=Path("python"))
    }
    sampler = await play(parts)
    rollout = sampler.rollout()
    assert rollout.episode is not None
    assert sampler.verdict is not None
    rollout.reward = sampler.verdict.reward
    assert [turn.reward for turn in rollout.episode.turns] == pytest.approx([0.1, 0.2])
    recipe = Recipe(episodes=Episodes(credit=TurnCredit(discount=1.0)))
    assert sum(compared_reward(rollout, recipe)) == pytest.approx(sum(rewards))


async def test_rewards_of_an_environments_own_range_become_0_to_1() -> None:
    world = ScriptedWorld(
        lambda number: ToolResult("a door", reward=1.0, is_done=number == 2), value=-1.0
    )
    parts = episode_parts(ScriptedWorlds(lambda: world), one_call)
    parts.settings = {WORLD: parts.settings[WORLD].model_copy(update={"reward_range": (-3.0, 5.0)})}
    sampler = await play(parts)
    rollout = sampler.rollout()
    assert rollout.episode is not None
    assert sampler.verdict is not None
    assert (sampler.verdict.reward, sampler.verdict.status) == (0.25, GradingStatus.OK)
    assert [turn.reward for turn in rollout.episode.turns] == pytest.approx([1 / 8, 1 / 8])


@pytest.mark.parametrize("value", [-3.01, 5.01, float("-inf")])
async def test_a_reward_outside_its_own_range_is_no_verdict(value: float) -> None:
    parts = episode_parts(
        ScriptedWorlds(lambda: ScriptedWorld(done_after(1), value=value)), one_call
    )
    parts.settings = {WORLD: parts.settings[WORLD].model_copy(update={"reward_range": (-3.0, 5.0)})}
    sampler = await play(parts)
    rollout = sampler.rollout()
    assert rollout.episode is not None
    assert rollout.episode.reason.endswith("which is not in its reward_range [-3, 5]")


async def test_an_environment_that_fails_is_tried_again_and_given_up_without_a_verdict() -> None:
    attempts = itertools.count()

    def make() -> ScriptedWorld:
        number = next(attempts)

        def answer(call: int) -> ToolResult:
            if number < 2:
                raise EnvironmentFailedError("its process died")
            return done_after(2)(call)

        return ScriptedWorld(answer)

    worlds = ScriptedWorlds(make)
    parts = episode_parts(worlds, one_call)
    sampler = await play(parts)
    rollout = sampler.rollout()
    assert rollout.episode is not None
    assert (rollout.episode.end, rollout.episode.restarts) == (EpisodeEnd.DONE, 2)
    assert len(worlds.ended_worlds) == 2, "an environment that failed is not used again"
    assert (
        count(parts, episode_metrics.EPISODE_TOKENS_DISCARDED, environment=WORLD) == 2 * TURN_TOKENS
    )
    assert count(parts, episode_metrics.EPISODE_FAILURES, environment=WORLD, stage="call") == 2

    attempts = itertools.count()
    sampler = await play(episode_parts(ScriptedWorlds(make), one_call, restarts=1))
    rollout = sampler.rollout()
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.FAILED
    assert rollout.episode.reason == "environment world: its process died"
    assert sampler.verdict is not None
    assert sampler.verdict.status is GradingStatus.ERROR


class BrokenWorld(ScriptedWorld):
    async def reset(self, row: Mapping[str, Any]) -> Opening:
        raise EnvironmentFailedError("no room")


async def test_failed_set_ups_late_calls_and_cut_answers_are_counted_apart() -> None:
    answers = iter(
        [
            ToolResult("late", is_overdue=True),
            ToolResult("short", is_cut=True),
            ToolResult("a door"),
        ]
    )
    made = iter([BrokenWorld(done_after(1)), ScriptedWorld(lambda number: next(answers))])
    parts = episode_parts(ScriptedWorlds(lambda: next(made), refusals=1), one_call)
    sampler = await play(parts, max_turns=3)
    assert sampler.rollout().episode.end is EpisodeEnd.TURNS  # type: ignore[union-attr]
    assert count(parts, episode_metrics.EPISODE_FAILURES, environment=WORLD, stage="start") == 1
    assert count(parts, episode_metrics.EPISODE_FAILURES, environment=WORLD, stage="reset") == 1
    assert count(parts, episode_metrics.EPISODE_CALLS_OVERDUE, environment=WORLD) == 1
    assert count(parts, episode_metrics.EPISODE_ANSWERS_CUT, environment=WORLD) == 1


async def test_no_process_and_a_client_with_a_mistake_fail_the_episode_alone() -> None:
    worlds = ScriptedWorlds(lambda: ScriptedWorld(done_after(1)), refusals=1)
    parts = episode_parts(worlds, one_call, restarts=0)
    sampler = await play(parts)
    assert sampler.rollout().episode.reason == ("environment world: no process could be started")  # type: ignore[union-attr]
    assert count(parts, episode_metrics.EPISODE_FAILURES, environment=WORLD, stage="start") == 1
    worlds = ScriptedWorlds(lambda: ScriptedWorld(lambda number: 1 / 0))  # type: ignore[arg-type, return-value]
    sampler = await play(episode_parts(worlds, one_call, restarts=0))
    assert "ZeroDivisionError" in sampler.rollout().episode.reason  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [None, float("nan"), -0.1, 1.5, "good", [1]])
async def test_what_is_no_reward_is_no_verdict(value: Any) -> None:
    parts = episode_parts(
        ScriptedWorlds(lambda: ScriptedWorld(done_after(1), value=value)), one_call
    )
    sampler = await play(parts)
    assert count(parts, episode_metrics.EPISODE_FAILURES, environment=WORLD, stage="reward") == 1
    assert sampler.finished
    assert sampler.verdict is not None
    assert sampler.verdict.status is GradingStatus.ERROR
    rollout = sampler.rollout()
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.FAILED
    assert rollout.episode.restarts == 0
    assert "gave" in rollout.episode.reason


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -1e9])
async def test_a_turn_whose_reward_is_no_reward_has_no_verdict(reward: float) -> None:
    worlds = ScriptedWorlds(
        lambda: ScriptedWorld(lambda number: ToolResult("a door", reward=reward))
    )
    sampler = await play(episode_parts(worlds, one_call))
    rollout = sampler.rollout()
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.FAILED
    assert "for a call" in rollout.episode.reason
    assert [turn.reward for turn in rollout.episode.turns] == [0.0]


async def test_a_reset_and_a_failure_of_ten_megabytes_are_short_reasons() -> None:
    text = "x" * (10 << 20)
    world = ScriptedWorld(done_after(1), opening=Opening(TOOLS, text=text))
    sampler = await play(episode_parts(ScriptedWorlds(lambda: world), one_call))
    rollout = sampler.rollout()
    assert rollout.episode is not None
    assert "is too long for model.max_length" in rollout.episode.reason
    world = ScriptedWorld(done_after(1), value=EnvironmentFailedError(text))
    sampler = await play(episode_parts(ScriptedWorlds(lambda: world), one_call, restarts=0))
    rollout = sampler.rollout()
    assert rollout.episode is not None
    assert len(rollout.episode.reason) <= MAX_REASON_CHARACTERS


async def test_an_environment_that_keeps_no_deadline_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls_module, "GRACE_SECONDS", 0.1)
    worlds = ScriptedWorlds(lambda: ScriptedWorld(done_after(1), seconds=lambda: 60.0))
    parts = episode_parts(worlds, one_call, call_seconds=0.1, restarts=0)
    sampler = await play(parts)
    rollout = sampler.rollout()
    assert rollout.episode is not None
    assert (
        rollout.episode.reason == "environment world: did not end a call of look after 0.1 seconds"
    )
    assert count(parts, episode_metrics.EPISODE_CALLS_OVERDUE, environment=WORLD) == 1
    assert len(worlds.ended_worlds) == 1


async def test_a_long_answer_is_shortened() -> None:
    texts = iter(["x" * (10 << 20), "short"])
    worlds = ScriptedWorlds(
        lambda: ScriptedWorld(lambda number: ToolResult(next(texts), is_done=number == 2))
    )
    parts = episode_parts(worlds, one_call)
    parts.max_sequence_tokens = 4 * MAX_ANSWER_CHARACTERS
    engine: Any = ScriptedEngine(four_tokens)
    await engine.apply(V1)
    task = episode_task(1, 2, LengthBudget(max_tokens=4 * MAX_ANSWER_CHARACTERS))
    sampler = EpisodeSampler(engine, task, 0, parts)
    async with stepping(engine), asyncio.timeout(30):
        await sampler.run()
    rollout = sampler.rollout()
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.DONE
    assert MAX_ANSWER_CHARACTERS < given_text(rollout) < 2 * MAX_ANSWER_CHARACTERS
    assert count(parts, episode_metrics.EPISODE_ANSWERS_CUT, environment=WORLD) == 1


async def test_an_episode_whose_seconds_are_over_is_truncated_and_rewarded() -> None:
    worlds = ScriptedWorlds(lambda: ScriptedWorld(done_after(100), seconds=lambda: 0.3))
    engine: Any = ScriptedEngine(four_tokens)
    await engine.apply(V1)
    task = episode_task(1, 2, BUDGET, max_seconds=0.5)
    sampler = EpisodeSampler(engine, task, 0, episode_parts(worlds, one_call))
    async with stepping(engine), asyncio.timeout(20):
        await sampler.run()
    rollout = sampler.rollout()
    assert rollout.episode is not None
    assert (rollout.episode.end, rollout.truncated) == (EpisodeEnd.SECONDS, True)
    assert sampler.verdict is not None
    assert sampler.verdict.reward == 1.0


async def test_many_episodes_share_the_slots_while_their_tools_run() -> None:
    """More are in flight than there are slots; never more turns in the engine than slots."""
    waiting = asyncio.Event()
    worlds = ScriptedWorlds(lambda: ScriptedWorld(done_after(2)))
    parts = episode_parts(worlds, one_call, slots=4)
    worlds.make = lambda: WaitingWorld(done_after(2), released=waiting)
    slots = Slots(
        total=4, train_rollouts=2, eval_rollouts=2, max_eval_share=0.5, episode_kv_tokens=1 << 20
    )
    async with generator(ScriptedEngine(four_tokens), slots=slots, episodes=parts) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([episode_task(sequence, 2, BUDGET) for sequence in range(1, 11)])
        async with stepping(run.engine):
            await run.until(lambda: worlds.in_use == 20)
            await run.until(lambda: run.claims.num_running == 0)
            assert run.engine.most_running == 4
            run.trainer.dispatch([episode_task(100, 2, BUDGET, purpose=Purpose.EVAL)])
            await run.until(lambda: run.claimed(Purpose.EVAL) == 1)
            waiting.set()
            async with asyncio.timeout(20):
                groups: list[Delivery] = []
                while len(groups) < 11:
                    groups += run.trainer.read(100, 0.0)
                    await asyncio.sleep(0.01)
        assert run.engine.most_running == 4
    for delivery in groups:
        for rollout in delivery.group.rollouts:
            assert rollout.episode is not None
            assert rollout.episode.end is EpisodeEnd.DONE
            assert (rollout.reward, rollout.grading_status) == (1.0, GradingStatus.OK)


class WaitingWorld(ScriptedWorld):
    """Its calls wait for `released`."""

    def __init__(self, answer: Any, released: asyncio.Event) -> None:
        super().__init__(answer)
        self.released = released

    async def call(self, tool: str, arguments: Any) -> ToolResult:
        await self.released.wait()
        return await super().call(tool, arguments)


async def test_a_full_kv_cache_ends_the_claims() -> None:
    waiting = asyncio.Event()
    worlds = ScriptedWorlds(lambda: WaitingWorld(done_after(1), released=waiting))
    parts = episode_parts(worlds, one_call, slots=4)
    slots = Slots(
        total=4, train_rollouts=2, eval_rollouts=2, max_eval_share=0.5, episode_kv_tokens=200
    )
    async with generator(ScriptedEngine(four_tokens), slots=slots, episodes=parts) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([episode_task(sequence, 2, BUDGET) for sequence in range(1, 11)])
        async with stepping(run.engine):
            await run.until(lambda: worlds.in_use >= 4 and run.engine.num_running == 0)
            await asyncio.sleep(1.5)
            # A prompt of 27 tokens and a turn: six or seven episodes fill 200, and a task has two.
            assert 6 <= worlds.in_use <= 8
            waiting.set()
            await run.until(lambda: len(run.trainer.outstanding().waiting) == 0)


async def test_a_hand_over_does_not_wait_for_a_tool() -> None:
    worlds = ScriptedWorlds(lambda: WaitingWorld(done_after(1), released=asyncio.Event()))
    parts = episode_parts(worlds, one_call, slots=4)
    slots = Slots(
        total=4, train_rollouts=2, eval_rollouts=2, max_eval_share=0.5, episode_kv_tokens=1 << 20
    )
    async with generator(ScriptedEngine(four_tokens), slots=slots, episodes=parts) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([episode_task(1, 2, BUDGET)])
        async with stepping(run.engine):
            await run.until(lambda: worlds.in_use == 2 and run.engine.num_running == 0)
            run.claims.hand_over([1])
            await run.until(lambda: 1 in run.trainer.outstanding().waiting)
        waiting = run.trainer.outstanding().waiting[1]
        assert (waiting.attempt, waiting.first_version) == (0, None), "nothing of it is used again"
        assert worlds.in_use == 0
        assert len(worlds.ended_worlds) == 2, (
            "an environment in the middle of an episode is not used again"
        )
    assert (
        count(parts, episode_metrics.EPISODE_TOKENS_DISCARDED, environment=WORLD) == 2 * TURN_TOKENS
    )


async def test_an_episode_of_lost_versions_begins_again() -> None:
    released = asyncio.Event()
    worlds = ScriptedWorlds(lambda: WaitingWorld(done_after(1), released=released))
    parts = episode_parts(worlds, one_call, slots=4)
    engine: Any = ScriptedEngine(four_tokens)
    await engine.apply(V1)
    sampler = EpisodeSampler(engine, episode_task(1, 2, BUDGET), 0, parts)
    async with stepping(engine), asyncio.timeout(20):
        running = asyncio.create_task(sampler.run())
        while not sampler._attempt.has_ended_turn:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await engine.apply(V2)
        assert not sampler.restart_if(lambda version: version == V2)
        assert sampler.restart_if(lambda version: version == V1)
        released.set()
        await running
    assert [span.version for span in sampler.rollout().version_spans] == [V2]
    assert len(worlds.ended_worlds) == 1


async def test_what_a_former_owner_sampled_with_a_lost_version_is_not_continued() -> None:
    engine: Any = ScriptedEngine(lambda request: 1 << 30)
    await engine.apply(V1)
    parts = episode_parts(ScriptedWorlds(lambda: ScriptedWorld(done_after(1))), one_call)
    task = episode_task(1, 2, BUDGET)
    former = EpisodeSampler(engine, task, 0, parts)
    running = asyncio.create_task(former.run())
    async with asyncio.timeout(20):
        while not engine.running:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await engine.advance(3)
        former.stop()
        await running
    start = former.rollout()
    assert (start.partial, start.num_tokens) == (True, 3)
    engine = ScriptedEngine(four_tokens)
    await engine.apply(V2)
    sampler = EpisodeSampler(engine, task, 0, parts, start)
    assert sampler.restart_if(lambda version: version == V1)
    async with stepping(engine), asyncio.timeout(20):
        await sampler.run()
    assert sampler.rollout().versions == {V2}


async def test_an_environment_that_takes_long_to_begin_does_not_keep_the_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt_module, "MAX_SET_UP_SLOT_SECONDS", 0.2)
    released = asyncio.Event()

    class SlowWorld(ScriptedWorld):
        async def reset(self, row: Any) -> Opening:
            await released.wait()
            return await super().reset(row)

    worlds = ScriptedWorlds(lambda: SlowWorld(done_after(1)))
    slots = Slots(
        total=4, train_rollouts=2, eval_rollouts=2, max_eval_share=0.5, episode_kv_tokens=1 << 20
    )
    episodes = episode_parts(worlds, one_call, slots=4)
    async with generator(ScriptedEngine(four_tokens), slots=slots, episodes=episodes) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([episode_task(sequence, 2, BUDGET) for sequence in range(1, 6)])
        await run.until(lambda: worlds.in_use == 10)
        released.set()
        async with stepping(run.engine):
            await run.until(lambda: worlds.in_use == 0)


async def test_a_task_in_an_environment_that_this_run_file_has_not_fails() -> None:
    async with generator(ScriptedEngine(four_tokens)) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([episode_task(1, 2, BUDGET)])
        await run.until(lambda: 1 in run.trainer.outstanding().dead)

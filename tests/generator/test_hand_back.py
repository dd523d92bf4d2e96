"""What a generator that drains, or is slow, hands back or over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rollcast.config.tasks import Tasks
from rollcast.generator import claims as claims_module
from rollcast.generator.grading import Graded, GradingThreads
from rollcast.generator.groups import ActiveGroup
from rollcast.generator.samplers import Samplers
from rollcast.generator.vllm.engine_request import EngineRequest
from rollcast.generator.weights import GeneratorWeights
from rollcast.rollouts.base import Claimed
from rollcast.rollouts.records import (
    GradingStatus,
    PromptTask,
    Purpose,
    Rollout,
)
from rollcast.telemetry import generator_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.wire.version import PolicyVersion
from testkit.generator.scripted_engine import ScriptedEngine
from testkit.rollouts.examples import make_rollout
from testkit.rollouts.memory import MemoryBroker
from tests.generator.claiming import V1, V2, generator, make_task


async def test_a_drain_finishes_what_it_can_and_hands_the_rest_back() -> None:
    """Rollouts of task 1 end soon, those of task 2 do not; another generator continues them token
    by token.
    """

    def num_tokens(request: EngineRequest) -> int:
        return 3 + (6 if request.token_ids[0] == 1 else 12)

    broker = MemoryBroker()
    async with generator(ScriptedEngine(num_tokens), broker) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1, first_token=1), make_task(2, first_token=2)])
        await run.until(lambda: run.engine.num_running == 4)
        await run.engine.advance(2)
        await run.engine.apply(V2)
        run.claims.stop_claiming()
        drained = asyncio.create_task(run.claims.drain(0.5, 5.0))
        while not drained.done() and run.engine.running:
            if max(len(running.versions) for running in run.engine.running) < 8:
                await run.engine.advance(1)
            await asyncio.sleep(0.01)
        await drained
        (finished,) = run.trainer.read(10, 0.0)
        assert finished.group.sequence == 1
        run.trainer.remove([finished.stream_id])
        waiting = run.trainer.outstanding().waiting
        assert {sequence: item.attempt for sequence, item in waiting.items()} == {2: 0}
        assert waiting[2].first_version == V1
        assert run.count(generator_metrics.HAND_BACKS) == 1
    async with generator(ScriptedEngine(num_tokens), broker, owner="g-2") as run:
        await run.engine.apply(PolicyVersion(1, 3))
        (delivery,) = await run.advance_until_published(1)
        group = delivery.group
        assert (group.sequence, group.attempt, group.hand_backs, group.generator) == (
            2,
            0,
            1,
            "g-2",
        )
        assert group.first_version == V1
        for rollout in group.rollouts:
            assert rollout.token_ids.tolist() == list(range(3, 15))
            assert [
                (span.version.step, span.start, span.end) for span in rollout.version_spans
            ] == [
                (1, 0, 2),
                (2, 2, 8),
                (3, 8, 12),
            ]
            assert [
                (mark.position, mark.num_kept, mark.version.step) for mark in rollout.kv_marks
            ] == [(8, 0, 3)]
        assert len(set(run.engine.salts)) == 2, "continued rollouts must not share KV blocks"


class StuckGrader(GradingThreads):
    """Its verifier does not return before it is released, as one that hangs in a sandbox."""

    def __init__(self, engine: ScriptedEngine, exporter: Exporter) -> None:
        super().__init__(engine.decode, Tasks(), exporter)
        self.released = asyncio.Event()
        self.num_asked = 0

    async def grade(self, task: PromptTask, token_ids: list[int]) -> Graded:
        self.num_asked += 1
        await self.released.wait()
        return await super().grade(task, token_ids)


async def test_a_drain_does_not_wait_for_graders() -> None:
    """One rollout waits for its grade, the other is being sampled: both go on with the next owner,
    which grades.
    """
    broker, engine = MemoryBroker(), ScriptedEngine(num_tokens=lambda request: 3 + 12)
    grader = StuckGrader(engine, Exporter("test"))
    async with generator(engine, broker, grader=grader) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1)])
        await run.until(lambda: run.engine.num_running == 2)
        await run.engine.advance(4)
        run.engine.running[0].ended.set_result("stop")
        await run.until(lambda: grader.num_asked == 1)
        run.claims.stop_claiming()
        await run.claims.drain(0.0, 5.0)
        handed_back = run.trainer.outstanding().waiting
        grader.released.set()
        assert {sequence: item.attempt for sequence, item in handed_back.items()} == {1: 0}
    async with generator(
        ScriptedEngine(num_tokens=lambda request: 3 + 12), broker, owner="g-2"
    ) as run:
        await run.engine.apply(V2)
        (delivery,) = await run.advance_until_published(1)
        finished, continued = delivery.group.rollouts
        assert (delivery.group.attempt, delivery.group.hand_backs) == (0, 1)
        assert finished.token_ids.tolist() == list(range(3, 7))
        assert continued.token_ids.tolist() == list(range(3, 15))
        assert [rollout.grading_status for rollout in (finished, continued)] == [
            GradingStatus.OK
        ] * 2
        assert run.count(generator_metrics.GRADINGS, status="ok") == 2


async def test_a_slow_generator_hands_over_exactly_what_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does not take the task back at once though nobody else wants it, then goes on; the others
    stay.
    """
    monkeypatch.setattr(claims_module, "HOLD_BACK_SECONDS", 1.5)
    broker = MemoryBroker()
    async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 12), broker) as slow:
        await slow.engine.apply(V1)
        slow.trainer.dispatch([make_task(sequence) for sequence in (1, 2, 3)])
        await slow.until(lambda: slow.engine.num_running == 6)
        await slow.engine.advance(4)
        weights = GeneratorWeights("g", slow.engine, slow.claims, slow.exporter)  # type: ignore[arg-type]
        await weights.hand_over([2, 77])
        await slow.until(lambda: 2 in slow.trainer.outstanding().waiting)
        waiting = slow.trainer.outstanding().waiting[2]
        assert (waiting.attempt, waiting.first_version) == (0, V1), "a hand-over is no failure"
        assert set(slow.trainer.outstanding().claims) == {1, 3}
        assert slow.engine.num_running == 4
        slow.trainer.dispatch([make_task(100, Purpose.EVAL)])
        await slow.until(lambda: slow.claimed(Purpose.EVAL) == 1)
        assert 2 in slow.trainer.outstanding().waiting, (
            "evaluation goes on, training is left to others"
        )
        async with generator(
            ScriptedEngine(num_tokens=lambda request: 3 + 12), broker, owner="g-2"
        ) as fast:
            await fast.engine.apply(V2)
            (delivery,) = await fast.advance_until_published(1)
        assert (delivery.group.sequence, delivery.group.hand_backs, delivery.group.generator) == (
            2,
            1,
            "g-2",
        )
        for rollout in delivery.group.rollouts:
            assert rollout.token_ids.tolist() == list(range(3, 15))
            assert [(span.version, span.start, span.end) for span in rollout.version_spans] == [
                (V1, 0, 4),
                (V2, 4, 12),
            ]
        assert (
            slow.count(generator_metrics.HAND_OVERS)
            == slow.count(generator_metrics.HAND_BACKS)
            == 1
        )
        slow.trainer.dispatch([make_task(4)])
        await slow.until(lambda: 4 in slow.trainer.outstanding().claims)


async def test_a_claim_under_way_does_not_take_a_handed_over_task_back() -> None:
    async with generator(ScriptedEngine()) as run:
        await run.engine.apply(V1)
        for sequence in (
            1,
            2,
            3,
        ):  # one after the other, so that a claim waits for the next all the time
            run.trainer.dispatch([make_task(sequence)])
            await run.until(lambda sequence=sequence: sequence in run.trainer.outstanding().claims)  # type: ignore[misc]
            run.claims.hand_over([sequence])
            await run.until(lambda sequence=sequence: sequence in run.trainer.outstanding().waiting)  # type: ignore[misc]
            await asyncio.sleep(0.6)
            assert sequence in run.trainer.outstanding().waiting
            run.trainer.retire([sequence])
            await asyncio.sleep(1.0)


class EndsWhenStopped:
    """A sampler whose environment gives its verdict in the moment in
    which its task is handed over.
    """

    occupies_slot = False
    num_kv_tokens = 0
    verdict = Graded(0.0, GradingStatus.ERROR, 0.0)
    answer_token_ids = (1,)

    def __init__(self) -> None:
        self.finished = False
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        await self._stopping.wait()
        self.finished = True

    def stop(self) -> None:
        self._stopping.set()

    def rollout(self) -> Rollout:
        return make_rollout(0, 3, reward=0.0, grading_status=GradingStatus.UNGRADED)


class SamplersThatEnd(Samplers):
    def sampler(self, task: PromptTask, index: int, start: Rollout | None) -> Any:
        return EndsWhenStopped()


async def test_a_verdict_that_was_given_is_handed_over_with_its_rollout() -> None:
    """The next owner has no verifier for it, and no environment that could say it again."""
    engine: Any = ScriptedEngine()
    grader: Any = None
    group = ActiveGroup(
        Claimed(make_task(1, Purpose.EVAL), "1-0", V1), engine, grader, SamplersThatEnd(engine)
    )
    running = asyncio.create_task(group.run())
    await asyncio.sleep(0)
    group.stop()
    await asyncio.wait_for(running, 60)
    (rollout,) = (await group.unfinished_task()).rollouts
    assert rollout.grading_status is GradingStatus.ERROR

"""Claims and tokens that a fence, another owner, a new incarnation or Redis takes away."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rollcast.generator import patient_queue
from rollcast.generator.weights import GeneratorWeights
from rollcast.rollouts.base import Claimed, GeneratorQueue
from rollcast.rollouts.errors import OwnerFenced, QueueAway
from rollcast.rollouts.records import (
    GradingStatus,
    Leg,
    LegKind,
    Purpose,
    Rollout,
    RolloutGroup,
    StopReason,
    VersionSpan,
)
from rollcast.telemetry import generator_metrics, wire_metrics
from rollcast.wire.version import PolicyVersion, Surviving
from testkit.generator.scripted_engine import ScriptedEngine
from testkit.rollouts.memory import MemoryBroker, MemoryGeneratorQueue
from tests.generator.claiming import V1, V2, generator, make_task


async def test_a_fenced_generator_forgets_its_tasks_and_returns_under_a_new_name() -> None:
    async with generator(ScriptedEngine()) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1)])
        await run.until(lambda: run.claimed(Purpose.TRAIN) == 1)
        run.trainer.fence("g-1", "silent")
        weights = GeneratorWeights("g", run.engine, run.claims, run.exporter)  # type: ignore[arg-type]
        owner = await weights.change_owner("silent")
        assert owner != "g-1"
        await run.until(lambda: run.claimed(Purpose.TRAIN) == 1)
        claim = run.trainer.outstanding().claims[1]
        assert (claim.owner, claim.attempt) == (owner, 1)
        await run.until(lambda: run.engine.num_running == 2)


async def test_tasks_that_went_to_another_owner_are_dropped() -> None:
    async with generator(ScriptedEngine()) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1)])
        await run.until(lambda: run.engine.num_running == 2)
        run.trainer.retire([1])
        await run.until(lambda: run.engine.num_running == 0)
        assert run.count(generator_metrics.REFUSED) == 1
        assert run.claims.num_running == 0


async def test_a_new_incarnation_restarts_rollouts_with_lost_tokens() -> None:
    async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 6)) as run:
        weights = GeneratorWeights("g", run.engine, run.claims, run.exporter)  # type: ignore[arg-type]
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1)])
        await run.until(lambda: run.engine.num_running == 2)
        await run.engine.advance(2)
        await run.engine.apply(V2)
        await run.engine.advance(2)
        await weights.incarnation_changed(2, [Surviving(1, 1)])
        await run.until(lambda: run.engine.num_running == 0)
        assert run.engine.version is None, "the weights that were held are lost too"
        assert run.count(generator_metrics.ABORTED) == 2
        await run.engine.apply(PolicyVersion(2, 1))
        (delivery,) = await run.advance_until_published(1)
        assert delivery.group.versions == {PolicyVersion(2, 1)}
        for rollout in delivery.group.rollouts:
            assert rollout.token_ids.tolist() == list(range(3, 9))


async def test_a_new_incarnation_leaves_surviving_rollouts_alone() -> None:
    async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 6)) as run:
        weights = GeneratorWeights("g", run.engine, run.claims, run.exporter)  # type: ignore[arg-type]
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1)])
        await run.until(lambda: run.engine.num_running == 2)
        await run.engine.advance(2)
        await weights.incarnation_changed(2, [Surviving(1, 1)])
        await run.engine.apply(PolicyVersion(2, 2))
        (delivery,) = await run.advance_until_published(1)
        assert delivery.group.versions == {V1, PolicyVersion(2, 2)}
        assert run.count(generator_metrics.ABORTED) == 0


async def test_lost_tokens_of_a_task_claimed_later_are_sampled_again() -> None:
    """Rollout 0 came back with tokens of a surviving version, rollout 1 with lost ones and already
    graded.
    """
    async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 6)) as run:
        weights = GeneratorWeights("g", run.engine, run.claims, run.exporter)  # type: ignore[arg-type]
        await weights.incarnation_changed(2, [Surviving(1, 1)])
        await run.engine.apply(PolicyVersion(2, 2))
        survives = partial_rollout(0, [(V1, 2)])
        lost = dataclasses.replace(
            partial_rollout(1, [(V1, 2), (V2, 4)]),
            partial=False,
            stop_reason=StopReason.END,
            grading_status=GradingStatus.WRONG,
        )
        run.trainer.dispatch(
            [dataclasses.replace(make_task(1), rollouts=[survives, lost], first_version=V1)]
        )
        (delivery,) = await run.advance_until_published(1)
        kept, again = delivery.group.rollouts
        assert [span.version for span in kept.version_spans] == [V1, PolicyVersion(2, 2)]
        assert {span.version for span in again.version_spans} == {PolicyVersion(2, 2)}
        assert again.token_ids.tolist() == list(range(3, 9))
        assert again.grading_status is GradingStatus.OK
        assert run.count(generator_metrics.ABORTED) == 1


def partial_rollout(index: int, versions: list[tuple[PolicyVersion, int]]) -> Rollout:
    """Tokens as ScriptedEngine samples them; versions: (version, end of its tokens)."""
    end = versions[-1][1]
    starts = [0, *(stop for _, stop in versions)]
    return Rollout(
        index=index,
        token_ids=np.arange(3, 3 + end, dtype=np.int32),
        logprobs=-np.arange(3, 3 + end, dtype=np.float32),
        version_spans=tuple(
            VersionSpan(version, start, stop)
            for (version, stop), start in zip(versions, starts, strict=False)
        ),
        legs=(Leg(LegKind.THINKING, 0, end),),
        partial=True,
    )


class SlowRenewal(MemoryGeneratorQueue):
    """A renewal is answered when it is let go: with what is lost, or that the name was fenced."""

    def __init__(self, broker: MemoryBroker, owner: str, *, refuses: bool) -> None:
        super().__init__(broker, owner)
        self._refuses = refuses
        self.asked = asyncio.Event()
        self.let_go = asyncio.Event()

    async def renew(self, claimed: Sequence[Claimed]) -> list[int]:
        self.asked.set()
        await self.let_go.wait()
        if self._refuses:
            raise OwnerFenced(self.owner)
        return await super().renew(claimed)


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_late_answer_to_the_former_name_leaves_the_new_ones_tasks_alone(
    refuses: bool,
) -> None:
    broker = MemoryBroker()
    former = SlowRenewal(broker, "g-1", refuses=refuses)

    def open_queue(name: str) -> GeneratorQueue:
        return former if name == "g-1" else MemoryGeneratorQueue(broker, name)

    async with generator(
        ScriptedEngine(num_tokens=lambda request: 3 + 2), broker, open_queue=open_queue
    ) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1)])
        await former.asked.wait()
        run.trainer.fence("g-1", "silent")
        await run.claims.change_owner("g-2")
        await run.until(lambda: run.claimed(Purpose.TRAIN) == 1 and run.engine.num_running == 2)
        former.let_go.set()
        await asyncio.sleep(0.2)
        assert run.engine.num_running == run.claims.num_running == 2
        (delivery,) = await run.advance_until_published(1)
        assert (delivery.group.generator, delivery.group.attempt) == ("g-2", 1)


class ShakyQueue(MemoryGeneratorQueue):
    """Redis goes away at every third call."""

    calls = 0

    def _stumble(self) -> None:
        self.calls += 1
        if self.calls % 3 == 0:
            self.away_seconds += 0.5
            raise QueueAway("redis is away")

    async def claim(self, **arguments: Any) -> list[Claimed]:
        self._stumble()
        return await super().claim(**arguments)

    async def publish(self, claimed: Claimed, group: RolloutGroup) -> bool:
        self._stumble()
        return await super().publish(claimed, group)


async def test_nothing_is_lost_while_redis_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient_queue, "QUEUE_RETRY_SECONDS", 0.01)
    broker = MemoryBroker()
    engine = ScriptedEngine(num_tokens=lambda request: 3 + 2)
    async with generator(engine, broker, open_queue=lambda name: ShakyQueue(broker, name)) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(sequence) for sequence in range(1, 10)])
        deliveries = await run.advance_until_published(9)
        assert sorted(delivery.group.sequence for delivery in deliveries) == list(range(1, 10))
        assert all(delivery.group.attempt == 0 for delivery in deliveries)
        assert run.count(wire_metrics.REDIS_AWAY) > 0

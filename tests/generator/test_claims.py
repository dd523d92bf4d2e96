"""Claiming, handing in and handing back over the in-memory wire 1, with an engine that has no model."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rollcast.config.errors import UserError
from rollcast.config.tasks import Grading
from rollcast.generator import claims as claims_module
from rollcast.generator.claims import ClaimLoop, Slots
from rollcast.generator.engine import EngineRequest
from rollcast.generator.grading import Graded, GradingThreads
from rollcast.generator.weight_engine import GeneratorWeights
from rollcast.rollouts.base import Claimed, Delivery, GeneratorQueue
from rollcast.rollouts.errors import OwnerFenced, QueueAway
from rollcast.rollouts.records import (
    GradingStatus,
    Leg,
    LegKind,
    LengthBudget,
    PromptTask,
    Purpose,
    Rollout,
    RolloutGroup,
    Sampling,
    StopReason,
    VersionSpan,
)
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.names import Metric
from rollcast.weights.member import Surviving
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.memory import MemoryBroker, MemoryGeneratorQueue, MemoryTrainerQueue
from tests.generator.scripted_engine import ScriptedEngine

V1, V2 = PolicyVersion(1, 1), PolicyVersion(1, 2)
SLOTS = Slots(total=8, train_rollouts=2, eval_rollouts=1, max_eval_share=0.5)


def make_task(sequence: int, purpose: Purpose = Purpose.TRAIN, *, first_token: int = 5) -> PromptTask:
    return PromptTask(
        sequence=sequence,
        incarnation=1,
        purpose=purpose,
        dataset="test",
        prompt_id=str(sequence),
        prompt_token_ids=np.asarray([first_token, 6, 7], dtype=np.int32),
        num_rollouts=2 if purpose is Purpose.TRAIN else 1,
        sampling=Sampling(),
        length=LengthBudget(max_tokens=20),
        verifier="arithmetic",
        reference='"1"',
    )


@dataclasses.dataclass
class Run:
    """One generator and the trainer's end of its queue."""

    engine: ScriptedEngine
    claims: ClaimLoop
    trainer: MemoryTrainerQueue
    broker: MemoryBroker
    exporter: Exporter

    def count(self, metric: Metric, **labels: str) -> float:
        return self.exporter.registry.get_sample_value(metric.name, {"run": "test", **labels}) or 0.0

    def claimed(self, purpose: Purpose) -> int:
        return len(self.trainer.outstanding().of(purpose).claims)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def advance_until_published(self, count: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        async with asyncio.timeout(10):
            while len(deliveries) < count:
                await self.engine.advance(1)
                deliveries += self.trainer.read(100, 0.0)
        return deliveries


@asynccontextmanager
async def generator(
    engine: ScriptedEngine,
    broker: MemoryBroker | None = None,
    slots: Slots = SLOTS,
    owner: str = "g-1",
    open_queue: Callable[[str], GeneratorQueue] | None = None,
    grader: GradingThreads | None = None,
    reaches_trainer: Callable[[], bool] = lambda: True,
) -> AsyncIterator[Run]:
    broker = broker or MemoryBroker()
    exporter = Exporter("test")
    grader = grader or GradingThreads(engine.decode, Grading(), exporter)
    claims = ClaimLoop(
        engine=engine,  # type: ignore[arg-type]
        grader=grader,
        open_queue=open_queue or (lambda name: MemoryGeneratorQueue(broker, name)),
        owner=owner,
        slots=slots,
        renew_seconds=0.05,
        fence_patience_seconds=5.0,
        reaches_trainer=reaches_trainer,
        exporter=exporter,
    )
    running = asyncio.create_task(claims.run())
    try:
        yield Run(engine, claims, MemoryTrainerQueue(broker), broker, exporter)
    finally:
        claims.stop_claiming()
        await running
        await claims.close()
        grader.close()


async def test_nothing_is_claimed_before_a_version_came() -> None:
    async with generator(ScriptedEngine()) as run:
        run.trainer.dispatch([make_task(1)])
        await asyncio.sleep(0.7)
        assert run.claimed(Purpose.TRAIN) == 0
        await run.engine.apply(V1)
        await run.until(lambda: run.claimed(Purpose.TRAIN) == 1)
        assert run.trainer.outstanding().claims[1].first_version == V1


async def test_nothing_is_claimed_while_no_trainer_is_reached_and_groups_under_way_go_on() -> None:
    reached = [True]
    engine = ScriptedEngine(num_tokens=lambda request: 3 + 4)
    async with generator(engine, reaches_trainer=lambda: reached[0]) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1)])
        await run.until(lambda: run.engine.num_running == 2)
        await asyncio.sleep(0.1)  # a claim waits for the next task by now
        reached[0] = False
        run.trainer.dispatch([make_task(2), make_task(100, Purpose.EVAL)])
        (delivery,) = await run.advance_until_published(1)
        assert delivery.group.sequence == 1
        await asyncio.sleep(0.7)
        assert set(run.trainer.outstanding().waiting) == {2, 100}
        reached[0] = True
        assert {delivery.group.sequence for delivery in await run.advance_until_published(2)} == {2, 100}


async def test_groups_are_sampled_graded_and_published() -> None:
    async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 4)) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(sequence) for sequence in range(1, 8)])
        deliveries = await run.advance_until_published(7)
        assert sorted(delivery.group.sequence for delivery in deliveries) == list(range(1, 8))
        for group in (delivery.group for delivery in deliveries):
            assert group.first_version == V1
            assert group.generator == "g-1"
            assert [rollout.index for rollout in group.rollouts] == [0, 1]
            for rollout in group.rollouts:
                assert rollout.token_ids.tolist() == [3, 4, 5, 6]
                assert rollout.stop_reason is StopReason.END
                assert rollout.grading_status is GradingStatus.OK
                assert rollout.reward == 1.0
        assert run.engine.most_running <= SLOTS.total
        assert run.count(names.GRADINGS, status="ok") == 14


async def test_evaluation_comes_first_but_leaves_its_share_to_training() -> None:
    async with generator(ScriptedEngine()) as run:
        run.trainer.dispatch([make_task(sequence) for sequence in range(1, 20)])
        run.trainer.dispatch([make_task(sequence, Purpose.EVAL) for sequence in range(100, 120)])
        await run.engine.apply(V1)
        await run.until(lambda: run.claims.num_running == SLOTS.total)
        assert run.claimed(Purpose.EVAL) == 4
        assert run.claimed(Purpose.TRAIN) == 2
        await asyncio.sleep(0.6)
        assert run.claims.num_running == SLOTS.total


async def test_evaluation_takes_every_slot_when_no_training_waits() -> None:
    async with generator(ScriptedEngine()) as run:
        run.trainer.dispatch([make_task(sequence, Purpose.EVAL) for sequence in range(100, 120)])
        await run.engine.apply(V1)
        await run.until(lambda: run.claimed(Purpose.EVAL) == SLOTS.total)


def test_a_share_smaller_than_one_prompt_still_lets_evaluation_through() -> None:
    slots = Slots(total=8, train_rollouts=8, eval_rollouts=4, max_eval_share=0.1)
    assert slots.eval_tasks(0, 0, training_waits=True) == 1
    assert slots.eval_tasks(4, 4, training_waits=True) == 0
    assert slots.train_tasks(4) == 0
    with pytest.raises(UserError, match=r"generator.slots = 4: fewer than the 8 rollouts"):
        Slots(total=4, train_rollouts=8, eval_rollouts=4, max_eval_share=0.5)


async def test_a_drain_finishes_what_it_can_and_hands_the_rest_back() -> None:
    """Rollouts of task 1 end soon, those of task 2 do not; another generator continues them token by token."""

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
        assert run.count(names.HAND_BACKS) == 1
    async with generator(ScriptedEngine(num_tokens), broker, owner="g-2") as run:
        await run.engine.apply(PolicyVersion(1, 3))
        (delivery,) = await run.advance_until_published(1)
        group = delivery.group
        assert (group.sequence, group.attempt, group.hand_backs, group.generator) == (2, 0, 1, "g-2")
        assert group.first_version == V1
        for rollout in group.rollouts:
            assert rollout.token_ids.tolist() == list(range(3, 15))
            assert [(span.version.step, span.start, span.end) for span in rollout.version_spans] == [
                (1, 0, 2),
                (2, 2, 8),
                (3, 8, 12),
            ]
            assert [(mark.position, mark.kept, mark.version.step) for mark in rollout.kv_marks] == [(8, 0, 3)]
        assert len(set(run.engine.salts)) == 2, "continued rollouts must not share KV blocks"


class StuckGrader(GradingThreads):
    """Its verifier does not return before it is released, as one that hangs in a sandbox."""

    def __init__(self, engine: ScriptedEngine, exporter: Exporter) -> None:
        super().__init__(engine.decode, Grading(), exporter)
        self.released = asyncio.Event()
        self.num_asked = 0

    async def grade(self, task: PromptTask, token_ids: list[int]) -> Graded:
        self.num_asked += 1
        await self.released.wait()
        return await super().grade(task, token_ids)


async def test_a_drain_does_not_wait_for_graders() -> None:
    """One rollout waits for its grade, the other is being sampled: both go on with the next owner, which grades."""
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
    async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 12), broker, owner="g-2") as run:
        await run.engine.apply(V2)
        (delivery,) = await run.advance_until_published(1)
        finished, continued = delivery.group.rollouts
        assert (delivery.group.attempt, delivery.group.hand_backs) == (0, 1)
        assert finished.token_ids.tolist() == list(range(3, 7))
        assert continued.token_ids.tolist() == list(range(3, 15))
        assert [rollout.grading_status for rollout in (finished, continued)] == [GradingStatus.OK] * 2
        assert run.count(names.GRADINGS, status="ok") == 2


async def test_idle_time_is_exactly_the_time_without_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that the test turns: a wait that ends in a claim counts, one beside a running group does not."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(claims_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 2)) as run:
        await run.engine.apply(V1)
        await asyncio.sleep(0.1)  # a claim waits by now
        for sequence in (1, 2):
            clock.now += 100.0
            run.trainer.dispatch([make_task(sequence)])
            await run.until(lambda: run.engine.num_running == 2)
            clock.now += 7.0
            await asyncio.sleep(0.6)  # a claim waits in vain
            await run.advance_until_published(1)
            await run.until(lambda: run.engine.num_running == 0)
        await asyncio.sleep(0.1)
        clock.now += 10.0
        await run.until(lambda: run.count(names.GENERATOR_IDLE) > 200.0)
        assert run.count(names.GENERATOR_IDLE) == 210.0


async def test_a_slow_generator_hands_over_exactly_what_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not take the task back at once though nobody else wants it, then goes on; the others stay."""
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
        assert 2 in slow.trainer.outstanding().waiting, "evaluation goes on, training is left to others"
        async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 12), broker, owner="g-2") as fast:
            await fast.engine.apply(V2)
            (delivery,) = await fast.advance_until_published(1)
        assert (delivery.group.sequence, delivery.group.hand_backs, delivery.group.generator) == (2, 1, "g-2")
        for rollout in delivery.group.rollouts:
            assert rollout.token_ids.tolist() == list(range(3, 15))
            assert [(span.version, span.start, span.end) for span in rollout.version_spans] == [(V1, 0, 4), (V2, 4, 12)]
        assert slow.count(names.HAND_OVERS) == slow.count(names.HAND_BACKS) == 1
        slow.trainer.dispatch([make_task(4)])
        await slow.until(lambda: 4 in slow.trainer.outstanding().claims)


async def test_a_claim_under_way_does_not_take_a_handed_over_task_back() -> None:
    async with generator(ScriptedEngine()) as run:
        await run.engine.apply(V1)
        for sequence in (1, 2, 3):  # one after the other, so that a claim waits for the next all the time
            run.trainer.dispatch([make_task(sequence)])
            await run.until(lambda sequence=sequence: sequence in run.trainer.outstanding().claims)  # type: ignore[misc]
            run.claims.hand_over([sequence])
            await run.until(lambda sequence=sequence: sequence in run.trainer.outstanding().waiting)  # type: ignore[misc]
            await asyncio.sleep(0.6)
            assert sequence in run.trainer.outstanding().waiting
            run.trainer.retire([sequence])
            await asyncio.sleep(1.0)


async def test_a_fenced_generator_forgets_its_tasks_and_returns_under_a_new_name() -> None:
    async with generator(ScriptedEngine()) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1)])
        await run.until(lambda: run.claimed(Purpose.TRAIN) == 1)
        run.trainer.fence("g-1", "silent")
        weights = GeneratorWeights("g", run.engine, run.claims, run.exporter)  # type: ignore[arg-type]
        owner = await weights.fenced("silent")
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
        assert run.count(names.REFUSED) == 1
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
        assert run.count(names.ABORTED) == 2
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
        assert run.count(names.ABORTED) == 0


async def test_lost_tokens_of_a_task_claimed_later_are_sampled_again() -> None:
    """Rollout 0 came back with tokens of a surviving version, rollout 1 with lost ones and already graded."""
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
        run.trainer.dispatch([dataclasses.replace(make_task(1), rollouts=[survives, lost], first_version=V1)])
        (delivery,) = await run.advance_until_published(1)
        kept, again = delivery.group.rollouts
        assert [span.version for span in kept.version_spans] == [V1, PolicyVersion(2, 2)]
        assert {span.version for span in again.version_spans} == {PolicyVersion(2, 2)}
        assert again.token_ids.tolist() == list(range(3, 9))
        assert again.grading_status is GradingStatus.OK
        assert run.count(names.ABORTED) == 1


def partial_rollout(index: int, versions: list[tuple[PolicyVersion, int]]) -> Rollout:
    """Tokens as ScriptedEngine samples them; versions: (version, end of its tokens)."""
    end = versions[-1][1]
    starts = [0, *(stop for _, stop in versions)]
    return Rollout(
        index=index,
        token_ids=np.arange(3, 3 + end, dtype=np.int32),
        logprobs=-np.arange(3, 3 + end, dtype=np.float32),
        version_spans=tuple(
            VersionSpan(version, start, stop) for (version, stop), start in zip(versions, starts, strict=False)
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
async def test_a_late_answer_to_the_former_name_leaves_the_new_ones_tasks_alone(refuses: bool) -> None:
    broker = MemoryBroker()
    former = SlowRenewal(broker, "g-1", refuses=refuses)

    def open_queue(name: str) -> GeneratorQueue:
        return former if name == "g-1" else MemoryGeneratorQueue(broker, name)

    async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 2), broker, open_queue=open_queue) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1)])
        await former.asked.wait()
        run.trainer.fence("g-1", "silent")
        await run.claims.fenced("g-2")
        await run.until(lambda: run.claimed(Purpose.TRAIN) == 1 and run.engine.num_running == 2)
        former.let_go.set()
        await asyncio.sleep(0.2)
        assert run.engine.num_running == run.claims.num_running == 2
        (delivery,) = await run.advance_until_published(1)
        assert (delivery.group.generator, delivery.group.attempt) == ("g-2", 1)


async def test_a_prompt_the_engine_refuses_counts_as_a_failure() -> None:
    async with generator(ScriptedEngine()) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1, first_token=666)])
        await run.until(lambda: 1 in run.trainer.outstanding().dead)
        assert "unlucky prompt" in run.trainer.outstanding().dead[1].reason


async def test_an_unknown_verifier_is_a_failure_and_not_a_wrong_answer() -> None:
    async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 2)) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([dataclasses.replace(make_task(1), verifier="nonsense")])
        async with asyncio.timeout(10):
            while 1 not in run.trainer.outstanding().dead:
                await run.engine.advance(1)
        assert "neither built in nor installed" in run.trainer.outstanding().dead[1].reason
        assert run.count(names.GRADINGS, status="wrong") == 0


async def test_wrong_answers_and_failed_graders_are_told_apart() -> None:
    async with generator(ScriptedEngine(num_tokens=lambda request: 3 + 2)) as run:
        await run.engine.apply(V1)
        wrong = dataclasses.replace(make_task(1), reference='"2"')
        broken = dataclasses.replace(make_task(2), reference="this is not JSON")
        run.trainer.dispatch([wrong, broken])
        groups = {delivery.group.sequence: delivery.group for delivery in await run.advance_until_published(2)}
        assert {rollout.grading_status for rollout in groups[1].rollouts} == {GradingStatus.WRONG}
        assert {rollout.grading_status for rollout in groups[2].rollouts} == {GradingStatus.ERROR}
        assert run.count(names.GRADINGS, status="wrong") == 2
        assert run.count(names.GRADINGS, status="error") == 2


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
    monkeypatch.setattr(claims_module, "QUEUE_RETRY_SECONDS", 0.01)
    broker = MemoryBroker()
    engine = ScriptedEngine(num_tokens=lambda request: 3 + 2)
    async with generator(engine, broker, open_queue=lambda name: ShakyQueue(broker, name)) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(sequence) for sequence in range(1, 10)])
        deliveries = await run.advance_until_published(9)
        assert sorted(delivery.group.sequence for delivery in deliveries) == list(range(1, 10))
        assert all(delivery.group.attempt == 0 for delivery in deliveries)
        assert run.count(names.REDIS_AWAY) > 0


async def test_rollouts_of_one_prompt_share_its_blocks() -> None:
    async with generator(ScriptedEngine()) as run:
        await run.engine.apply(V1)
        run.trainer.dispatch([make_task(1)])
        await run.until(lambda: run.engine.num_running == 2)
        assert run.engine.salts == ["1.1/1", "1.1/1"]

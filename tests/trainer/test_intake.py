"""The intake on the in-memory twin of wire 1, with Redis going away at every call."""

from __future__ import annotations

import pytest

from rollcast.rollouts.base import MAX_FAILURES
from rollcast.wire.version import PolicyVersion
from tests.trainer.intake_desk import Desk


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("fail_in", range(1, 8))
async def test_an_outage_at_any_call_loses_nothing(fail_in: int, after: bool) -> None:
    """Four training groups and two evaluation answers; one of lost versions, one whose every answer
    is defective.
    """
    desk = Desk()
    desk.dispatch("lost")
    await desk.answer(PolicyVersion(1, 9))
    desk.dispatch("a", "b", "bad")
    desk.ask("e1", "e2")
    await desk.answer(PolicyVersion(2, 6))
    desk.queue.fail_in, desk.queue.after = fail_in, after
    for _ in range(4):
        desk.turn()
    for _ in range(3):
        await desk.answer(PolicyVersion(2, 7))
        desk.turn()
        desk.turn()
    assert sorted(
        desk.intake.ready[sequence].group.prompt_id for sequence in desk.intake.ready
    ) == ["a", "b", "lost"]
    assert sorted(desk.ledger.outstanding.values()) == ["a", "b", "lost"]
    assert desk.open_evaluations.unanswered_tasks() == {}
    assert desk.outcomes["dead"] == 1
    assert len(desk.queue.outstanding().finished) == 3, "everything else was acknowledged"


async def test_what_redis_lost_is_dispatched_again_once() -> None:
    desk = Desk()
    desk.dispatch("a", "b")
    desk.ask("e")
    desk.queue.retire([0, 1, 2])
    desk.turn()
    desk.turn()
    assert desk.reasons == [("redone", "missing from Redis")] * 2
    await desk.answer(PolicyVersion(2, 6))
    desk.turn()
    assert len(desk.intake.ready) == 2
    assert desk.open_evaluations.unanswered_tasks() == {}


async def test_a_group_in_a_batch_stays_outstanding_until_it_is_settled() -> None:
    desk = Desk()
    desk.dispatch("a", "b")
    await desk.answer(PolicyVersion(2, 6))
    desk.turn()
    taken = desk.intake.take([0])
    desk.turn()
    assert {group.sequence: group.ready for group in desk.intake.groups()} == {0: False, 1: True}
    desk.ledger.settle(0)
    desk.intake.done_with([taken[0].stream_id])
    desk.turn()
    assert [group.sequence for group in desk.intake.groups()] == [1]
    assert len(desk.queue.outstanding().finished) == 1


async def test_given_up_groups_come_off_the_queue() -> None:
    desk = Desk()
    desk.dispatch("a", "b")
    await desk.answer(PolicyVersion(2, 6))
    desk.turn()
    desk.intake.give_up([1])
    assert desk.ledger.owed == ["b"]
    desk.turn()
    assert list(desk.ledger.outstanding.values()) == ["a"]
    assert len(desk.queue.outstanding().finished) == 1


async def test_a_task_whose_answers_cannot_be_used_is_dead_at_the_third() -> None:
    desk = Desk()
    desk.dispatch("a", "bad")
    desk.ask("e", "bad")
    for attempt in range(MAX_FAILURES):
        claims = await desk.answer(PolicyVersion(2, 6))
        assert [claim.task.attempt for claim in claims if claim.task.prompt_id == "bad"] == [
            attempt,
            attempt,
        ]
        assert desk.ledger.outstanding == {0: "a", 1: "bad"}
        desk.turn()
    assert await desk.answer(PolicyVersion(2, 6)) == [], "nothing is asked again"
    assert desk.ledger.outstanding == {0: "a"}
    assert desk.ledger.refused == {}
    assert desk.outcomes == {"redone": MAX_FAILURES - 1, "dead": 1}
    assert set(desk.reasons) == {("redone", "too long"), ("dead", "too long")}
    (closed,) = desk.open_evaluations.close_finished(generators=True)
    assert closed.evaluation is not None
    assert (closed.evaluation.num_prompts, closed.evaluation.samples) == (1, 2)
    page = desk.exporter.render().decode()
    assert f'rollcast_groups_total{{outcome="defective",run="r"}} {2 * MAX_FAILURES}.0' in page
    assert 'rollcast_groups_total{outcome="dead",run="r"} 1.0' in page, (
        "of the evaluation; the other is counted above"
    )
    assert len(desk.queue.outstanding().finished) == 1


async def test_a_second_answer_to_a_group_in_training_is_a_duplicate() -> None:
    """Redis lost the group while it was trained on, or somebody wrote it twice."""
    desk = Desk()
    desk.dispatch("a", "b")
    (first, _) = await desk.answer(PolicyVersion(2, 6))
    desk.turn()
    taken = desk.intake.take([0, 1])
    desk.queue.retire([0])
    desk.turn()
    assert desk.outcomes == {}, "nobody asks again for what is being trained on"
    desk.queue.dispatch([first.task])
    await desk.answer(PolicyVersion(2, 6))
    desk.turn()
    assert desk.intake.ready == {}
    for delivery in taken:
        desk.ledger.settle(delivery.group.sequence)
    desk.intake.done_with([delivery.stream_id for delivery in taken])
    desk.turn()
    assert desk.intake.groups() == ()
    assert (
        'rollcast_groups_total{outcome="duplicate",run="r"} 1.0' in desk.exporter.render().decode()
    )
    assert len(desk.queue.outstanding().finished) == 0


async def test_an_answer_that_is_there_outlives_its_task_given_up_on_redis() -> None:
    """Redis forgot the answer of a generator that never heard of it, and the task died of three
    silent owners.
    """
    desk = Desk()
    desk.dispatch("a", "b")
    (first, second) = await desk.answer(PolicyVersion(2, 6))
    desk.turn()
    desk.intake.take([1])
    desk.queue.retire([0, 1])
    desk.queue.dispatch([first.task, second.task])
    for _ in range(MAX_FAILURES):
        await desk.generator.claim(
            train=2, evals=0, first_version=lambda: PolicyVersion(2, 6), block_seconds=0.0
        )
        desk.queue.sweep(0.0)
    desk.turn()
    assert desk.outcomes == {}
    assert desk.ledger.outstanding == {0: "a", 1: "b"}
    assert [group.ready for group in desk.intake.groups()] == [True, False]


async def test_each_answer_is_counted_once_with_what_it_can_teach() -> None:
    """Not one that is refused; wrong answers alone teach nothing."""
    desk = Desk()
    desk.dispatch("a", "b", "bad")
    await desk.answer(PolicyVersion(2, 6))
    desk.turn()
    desk.turn()
    page = desk.exporter.render().decode()
    assert 'rollcast_group_signals_total{run="r",signal="wrong"} 2.0' in page
    assert 'rollcast_group_signals_total{run="r",signal="usable"} 0.0' in page

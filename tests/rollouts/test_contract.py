"""What both ends of wire 1 promise, held against memory, Redis 6.2 and Redis 7 alike."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from rollcast.rollouts.base import Claimed, GeneratorQueue, Redispatch
from rollcast.rollouts.errors import OwnerFenced
from rollcast.rollouts.records import Purpose
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import VERSION, make_group, make_rollout, make_task
from tests.rollouts.conftest import Wire


async def claim(
    queue: GeneratorQueue, train: int = 8, evals: int = 0, version: PolicyVersion = VERSION
) -> list[Claimed]:
    return await queue.claim(
        train=train, evals=evals, first_version=lambda: version, block_seconds=0
    )


async def test_a_task_travels_to_a_generator_and_its_group_back(wire: Wire) -> None:
    trainer, generator = wire.trainer(), wire.generator("a")
    assert trainer.dispatch([make_task(5)]) == [5]
    (claimed,) = await claim(generator)
    assert (claimed.task.sequence, claimed.task.attempt, claimed.first_version) == (5, 0, VERSION)
    np.testing.assert_array_equal(claimed.task.prompt_token_ids, [1, 2, 5])
    group = make_group(claimed, "a", length=6)
    assert await generator.publish(claimed, group)
    (delivery,) = trainer.read(10, 0)
    assert delivery.group.generator == "a"
    np.testing.assert_array_equal(delivery.group.rollouts[1].logprobs, group.rollouts[1].logprobs)
    assert [item.num_bytes for item in trainer.outstanding().finished.values()] == [
        delivery.num_bytes
    ]
    trainer.remove([delivery.stream_id])
    assert trainer.outstanding().sequences == set()
    assert not trainer.outstanding().finished


async def test_the_snapshot_shows_where_every_task_is(wire: Wire) -> None:
    trainer, generator = wire.trainer(), wire.generator("a")
    trainer.dispatch([make_task(0)])
    (claimed,) = await claim(generator)
    await generator.publish(claimed, make_group(claimed, "a"))
    trainer.dispatch([make_task(1), make_task(2), make_task(3, Purpose.EVAL)])
    await claim(generator, train=1, version=PolicyVersion(1, 9))
    snapshot = trainer.outstanding()
    assert set(snapshot.finished) == {0}
    assert snapshot.finished[0].first_version == VERSION
    assert set(snapshot.claims) == {1}
    assert snapshot.claims[1].owner == "a"
    assert snapshot.claims[1].first_version == PolicyVersion(1, 9)
    assert set(snapshot.waiting) == {2, 3}
    assert {
        sequence for sequence, item in snapshot.waiting.items() if item.purpose is Purpose.EVAL
    } == {3}
    assert {snapshot.finished[0].purpose, snapshot.claims[1].purpose} == {Purpose.TRAIN}


async def test_dispatching_twice_adds_nothing_while_the_task_is_outstanding(wire: Wire) -> None:
    trainer, generator = wire.trainer(), wire.generator("a")
    trainer.dispatch([make_task(1)])
    assert trainer.dispatch([make_task(1), make_task(2)]) == [2]
    (first, second) = await claim(generator)
    assert trainer.dispatch([make_task(1)]) == []
    await generator.publish(first, make_group(first, "a"))
    assert trainer.dispatch([make_task(1)]) == []
    (delivery,) = trainer.read(10, 0)
    trainer.remove([delivery.stream_id])
    assert trainer.dispatch([make_task(1)]) == [1]
    assert second.task.sequence == 2


async def test_evaluations_are_claimed_apart(wire: Wire) -> None:
    trainer, generator = wire.trainer(), wire.generator("a")
    trainer.dispatch(
        [make_task(n) for n in range(3)] + [make_task(n, Purpose.EVAL) for n in range(3, 6)]
    )
    claimed = await claim(generator, train=1, evals=2)
    assert [(item.task.sequence, item.task.purpose) for item in claimed] == [
        (3, Purpose.EVAL),
        (4, Purpose.EVAL),
        (0, Purpose.TRAIN),
    ]
    assert await claim(generator, train=0, evals=0) == []


async def test_two_generators_never_get_one_task(wire: Wire) -> None:
    trainer, first, second = wire.trainer(), wire.generator("a"), wire.generator("b")
    trainer.dispatch([make_task(n) for n in range(6)])
    taken = [item.task.sequence for item in await claim(first, 4) + await claim(second, 4)]
    assert taken == list(range(6))


async def test_a_waiting_claim_wakes_when_a_task_comes(wire: Wire) -> None:
    trainer, generator = wire.trainer(), wire.generator("a")
    versions = [PolicyVersion(1, 3)]
    waiting = asyncio.ensure_future(
        generator.claim(train=1, evals=1, first_version=lambda: versions[-1], block_seconds=20)
    )
    await asyncio.sleep(0.1)
    versions.append(PolicyVersion(1, 4))
    await generator.wait_until_recorded()
    trainer.dispatch([make_task(1)])
    (claimed,) = await asyncio.wait_for(waiting, 10)
    assert claimed.first_version == PolicyVersion(1, 4), (
        "the version is that of the claim, not of the wait's start"
    )


async def test_a_claim_without_tasks_ends_in_time(wire: Wire) -> None:
    assert (
        await wire.generator("a").claim(
            train=1, evals=1, first_version=lambda: VERSION, block_seconds=0.05
        )
        == []
    )


async def test_three_failures_are_death_with_the_reason(wire: Wire) -> None:
    trainer, generator = wire.trainer(), wire.generator("a")
    trainer.dispatch([make_task(1)])
    for attempt in range(3):
        (claimed,) = await claim(generator)
        assert claimed.task.attempt == attempt
        assert await generator.fail(claimed, "the engine broke")
    assert await claim(generator) == []
    dead = trainer.outstanding().dead[1]
    assert (dead.attempt, dead.reason) == (3, "the engine broke")
    trainer.retire([1])
    assert trainer.outstanding().sequences == set()


async def test_handing_back_is_no_failure_and_keeps_the_rollouts(wire: Wire) -> None:
    trainer, first, second = wire.trainer(), wire.generator("a"), wire.generator("b")
    trainer.dispatch([make_task(1)])
    for hand_backs in range(5):
        queue = (first, second)[hand_backs % 2]
        (claimed,) = await claim(queue, version=PolicyVersion(1, 7 + hand_backs))
        assert (claimed.task.attempt, claimed.task.hand_backs) == (0, hand_backs)
        assert claimed.first_version == VERSION, "the first version stays that of the first token"
        claimed.task.rollouts = [make_rollout(0, 4 + hand_backs), make_rollout(1, 2, partial=True)]
        assert await queue.hand_back(claimed, claimed.task)
        assert trainer.outstanding().waiting[1].first_version == VERSION
    (claimed,) = await claim(second)
    assert [rollout.num_tokens for rollout in claimed.task.rollouts] == [8, 2]
    assert claimed.task.rollouts[1].partial


async def test_a_task_handed_back_without_a_token_has_no_first_version(wire: Wire) -> None:
    trainer, generator = wire.trainer(), wire.generator("a")
    trainer.dispatch([make_task(1)])
    (claimed,) = await claim(generator)
    await generator.hand_back(claimed, claimed.task)
    assert trainer.outstanding().waiting[1].first_version is None
    (again,) = await claim(generator, version=PolicyVersion(1, 30))
    assert again.first_version == PolicyVersion(1, 30)


async def test_an_owner_that_is_a_step_behind_makes_the_first_version_older(wire: Wire) -> None:
    """It may sample the first token of a rollout that the former owner had not begun."""
    trainer, first, second = wire.trainer(), wire.generator("ahead"), wire.generator("behind")
    trainer.dispatch([make_task(1)])
    (claimed,) = await claim(first, version=PolicyVersion(1, 7))
    claimed.task.rollouts = [make_rollout(0, 4)]
    assert await first.hand_back(claimed, claimed.task)
    (claimed,) = await claim(second, version=PolicyVersion(1, 6))
    assert claimed.first_version == PolicyVersion(1, 6)
    assert trainer.outstanding().claims[1].first_version == PolicyVersion(1, 6)


async def test_a_fenced_generator_is_refused_and_its_tasks_go_on(wire: Wire) -> None:
    trainer, lost, other = wire.trainer(), wire.generator("lost"), wire.generator("other")
    trainer.dispatch([make_task(1), make_task(2), make_task(3, Purpose.EVAL)])
    mine = await claim(lost, 2, 1)
    taken = trainer.fence("lost", "silent for 8 s")
    assert (sorted(taken.redone), taken.dead) == ([1, 2, 3], ())
    refused_before = trainer.count_refused()
    assert not await lost.publish(mine[1], make_group(mine[1], "lost"))
    assert not await lost.hand_back(mine[2], mine[2].task)
    assert not await lost.fail(mine[0], "late")
    assert trainer.count_refused() - refused_before == 3
    with pytest.raises(OwnerFenced, match="silent for 8 s"):
        await claim(lost)
    again = await claim(other, 2, 1)
    assert [(item.task.sequence, item.task.attempt) for item in again] == [(3, 1), (1, 1), (2, 1)]
    assert await other.publish(again[1], make_group(again[1], "other"))
    assert trainer.outstanding().finished[1].owner == "other"


async def test_a_task_that_loses_three_owners_is_dead(wire: Wire) -> None:
    trainer = wire.trainer()
    trainer.dispatch([make_task(1)])
    results = []
    for owner in ("a", "b", "c"):
        await claim(wire.generator(owner))
        results.append(trainer.fence(owner, f"{owner} was killed"))
    assert results == [Redispatch(redone=(1,)), Redispatch(redone=(1,)), Redispatch(dead=(1,))]
    assert trainer.outstanding().dead[1].reason == "c was killed"
    assert trainer.fence("nobody", "unknown") == Redispatch()


async def test_renewals_keep_claims_from_the_sweep(wire: Wire) -> None:
    trainer, generator = wire.trainer(), wire.generator("a")
    trainer.dispatch([make_task(1), make_task(2)])
    renewed, silent = await claim(generator)
    await asyncio.sleep(0.4)
    assert await generator.renew([renewed]) == []
    assert trainer.sweep(0.3) == Redispatch(redone=(2,))
    assert await generator.renew([renewed, silent]) == [2]
    assert await generator.publish(renewed, make_group(renewed, "a"))
    assert not await generator.publish(silent, make_group(silent, "a"))


async def test_a_renewal_never_steals_a_task(wire: Wire) -> None:
    trainer, first, second = wire.trainer(), wire.generator("a"), wire.generator("b")
    trainer.dispatch([make_task(1)])
    (old,) = await claim(first)
    trainer.redo([1], "overdue")
    (new,) = await claim(second)
    assert await first.renew([old]) == [1]
    assert trainer.outstanding().claims[1].owner == "b"
    assert await second.publish(new, make_group(new, "b"))


async def test_redo_takes_only_claimed_tasks(wire: Wire) -> None:
    trainer, generator = wire.trainer(), wire.generator("a")
    trainer.dispatch([make_task(n) for n in range(3)])
    published, _ = await claim(generator, 2)
    await generator.publish(published, make_group(published, "a"))
    assert trainer.redo([0, 1, 2, 99], "overdue") == Redispatch(redone=(1,))
    assert trainer.redo([], "overdue") == Redispatch()


@pytest.mark.parametrize("place", ["waiting", "claimed", "finished"])
async def test_retiring_takes_a_task_off_wherever_it_is(wire: Wire, place: str) -> None:
    trainer, generator = wire.trainer(), wire.generator("a")
    trainer.dispatch([make_task(1), make_task(2)])
    claimed = await claim(generator, 1) if place != "waiting" else []
    if place == "finished":
        await generator.publish(claimed[0], make_group(claimed[0], "a"))
    trainer.retire([1, 77])
    assert trainer.outstanding().sequences == {2}
    assert trainer.read(10, 0) == []
    if place == "claimed":
        assert not await generator.publish(claimed[0], make_group(claimed[0], "a"))
    assert [item.task.sequence for item in await claim(generator)] == [2]


async def test_publishing_twice_gives_one_group(wire: Wire) -> None:
    trainer, generator = wire.trainer(), wire.generator("a")
    trainer.dispatch([make_task(1)])
    (claimed,) = await claim(generator)
    group = make_group(claimed, "a")
    assert await generator.publish(claimed, group)
    assert await generator.publish(claimed, group), "a repeated call whose first reply was lost"
    assert len(trainer.read(10, 0)) == 1
    assert trainer.count_refused() == 0


async def test_a_restarted_trainer_reads_what_its_predecessor_did_not_remove(wire: Wire) -> None:
    trainer, generator = wire.trainer(), wire.generator("a")
    trainer.dispatch([make_task(n) for n in range(5)])
    for claimed in await claim(generator):
        await generator.publish(claimed, make_group(claimed, "a"))
    read = trainer.read(3, 0)
    trainer.remove([read[0].stream_id])
    successor = wire.trainer()
    assert successor.start_incarnation(1) == 1
    groups = [d.group.sequence for _ in range(4) for d in successor.read(2, 0)]
    assert groups == [1, 2, 3, 4]
    assert successor.read(10, 0) == []
    assert set(successor.outstanding().finished) == {1, 2, 3, 4}


async def test_groups_of_a_former_trainer_can_be_removed_unread(wire: Wire) -> None:
    trainer, generator = wire.trainer(), wire.generator("a")
    trainer.dispatch([make_task(1)])
    (claimed,) = await claim(generator)
    await generator.publish(claimed, make_group(claimed, "a"))
    stream_id = trainer.outstanding().finished[1].stream_id
    successor = wire.trainer()
    successor.remove([stream_id])
    assert successor.read(10, 0) == []
    assert successor.outstanding().sequences == set()


def test_incarnations_rise_and_never_fall_below_the_checkpoint(wire: Wire) -> None:
    trainer = wire.trainer()
    assert [
        trainer.start_incarnation(1),
        trainer.start_incarnation(1),
        wire.trainer().start_incarnation(7),
    ] == [
        1,
        2,
        7,
    ]
    assert wire.trainer().start_incarnation(3) == 8


def test_state_is_kept_with_the_run(wire: Wire) -> None:
    wire.trainer().set_state("next_sequence", b"\x00\xff12")
    assert wire.trainer().get_state("next_sequence") == b"\x00\xff12"
    assert wire.trainer().get_state("absent") is None


def test_many_tasks_are_dispatched_in_one_call(wire: Wire) -> None:
    trainer = wire.trainer()
    assert trainer.dispatch([make_task(n) for n in range(200)]) == list(range(200))
    assert trainer.outstanding().sequences == set(range(200))

"""Streams and records that somebody deleted, damaged or wrote by hand: nothing stays counted that
is not there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from rollcast.rollouts.base import Claimed
from rollcast.rollouts.codec import encode_task
from rollcast.rollouts.keys import GENERATORS, TRAINER, Keys
from rollcast.rollouts.records import Purpose
from rollcast.rollouts.redis_generator_queue import RedisGeneratorQueue
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import VERSION, make_group, make_task
from testkit.rollouts.servers import Server


@dataclass
class Bench:
    """A run with one task of each kind: 0 finished, 1 claimed, 2 waiting, 3 waiting
    for evaluation.
    """

    raw: Any
    """redis.Redis; its types know neither which answers are bytes nor what a mapping may hold."""
    keys: Keys
    trainer: RedisTrainerQueue
    generator: RedisGeneratorQueue
    claimed: Claimed
    other: Callable[[str], RedisGeneratorQueue]


async def claim(queue: RedisGeneratorQueue, train: int = 8, evals: int = 0) -> list[Claimed]:
    return await queue.claim(
        train=train, evals=evals, first_version=lambda: VERSION, block_seconds=0
    )


@pytest_asyncio.fixture
async def bench(redis_server: Server, run_name: str) -> AsyncIterator[Bench]:
    settings = redis_server.settings_of("generator")
    opened: list[RedisGeneratorQueue] = []

    def generator(owner: str) -> RedisGeneratorQueue:
        opened.append(queue := RedisGeneratorQueue(settings, run_name, owner))
        return queue

    trainer, first = (
        RedisTrainerQueue(redis_server.settings_of("trainer"), run_name),
        generator("a"),
    )
    trainer.dispatch([make_task(0), make_task(1), make_task(2), make_task(3, Purpose.EVAL)])
    finished, claimed = await claim(first, 2)
    await first.publish(finished, make_group(finished, "a"))
    with redis_server.client() as raw:
        yield Bench(raw, Keys(run_name), trainer, first, claimed, generator)
    trainer.close()
    for queue in opened:
        await queue.close()


def places(trainer: RedisTrainerQueue) -> tuple[set[int], set[int], set[int]]:
    snapshot = trainer.outstanding()
    return set(snapshot.waiting), set(snapshot.claims), set(snapshot.finished)


async def test_a_deleted_task_stream_is_made_again(bench: Bench) -> None:
    bench.raw.delete(bench.keys.tasks)
    assert places(bench.trainer) == ({3}, set(), {0})
    assert not await bench.generator.publish(bench.claimed, make_group(bench.claimed, "a"))
    assert bench.trainer.dispatch([make_task(n) for n in (0, 1, 2, 3)]) == [1, 2]
    assert [item.task.sequence for item in await claim(bench.other("b"))] == [1, 2]


async def test_a_generator_survives_the_loss_of_every_key(bench: Bench) -> None:
    bench.raw.delete(*bench.keys.all)
    assert await bench.generator.renew([bench.claimed]) == [1]
    assert not await bench.generator.hand_back(bench.claimed, bench.claimed.task)
    assert await claim(bench.generator) == []
    assert bench.trainer.read(10, 0) == []
    assert bench.trainer.outstanding().sequences == set()
    bench.trainer.dispatch([make_task(9)])
    assert [item.task.sequence for item in await claim(bench.generator)] == [9]


async def test_a_deleted_rollout_stream_is_made_again(bench: Bench) -> None:
    bench.trainer.read(10, 0)
    bench.raw.delete(bench.keys.rollouts)
    assert places(bench.trainer) == ({2, 3}, {1}, set())
    await bench.generator.publish(bench.claimed, make_group(bench.claimed, "a"))
    assert [delivery.group.sequence for delivery in bench.trainer.read(10, 0)] == [1]


async def test_the_index_is_made_again_from_the_streams(bench: Bench) -> None:
    """Of a claim without a record nobody knows the first version: it has to be claimed anew."""
    before = bench.trainer.outstanding()
    bench.raw.delete(bench.keys.inflight)
    assert places(bench.trainer) == ({1, 2, 3}, set(), {0})
    assert bench.trainer.outstanding().finished == before.finished
    assert bench.trainer.outstanding().waiting[1].attempt == 0
    assert bench.raw.hget(bench.keys.state, "rebuilt") == b"1"
    assert not await bench.generator.publish(bench.claimed, make_group(bench.claimed, "a"))


async def test_a_record_without_an_entry_is_dropped(bench: Bench) -> None:
    bench.raw.hset(bench.keys.inflight, "77", "waiting 0 train 1-1 -")
    bench.raw.hset(bench.keys.inflight, "78", "gibberish")
    assert bench.trainer.outstanding().sequences == {0, 1, 2, 3}


async def test_a_deleted_entry_of_a_claimed_task_is_dropped(bench: Bench) -> None:
    """Redis 6.2 and 7 treat such entries differently in XCLAIM, XAUTOCLAIM and XREADGROUP."""
    bench.raw.xdel(bench.keys.tasks, bench.claimed.stream_id)
    await bench.generator.renew([bench.claimed])
    assert places(bench.trainer) == ({2, 3}, set(), {0})
    assert bench.raw.xpending(bench.keys.tasks, GENERATORS)["pending"] == 0
    assert await bench.generator.renew([bench.claimed]) == [1]
    assert not await bench.generator.publish(bench.claimed, make_group(bench.claimed, "a"))


@pytest.mark.parametrize("take", ["fence", "sweep"])
async def test_taking_a_task_whose_entry_was_deleted(bench: Bench, take: str) -> None:
    bench.raw.xdel(bench.keys.tasks, bench.claimed.stream_id)
    taken = bench.trainer.fence("a", "killed") if take == "fence" else bench.trainer.sweep(0.0)
    assert (taken.redone, taken.dead) == ((), ())
    assert places(bench.trainer) == ({2, 3}, set(), {0})


async def test_a_deleted_entry_that_the_trainer_had_read_is_dropped(bench: Bench) -> None:
    (delivery,) = bench.trainer.read(10, 0)
    bench.raw.xdel(bench.keys.rollouts, delivery.stream_id)
    successor = bench.trainer
    assert places(successor) == ({2, 3}, {1}, set())
    successor.remove([delivery.stream_id])
    assert successor.read(10, 0) == []
    assert bench.raw.xpending(bench.keys.rollouts, TRAINER)["pending"] == 0


async def test_entries_of_a_deleted_consumer_are_claimed_anew(bench: Bench) -> None:
    bench.raw.xgroup_delconsumer(bench.keys.tasks, GENERATORS, "a")
    assert places(bench.trainer) == ({1, 2, 3}, set(), {0})
    assert sorted(item.task.sequence for item in await claim(bench.other("b"))) == [1, 2]


async def test_a_recreated_group_gives_the_tasks_out_again(bench: Bench) -> None:
    bench.raw.xgroup_destroy(bench.keys.tasks, GENERATORS)
    assert not await bench.generator.publish(bench.claimed, make_group(bench.claimed, "a"))
    assert places(bench.trainer) == ({1, 2, 3}, set(), {0})
    assert sorted(item.task.sequence for item in await claim(bench.other("b"))) == [1, 2]


async def test_foreign_entries_are_buried_and_counted(bench: Bench) -> None:
    good = {"s": "50", "a": "0", "p": "train", "v": "-"}
    bench.raw.xadd(bench.keys.tasks, {"hello": "world"})
    bench.raw.xadd(bench.keys.tasks, good | {"d": b"\xff\xff\xff"})
    bench.raw.xadd(bench.keys.tasks, good | {"d": encode_task(make_task(51))})
    bench.raw.xadd(
        bench.keys.tasks, good | {"p": "eval", "d": encode_task(make_task(50, Purpose.EVAL))}
    )
    bench.raw.xadd(bench.keys.rollouts, {"d": "x" * 100_000})
    bench.raw.xadd(bench.keys.rollouts, good | {"d": b"\x00", "o": "a", "t": "1-1"})
    assert [delivery.group.sequence for delivery in bench.trainer.read(10, 0)] == [0]
    assert [item.task.sequence for item in await claim(bench.generator)] == [2]
    assert bench.trainer.unreadable() == 6
    dead = bench.raw.xrange(bench.keys.dead)
    assert len(dead) == 6
    assert all(len(fields[b"d"]) <= 65_536 and fields[b"r"] for _, fields in dead)
    assert places(bench.trainer) == ({3}, {1, 2}, {0})


async def test_an_unreadable_group_returns_its_credit_as_dead(bench: Bench) -> None:
    (entry_id, fields), *_ = bench.raw.xrange(bench.keys.rollouts)
    bench.raw.xdel(bench.keys.rollouts, entry_id)
    damaged = bench.raw.xadd(bench.keys.rollouts, fields | {b"d": b"damaged"}).decode()
    bench.trainer.outstanding()
    bench.raw.hset(
        bench.keys.inflight, "0", f"finished 0 train {damaged} 1.7 7 a {fields[b't'].decode()}"
    )
    assert bench.trainer.read(10, 0) == []
    assert "unreadable group" in bench.trainer.outstanding().dead[0].reason
    bench.trainer.retire([0])
    assert bench.trainer.outstanding().sequences == {1, 2, 3}


async def test_renewals_do_not_count_as_deliveries(bench: Bench) -> None:
    for _ in range(5):
        assert await bench.generator.renew([bench.claimed]) == []
    (row,) = bench.raw.xpending_range(bench.keys.tasks, GENERATORS, "-", "+", 10)
    assert row["times_delivered"] == 1


async def test_a_claim_whose_reply_was_lost_is_found_again(bench: Bench) -> None:
    """What the server did for a client that never heard of it, done here by a second client of the
    same name.
    """
    await claim(bench.other("a"), 1)
    assert places(bench.trainer) == ({3}, {1, 2}, {0})
    later = PolicyVersion(1, 20)
    (found,) = await bench.generator.claim(
        train=1, evals=0, first_version=lambda: later, block_seconds=0
    )
    assert (found.task.sequence, found.first_version) == (2, later)
    assert bench.trainer.outstanding().claims[2].first_version == later
    assert await claim(bench.generator) == []
    assert await bench.generator.publish(found, make_group(found, "a"))


async def test_a_read_whose_reply_was_lost_is_found_again(bench: Bench) -> None:
    bench.trainer.read(10, 0)
    await bench.generator.publish(bench.claimed, make_group(bench.claimed, "a"))
    bench.raw.xreadgroup(TRAINER, TRAINER, {bench.keys.rollouts: ">"}, count=10)
    read = [delivery.group.sequence for _ in range(3) for delivery in bench.trainer.read(10, 0)]
    assert read == [1]


async def test_fenced_consumers_leave_nothing_in_the_group(bench: Bench) -> None:
    bench.trainer.fence("a", "killed")
    assert bench.raw.xinfo_consumers(bench.keys.tasks, GENERATORS) == []
    assert bench.raw.xlen(bench.keys.tasks) == 2


async def test_a_settled_run_leaves_no_entry_behind(bench: Bench) -> None:
    await bench.generator.publish(bench.claimed, make_group(bench.claimed, "a"))
    bench.trainer.retire([2, 3])
    bench.trainer.remove([delivery.stream_id for delivery in bench.trainer.read(10, 0)])
    for stream in (bench.keys.tasks, bench.keys.evals, bench.keys.rollouts):
        assert bench.raw.xlen(stream) == 0
    assert bench.raw.hlen(bench.keys.inflight) == 0

"""Whatever somebody writes into the streams or into :inflight: nothing raises, every good task is
answered.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rollcast.config.errors import UserError
from rollcast.connections.redis import connect
from rollcast.rollouts.index import outstanding
from rollcast.rollouts.keys import Keys
from rollcast.rollouts.redis_generator_queue import RedisGeneratorQueue
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from testkit.rollouts.examples import make_group, make_task
from testkit.rollouts.servers import Server
from tests.rollouts.hostile_entries import (
    ALMOST_LAST_ID,
    LAST_ID,
    STREAMS,
    TASKS,
    THE_ONE_THAT_ENDED_A_RUN,
    Bench,
    Entry,
    Record,
    hostile_items,
    junk,
    new_run,
    records,
)


@given(hostile_items, st.booleans())
@example([THE_ONE_THAT_ENDED_A_RUN], True)
@example([THE_ONE_THAT_ENDED_A_RUN], False)
@example([Entry(stream, [(b"junk", b"1")], LAST_ID) for stream in STREAMS], True)
@example([Entry(stream, [(b"junk", b"1")], LAST_ID) for stream in STREAMS], False)
@example([Entry(stream, [(b"junk", b"1")], ALMOST_LAST_ID) for stream in STREAMS], True)
@example([Entry(stream, [(b"junk", b"1")] * 5000, LAST_ID) for stream in STREAMS], False)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_nothing_that_is_written_ends_a_run_or_costs_a_good_task(
    redis_server: Server, hostile: list[Entry | Record], claim_first: bool
) -> None:
    asyncio.run(Bench(redis_server).work(hostile, claim_first=claim_first))


def test_each_bad_entry_is_buried_with_its_reason_and_counted(redis_server: Server) -> None:
    run = new_run()
    trainer, keys = RedisTrainerQueue(redis_server.settings_of("trainer"), run), Keys(run)
    trainer.dispatch(TASKS)
    good = dict(THE_ONE_THAT_ENDED_A_RUN.fields) | {b"v": b"1.7"}
    damaged = [
        {b"v": b"garbage"},
        {b"v": b"-"},
        {b"s": b"1e3"},
        {b"s": b"9" * 400},
        {b"a": b"-1"},
        {b"p": b"test"},
        {b"o": b"two words"},
        {b"o": b"a\nb"},
        {b"t": b"yesterday"},
        {b"s": b"2"},  # waits to be claimed
    ]
    with redis_server.client() as raw:
        for change in damaged:
            raw.xadd(keys.rollouts, good | change)
        raw.hset(keys.inflight, "2", "waiting 0 train 1-1 soon")
        raw.hset(keys.inflight, "77", "gibberish")
        raw.hset(keys.inflight, "x", "dead 0 train 1-1 of nothing")
        assert trainer.outstanding().sequences == {0, 1, 2, 3}
        assert trainer.read(100, 0) == []
        buried = raw.xrange(keys.dead)
    assert trainer.unreadable() == len(buried) == len(damaged) + 3
    assert all(fields[b"r"] and len(fields[b"s"]) <= 64 for _, fields in buried)
    trainer.close()


@pytest.mark.parametrize("text", ["junk", "-1", "1.5", "9223372036854775807", ""])
def test_a_counter_that_is_no_number_counts_as_nothing(redis_server: Server, text: str) -> None:
    run = new_run()
    trainer, keys = RedisTrainerQueue(redis_server.settings_of("trainer"), run), Keys(run)
    with redis_server.client() as raw:
        raw.hset(keys.state, mapping=dict.fromkeys(["refused", "unreadable", "rebuilt"], text))
        assert (trainer.count_refused(), trainer.unreadable()) == (0, 0)
        raw.xadd(keys.tasks, {"junk": "1"})
        trainer.dispatch(TASKS)
    assert (trainer.count_refused(), trainer.unreadable()) == (0, 1)
    trainer.close()


@pytest.mark.parametrize("text", ["junk", "-1", "1e3", "999999999", ""])
def test_a_damaged_incarnation_is_told_in_a_sentence(redis_server: Server, text: str) -> None:
    run = new_run()
    trainer, keys = RedisTrainerQueue(redis_server.settings_of("trainer"), run), Keys(run)
    with redis_server.client() as raw:
        raw.hset(keys.state, "incarnation", text)
        with pytest.raises(
            UserError, match=f"incarnation in .* is b'{text}', not a number; set it"
        ):
            trainer.start_incarnation(1)
        raw.hset(keys.state, "incarnation", "4")
    assert trainer.start_incarnation(1) == 5
    trainer.close()


@pytest.mark.parametrize("name", ["tasks", "evals", "rollouts", "inflight", "state"])
async def test_a_key_of_another_type_is_told_in_a_sentence(redis_server: Server, name: str) -> None:
    run = new_run()
    keys, settings = Keys(run), redis_server.settings_of("generator")
    trainer = RedisTrainerQueue(redis_server.settings_of("trainer"), run)
    generator = RedisGeneratorQueue(settings, run, "a")
    trainer.dispatch(TASKS)
    key = getattr(keys, name)
    with connect(settings) as stolen:
        stolen.delete(key)
        if name in ("inflight", "state"):
            stolen.xadd(key, {"a": "b"})
        else:
            stolen.hset(key, "a", "b")
    with pytest.raises(
        UserError, match=r"redis: .* replaced a key of the run .* delete it \(DEL\)"
    ):
        trainer.count_refused() if name == "state" else trainer.outstanding()
    if name != "rollouts":
        with pytest.raises(UserError, match="replaced a key of the run"):
            await Bench.claim(generator)
    with redis_server.client() as raw:
        raw.delete(key)
    trainer.dispatch(TASKS)
    assert trainer.outstanding().sequences == {task.sequence for task in TASKS}
    trainer.close()
    await generator.close()


async def test_a_group_is_its_owners(redis_server: Server) -> None:
    """A copy of a good group under another id, and one whose fields say something else than it
    does.
    """
    run = new_run()
    trainer, keys = RedisTrainerQueue(redis_server.settings_of("trainer"), run), Keys(run)
    generator = RedisGeneratorQueue(redis_server.settings_of("generator"), run, "a")
    trainer.dispatch(TASKS)
    (first, second, *_) = await Bench.claim(generator)
    await generator.publish(first, make_group(first, "a"))
    await generator.publish(second, make_group(second, "somebody else"))
    with redis_server.client() as raw:
        (entry_id, fields), *_ = raw.xrange(keys.rollouts)
        raw.xadd(keys.rollouts, fields)
        assert [delivery.stream_id for delivery in trainer.read(100, 0)] == [entry_id.decode()]
        reasons = {fields[b"r"].decode() for _, fields in raw.xrange(keys.dead)}
    assert reasons == {
        "another entry has its task",
        "unreadable group: the entry's field o is not the group's",
    }
    assert trainer.outstanding().dead.keys() == {second.task.sequence}
    assert trainer.unreadable() == 2
    trainer.close()
    await generator.close()


@pytest.mark.parametrize(
    "text", ["waiting 0 train 1-1 -", "claimed 2 eval 1-1 1.7 1.000000 a", "dead 3 train 1-1 "]
)
def test_a_record_in_the_right_form_is_read(text: str) -> None:
    found, damaged = outstanding([(b"5", text.encode())])
    assert found.sequences == {5}
    assert damaged == []


@given(junk, st.one_of(st.binary(max_size=60), records.map(lambda record: record.text)))
def test_no_record_raises(sequence: bytes, text: bytes) -> None:
    found, damaged = outstanding([(sequence, text)])
    assert len(found.sequences) + len(damaged) == 1


async def test_an_entry_under_the_last_id_takes_no_task_from_its_owner(
    redis_server: Server,
) -> None:
    """Owners, how long they were silent, and what is already delivered survive; nothing else is
    numbered anew.
    """
    run = new_run()
    trainer, keys = RedisTrainerQueue(redis_server.settings_of("trainer"), run), Keys(run)
    first, second = (
        RedisGeneratorQueue(redis_server.settings_of("generator"), run, owner)
        for owner in ("a", "b")
    )
    trainer.dispatch(TASKS[:2])
    claimed = await Bench.claim(first)
    trainer.dispatch(TASKS[2:3])
    await asyncio.sleep(0.2)
    with redis_server.client() as raw:
        raw.xadd(keys.tasks, {"junk": "1"}, id=LAST_ID)
        trainer.dispatch([make_task(8)])
        assert len(raw.xpending_range(keys.tasks, "generators", "-", "+", 9, "a", idle=200)) == 2
        assert [item.task.sequence for item in await Bench.claim(second)] == [2, 8]
        assert trainer.outstanding().claims.keys() == {0, 1, 2, 8}
        assert await first.renew(claimed) == []
        raw.xadd(keys.rollouts, {"junk": "1"}, id=LAST_ID)
        assert trainer.read(9, 0) == []
        assert await first.publish(claimed[0], make_group(claimed[0], "a")), (
            "behind an id that was deleted"
        )
        assert [delivery.group.sequence for delivery in trainer.read(9, 0)] == [0]
        assert await first.publish(claimed[1], make_group(claimed[1], "a"))
        assert [delivery.group.sequence for delivery in trainer.read(9, 0)] == [1]
        assert not raw.keys("*:exhausted")
    assert trainer.unreadable() == 2
    trainer.close()
    await first.close()
    await second.close()

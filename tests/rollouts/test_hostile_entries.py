"""Whatever somebody writes into the streams or into :inflight: nothing raises, every good task is answered."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
import redis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rollcast.config.errors import UserError
from rollcast.rollouts.base import Claimed
from rollcast.rollouts.codec import encode_group, encode_task
from rollcast.rollouts.index import outstanding
from rollcast.rollouts.keys import Keys
from rollcast.rollouts.records import Purpose
from rollcast.rollouts.redis_streams import RedisGeneratorQueue, RedisTrainerQueue
from testkit.rollouts.examples import VERSION, make_group, make_task
from testkit.rollouts.servers import Server

_runs = itertools.count()
TASKS = [make_task(0), make_task(1), make_task(2), make_task(3, Purpose.EVAL)]
"""Finished, claimed, waiting, waiting: see `Bench`."""
PAYLOADS = [encode_task(task) for task in TASKS]
PAYLOADS += [encode_group(make_group(Claimed(task, "1-0", VERSION), owner)) for task in TASKS for owner in ("a", "b")]

counts = st.sampled_from(
    ["0", "1", "2", "3", "50", "007", "-1", "+1", "1.5", "1e3", "0x10", " 1", "١", "999999999999", "9" * 19, "9" * 400]
)
versions = st.sampled_from(["-", "1.7", "1.99", "0.0", "1.", "1.7.7", "garbage", "9999999999.1", "1." + "9" * 30])
ids = st.sampled_from(["0-1", "1-1", "1", "x-y", "9" * 20 + "-1", "18446744073709551615-18446744073709551615"])
owners = st.sampled_from(["a", "b", "nobody", "two words", "a\nb", "", "\x00", "\u2003", "o" * 1000])
words = st.one_of(counts, versions, ids, owners, st.sampled_from(["train", "eval", "TRAIN"])).map(str.encode)
junk = st.one_of(words, st.binary(max_size=40))
FIELDS = {
    "s": counts.map(str.encode),
    "a": counts.map(str.encode),
    "p": st.sampled_from([b"train", b"eval", b"TRAIN"]),
    "v": versions.map(str.encode),
    "o": owners.map(str.encode),
    "t": ids.map(str.encode),
    "d": st.sampled_from([*PAYLOADS, b"", b"junk"]),
}


@dataclass(frozen=True)
class Entry:
    stream: str
    fields: list[tuple[bytes, bytes]]
    id: str = "*"


@dataclass(frozen=True)
class Record:
    sequence: bytes
    text: bytes

    @property
    def says_dead(self) -> bool:
        return self.text.startswith(b"dead ")


LAST_ID = "18446744073709551615-18446744073709551615"
"""Redis gives out no id after it."""
STREAMS = ["tasks", "evals", "rollouts", "dead"]
ALMOST_LAST_ID = "18446744073709551615-18446744073709551613"
entry_ids = st.sampled_from(["*", "*", "*", "9999999999999-5", ALMOST_LAST_ID, LAST_ID])


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Mostly in the right form, with a field or two damaged, left out, or given twice."""
    fields = [(name.encode(), draw(values)) for name, values in FIELDS.items() if draw(st.integers(0, 9))]
    fields += draw(st.lists(st.tuples(st.sampled_from([*(n.encode() for n in FIELDS), b"zz"]), junk), max_size=2))
    stream = draw(st.sampled_from(STREAMS))
    return Entry(stream, fields or [(b"hello", b"world")], draw(entry_ids))


states = st.sampled_from([b"waiting", b"claimed", b"finished", b"dead", b"lost"])
records = st.builds(
    Record,
    st.one_of(counts.map(str.encode), junk),
    st.one_of(junk, st.builds(lambda state, rest: b" ".join([state, *rest]), states, st.lists(words, max_size=8))),
)
THE_ONE_THAT_ENDED_A_RUN = Entry(
    "rollouts",
    list(
        {
            b"s": b"999999999999",
            b"a": b"0",
            b"p": b"train",
            b"v": b"garbage",
            b"o": b"x",
            b"t": b"0-1",
            b"d": b"?",
        }.items()
    ),
)


@dataclass
class Bench:
    """One run: task 0 is finished, 1 claimed by `a`, 2 and 3 wait."""

    server: Server
    run: str = field(default_factory=lambda: f"hostile-{next(_runs)}")
    answered: set[int] = field(default_factory=set)

    async def work(self, hostile: list[Entry | Record], *, claim_first: bool) -> None:
        trainer = RedisTrainerQueue(self.server.settings, self.run)
        first, second = (RedisGeneratorQueue(self.server.settings, self.run, owner) for owner in ("a", "b"))
        try:
            trainer.dispatch(TASKS[:2])
            finished, claimed = await self.claim(first)
            assert await first.publish(finished, make_group(finished, "a"))
            trainer.dispatch(TASKS[2:])
            with self.server.client() as raw:
                for item in hostile:
                    self.throw(raw, item)
            if claim_first:
                await self.publish(second)
            await first.renew([claimed])
            await first.publish(claimed, make_group(claimed, "a"))
            planted = {int(item.sequence) for item in hostile if isinstance(item, Record) and is_planted(item)}
            for _ in range(6):
                self.turn(trainer, planted)
                await self.publish(second)
                trainer.close()
                trainer = RedisTrainerQueue(self.server.settings, self.run)
            assert self.answered == {task.sequence for task in TASKS}
            trainer.fence("a", "away")
            trainer.sweep(0.0)
            trainer.redo(range(60), "overdue")
            trainer.retire(sorted(trainer.outstanding().sequences))
            trainer.read(100, 0)
            assert trainer.outstanding().sequences == set()
        finally:
            trainer.close()
            await first.close()
            await second.close()

    @staticmethod
    async def claim(queue: RedisGeneratorQueue) -> list[Claimed]:
        return await queue.claim(train=99, evals=99, first_version=lambda: VERSION, block_seconds=0)

    async def publish(self, queue: RedisGeneratorQueue) -> None:
        for claimed in await self.claim(queue):
            await queue.publish(claimed, make_group(claimed, queue.owner))

    def throw(self, raw: redis.Redis, item: Entry | Record) -> None:
        keys = Keys(self.run)
        if isinstance(item, Record):
            raw.hset(keys.inflight, item.sequence, item.text)
        else:
            with suppress(redis.ResponseError):  # an id below one that was thrown before
                raw.execute_command("XADD", getattr(keys, item.stream), item.id, *itertools.chain(*item.fields))

    def turn(self, trainer: RedisTrainerQueue, planted: set[int]) -> None:
        """One of the trainer's: read, remove, bury what is dead, dispatch what is nowhere."""
        deliveries = trainer.read(100, 0)
        for delivery in deliveries:
            if delivery.group.sequence < len(TASKS):
                assert delivery.group.prompt_id == TASKS[delivery.group.sequence].prompt_id
                self.answered.add(delivery.group.sequence)
        trainer.remove([delivery.stream_id for delivery in deliveries])
        snapshot = trainer.outstanding()
        good = {task.sequence for task in TASKS} - self.answered
        assert not good & snapshot.dead.keys() - planted, "a good task was buried with a bad entry"
        trainer.retire(list(snapshot.dead))
        missing = good - trainer.outstanding().sequences
        trainer.dispatch([TASKS[sequence] for sequence in sorted(missing)])
        assert trainer.unreadable() >= 0


def is_planted(item: Record) -> bool:
    return item.says_dead and item.sequence.isdigit()


@given(st.lists(st.one_of(entries(), records), min_size=1, max_size=5), st.booleans())
@example([THE_ONE_THAT_ENDED_A_RUN], True)
@example([THE_ONE_THAT_ENDED_A_RUN], False)
@example([Entry(stream, [(b"junk", b"1")], LAST_ID) for stream in STREAMS], True)
@example([Entry(stream, [(b"junk", b"1")], LAST_ID) for stream in STREAMS], False)
@example([Entry(stream, [(b"junk", b"1")], ALMOST_LAST_ID) for stream in STREAMS], True)
@example([Entry(stream, [(b"junk", b"1")] * 5000, LAST_ID) for stream in STREAMS], False)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_nothing_that_is_written_ends_a_run_or_costs_a_good_task(
    redis_server: Server, hostile: list[Entry | Record], claim_first: bool
) -> None:
    asyncio.run(Bench(redis_server).work(hostile, claim_first=claim_first))


def test_each_bad_entry_is_buried_with_its_reason_and_counted(redis_server: Server) -> None:
    run = f"hostile-{next(_runs)}"
    trainer, keys = RedisTrainerQueue(redis_server.settings, run), Keys(run)
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
    run = f"hostile-{next(_runs)}"
    trainer, keys = RedisTrainerQueue(redis_server.settings, run), Keys(run)
    with redis_server.client() as raw:
        raw.hset(keys.state, mapping=dict.fromkeys(["refused", "unreadable", "rebuilt"], text))
        assert (trainer.refused(), trainer.unreadable()) == (0, 0)
        raw.xadd(keys.tasks, {"junk": "1"})
        trainer.dispatch(TASKS)
    assert (trainer.refused(), trainer.unreadable()) == (0, 1)
    trainer.close()


@pytest.mark.parametrize("text", ["junk", "-1", "1e3", "999999999", ""])
def test_a_damaged_incarnation_is_told_in_a_sentence(redis_server: Server, text: str) -> None:
    run = f"hostile-{next(_runs)}"
    trainer, keys = RedisTrainerQueue(redis_server.settings, run), Keys(run)
    with redis_server.client() as raw:
        raw.hset(keys.state, "incarnation", text)
        with pytest.raises(UserError, match=f"incarnation in .* is b'{text}', not a number; set it"):
            trainer.start_incarnation(1)
        raw.hset(keys.state, "incarnation", "4")
    assert trainer.start_incarnation(1) == 5
    trainer.close()


async def test_a_group_is_its_owners(redis_server: Server) -> None:
    """A copy of a good group under another id, and one whose fields say something else than it does."""
    run = f"hostile-{next(_runs)}"
    trainer, keys = RedisTrainerQueue(redis_server.settings, run), Keys(run)
    generator = RedisGeneratorQueue(redis_server.settings, run, "a")
    trainer.dispatch(TASKS)
    (first, second, *_) = await Bench.claim(generator)
    await generator.publish(first, make_group(first, "a"))
    await generator.publish(second, make_group(second, "somebody else"))
    with redis_server.client() as raw:
        (entry_id, fields), *_ = raw.xrange(keys.rollouts)
        raw.xadd(keys.rollouts, fields)
        assert [delivery.stream_id for delivery in trainer.read(100, 0)] == [entry_id.decode()]
        reasons = {fields[b"r"].decode() for _, fields in raw.xrange(keys.dead)}
    assert reasons == {"another entry has its task", "unreadable group: the entry's field o is not the group's"}
    assert trainer.outstanding().dead.keys() == {second.task.sequence}
    assert trainer.unreadable() == 2
    trainer.close()
    await generator.close()


@pytest.mark.parametrize("text", ["waiting 0 train 1-1 -", "claimed 2 eval 1-1 1.7 1.000000 a", "dead 3 train 1-1 "])
def test_a_record_in_the_right_form_is_read(text: str) -> None:
    found, damaged = outstanding([(b"5", text.encode())])
    assert found.sequences == {5}
    assert damaged == []


@given(junk, st.one_of(st.binary(max_size=60), records.map(lambda record: record.text)))
def test_no_record_raises(sequence: bytes, text: bytes) -> None:
    found, damaged = outstanding([(sequence, text)])
    assert len(found.sequences) + len(damaged) == 1


async def test_an_entry_under_the_last_id_takes_no_task_from_its_owner(redis_server: Server) -> None:
    """Owners, how long they were silent, and what is already delivered survive; nothing else is numbered anew."""
    run = f"hostile-{next(_runs)}"
    trainer, keys = RedisTrainerQueue(redis_server.settings, run), Keys(run)
    first, second = (RedisGeneratorQueue(redis_server.settings, run, owner) for owner in ("a", "b"))
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
        assert await first.publish(claimed[0], make_group(claimed[0], "a")), "behind an id that was deleted"
        assert [delivery.group.sequence for delivery in trainer.read(9, 0)] == [0]
        assert await first.publish(claimed[1], make_group(claimed[1], "a"))
        assert [delivery.group.sequence for delivery in trainer.read(9, 0)] == [1]
        assert not raw.keys("*:exhausted")
    assert trainer.unreadable() == 2
    trainer.close()
    await first.close()
    await second.close()

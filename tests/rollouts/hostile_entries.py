"""Entries of streams and records of :inflight as someone hostile writes them who has a generator's
password, and a run that meets them.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass, field

import redis
from hypothesis import strategies as st

from rollcast.connections.redis import connect
from rollcast.rollouts.base import Claimed
from rollcast.rollouts.codec import encode_group, encode_task
from rollcast.rollouts.keys import Keys
from rollcast.rollouts.records import Purpose
from rollcast.rollouts.redis_generator_queue import RedisGeneratorQueue
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from testkit.rollouts.examples import VERSION, make_group, make_task
from testkit.rollouts.servers import Server

_runs = itertools.count()


def new_run() -> str:
    """The name of a run that no other test of this process has."""
    return f"hostile-{next(_runs)}"


TASKS = [make_task(0), make_task(1), make_task(2), make_task(3, Purpose.EVAL)]
"""Finished, claimed, waiting, waiting: see `Bench`."""
PAYLOADS = [encode_task(task) for task in TASKS]
PAYLOADS += [
    encode_group(make_group(Claimed(task, "1-0", VERSION), owner))
    for task in TASKS
    for owner in ("a", "b")
]

counts = st.sampled_from(
    [
        "0",
        "1",
        "2",
        "3",
        "50",
        "007",
        "-1",
        "+1",
        "1.5",
        "1e3",
        "0x10",
        " 1",
        "١",
        "999999999999",
        "9" * 19,
        "9" * 400,
    ]
)
versions = st.sampled_from(
    ["-", "1.7", "1.99", "0.0", "1.", "1.7.7", "garbage", "9999999999.1", "1." + "9" * 30]
)
ids = st.sampled_from(
    ["0-1", "1-1", "1", "x-y", "9" * 20 + "-1", "18446744073709551615-18446744073709551615"]
)
owners = st.sampled_from(
    ["a", "b", "nobody", "two words", "a\nb", "", "\x00", "\u2003", "o" * 1000]
)
words = st.one_of(counts, versions, ids, owners, st.sampled_from(["train", "eval", "TRAIN"])).map(
    str.encode
)
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
    fields = [
        (name.encode(), draw(values)) for name, values in FIELDS.items() if draw(st.integers(0, 9))
    ]
    fields += draw(
        st.lists(
            st.tuples(st.sampled_from([*(n.encode() for n in FIELDS), b"zz"]), junk), max_size=2
        )
    )
    stream = draw(st.sampled_from(STREAMS))
    return Entry(stream, fields or [(b"hello", b"world")], draw(entry_ids))


states = st.sampled_from([b"waiting", b"claimed", b"finished", b"dead", b"lost"])
records = st.builds(
    Record,
    st.one_of(counts.map(str.encode), junk),
    st.one_of(
        junk,
        st.builds(
            lambda state, rest: b" ".join([state, *rest]), states, st.lists(words, max_size=8)
        ),
    ),
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
    run: str = field(default_factory=new_run)
    answered: set[int] = field(default_factory=set)

    async def work(self, hostile: list[Entry | Record], *, claim_first: bool) -> None:
        trainer = RedisTrainerQueue(self.server.settings_of("trainer"), self.run)
        first, second = (
            RedisGeneratorQueue(self.server.settings_of("generator"), self.run, owner)
            for owner in ("a", "b")
        )
        try:
            trainer.dispatch(TASKS[:2])
            finished, claimed = await self.claim(first)
            assert await first.publish(finished, make_group(finished, "a"))
            trainer.dispatch(TASKS[2:])
            with connect(self.server.settings_of("generator")) as raw:
                for item in hostile:
                    self.throw(raw, item)
            if claim_first:
                await self.publish(second)
            await first.renew([claimed])
            await first.publish(claimed, make_group(claimed, "a"))
            planted = {
                int(item.sequence)
                for item in hostile
                if isinstance(item, Record) and is_planted(item)
            }
            for _ in range(6):
                self.turn(trainer, planted)
                await self.publish(second)
                trainer.close()
                trainer = RedisTrainerQueue(self.server.settings_of("trainer"), self.run)
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
                raw.execute_command(
                    "XADD", getattr(keys, item.stream), item.id, *itertools.chain(*item.fields)
                )

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


hostile_items = st.lists(st.one_of(entries(), records), min_size=1, max_size=5)

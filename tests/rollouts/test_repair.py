"""An operator's look at a queue and repairs of single tasks, with real ends of wire 1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from rollcast.config.connections import Redis as RedisSettings
from rollcast.rollouts.base import MAX_FAILURES, Claimed
from rollcast.rollouts.keys import Keys
from rollcast.rollouts.records import Purpose
from rollcast.rollouts.redis_generator_queue import RedisGeneratorQueue
from rollcast.rollouts.redis_operator_queue import Action, RedisOperatorQueue, Repair
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from testkit.rollouts.examples import VERSION, make_group, make_task
from testkit.rollouts.servers import Server


@dataclass
class Ends:
    """Both ends of one run and its operator."""

    settings: RedisSettings
    run: str
    generators: list[RedisGeneratorQueue] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.trainer = RedisTrainerQueue(self.settings, self.run)
        self.operator = RedisOperatorQueue(self.settings, self.run)

    def generator(self, owner: str = "a") -> RedisGeneratorQueue:
        self.generators.append(queue := RedisGeneratorQueue(self.settings, self.run, owner))
        return queue

    def repair(self, action: Action, task: int, min_idle_seconds: float = 0.0) -> Repair:
        return self.operator.repair(action, task, "why", min_idle_seconds=min_idle_seconds)

    def states(self) -> dict[int, str]:
        outstanding = self.trainer.outstanding()
        return {
            **dict.fromkeys(outstanding.waiting, "waiting"),
            **dict.fromkeys(outstanding.claims, "claimed"),
            **dict.fromkeys(outstanding.finished, "finished"),
            **dict.fromkeys(outstanding.dead, "dead"),
        }

    async def close(self) -> None:
        self.trainer.close()
        self.operator.close()
        for generator in self.generators:
            await generator.close()


async def claim(queue: RedisGeneratorQueue, train: int = 8, evals: int = 0) -> list[Claimed]:
    return await queue.claim(
        train=train, evals=evals, first_version=lambda: VERSION, block_seconds=0
    )


@pytest_asyncio.fixture
async def ends(redis_server: Server, run_name: str) -> AsyncIterator[Ends]:
    made = Ends(redis_server.settings, f"repair-{run_name}")
    yield made
    await made.close()


async def test_a_look_shows_every_state_and_changes_nothing(
    ends: Ends, redis_server: Server
) -> None:
    keys = Keys(ends.run)
    with redis_server.client() as client:
        assert ends.operator.look(9).dead_entries == ()
        assert client.exists(*keys.all) == 0, "a run that is not there gets no stream"
        generator = ends.generator()
        ends.trainer.dispatch([make_task(n) for n in range(3)] + [make_task(3, Purpose.EVAL)])
        claimed = await claim(generator, train=3, evals=1)
        by_task = {item.task.sequence: item for item in claimed}
        assert await generator.publish(by_task[0], make_group(by_task[0], "a"))
        ends.trainer.dispatch([make_task(4)])
        ends.repair("bury", 1)
        before = {key: client.dump(key) for key in (keys.inflight, keys.dead, keys.state)}
        view = ends.operator.look(9)
        assert before == {key: client.dump(key) for key in before}
    assert set(view.outstanding.waiting) == {4}
    assert set(view.outstanding.finished) == {0}
    assert set(view.outstanding.dead) == {1}
    claims = view.outstanding.claims
    assert {task: item.owner for task, item in claims.items()} == {2: "a", 3: "a"}
    # Entries of the two streams often have one id: both were added within a millisecond.
    assert view.idle_seconds.keys() == {(item.purpose, item.stream_id) for item in claims.values()}
    assert all(0 <= seconds < 60 for seconds in view.idle_seconds.values())
    assert [(entry.task, entry.reason) for entry in view.dead_entries] == [("1", "why")]


async def test_a_claimed_task_waits_again_without_a_failure_and_its_owner_has_lost_it(
    ends: Ends,
) -> None:
    ends.trainer.dispatch([make_task(5)])
    first, second = ends.generator("a"), ends.generator("b")
    (lost,) = await claim(first)
    assert ends.repair("requeue", 5).is_done
    assert ends.states() == {5: "waiting"}
    (again,) = await claim(second)
    assert again.task.attempt == 0
    assert await first.renew([lost]) == [5]
    assert not await first.publish(lost, make_group(lost, "a"))
    assert await second.publish(again, make_group(again, "b"))
    (delivery,) = ends.trainer.read(9, 0)
    assert delivery.group.generator == "b"


async def test_a_claim_that_its_generator_renews_is_left_alone(ends: Ends) -> None:
    ends.trainer.dispatch([make_task(5)])
    generator = ends.generator()
    (claimed,) = await claim(generator)
    for action in ("requeue", "bury"):
        await asyncio.sleep(0.2)
        assert await generator.renew([claimed]) == []
        refused = ends.repair(action, 5, min_idle_seconds=0.2)
        assert not refused.is_done
        assert (refused.state, refused.owner) == ("claimed", "a")
        assert refused.idle_seconds < 0.2
    assert ends.states() == {5: "claimed"}
    await asyncio.sleep(0.3)  # as after the generator was killed
    assert ends.repair("requeue", 5, min_idle_seconds=0.2).is_done


@pytest.mark.parametrize("is_claimed", [False, True])
async def test_a_buried_task_is_given_up_whatever_its_failures(
    ends: Ends, is_claimed: bool
) -> None:
    ends.trainer.dispatch([make_task(5)])
    generator = ends.generator()
    claimed = await claim(generator) if is_claimed else []
    assert ends.repair("bury", 5).is_done
    dead = ends.trainer.outstanding().dead[5]
    assert (dead.attempt, dead.reason) == (MAX_FAILURES, "why"), "fewer are dispatched again"
    for item in claimed:
        assert not await generator.publish(item, make_group(item, "a"))
    assert await claim(generator) == []
    assert ends.repair("requeue", 5).is_done, "the trainer has not settled it"
    assert ends.states() == {}
    assert ends.trainer.dispatch([make_task(5)]) == [5], "as it does with what it finds nowhere"


async def test_an_action_is_refused_in_any_other_state(ends: Ends) -> None:
    generator = ends.generator()
    ends.trainer.dispatch([make_task(0)])
    (claimed,) = await claim(generator)
    await generator.publish(claimed, make_group(claimed, "a"))
    ends.trainer.dispatch([make_task(1), make_task(2)])
    ends.repair("bury", 2)
    before = ends.states()
    refused: list[tuple[Action, int, str]] = [
        ("requeue", 0, "finished"),
        ("bury", 0, "finished"),
        ("requeue", 1, "waiting"),
        ("bury", 2, "dead"),
        ("requeue", 9, "absent"),
        ("bury", 9, "absent"),
    ]
    for action, task, state in refused:
        repair = ends.repair(action, task)
        assert (repair.state, repair.is_done) == (state, False)
    assert ends.states() == before == {0: "finished", 1: "waiting", 2: "dead"}


async def test_a_record_that_names_no_entry_of_its_task_is_not_acted_on(
    ends: Ends, redis_server: Server
) -> None:
    ends.trainer.dispatch([make_task(5), make_task(6)])
    keys = Keys(ends.run)
    with redis_server.client() as client:
        client.hset(keys.inflight, "5", client.hget(keys.inflight, "6"))
        assert ends.repair("bury", 5).state == "damaged"
        assert ends.states() == {5: "waiting", 6: "waiting"}
        client.hset(keys.inflight, "5", record_of_a_claim(ends, 5))
    assert ends.repair("requeue", 5).state == "damaged", "no generator has claimed it"
    assert ends.states() == {5: "waiting", 6: "waiting"}


async def test_texts_of_a_hostile_generator_are_cut_and_do_not_end_a_repair(
    ends: Ends, redis_server: Server
) -> None:
    ends.trainer.dispatch([make_task(5)])
    keys = Keys(ends.run)
    with redis_server.client() as client:
        claimed = record_of_a_claim(ends, 5)
        client.xreadgroup("generators", b"\xff\x1b[31m", {keys.tasks: ">"})
        client.hset(keys.inflight, "5", claimed)
        client.xadd(keys.dead, {name: name * 1_000_000 for name in "sapr"})
    (entry,) = ends.operator.look(9).dead_entries
    assert {len(text) for text in (entry.task, entry.failures, entry.purpose)} == {64}
    assert len(entry.reason) == 4096
    repair = ends.repair("requeue", 5)
    assert (repair.is_done, repair.owner) == (True, "\N{REPLACEMENT CHARACTER}\x1b[31m")
    assert ends.states() == {5: "waiting"}


def record_of_a_claim(ends: Ends, task: int) -> str:
    entry = ends.trainer.outstanding().waiting[task].stream_id
    return f"claimed 0 train {entry} 0.0 1.000000 a"


@pytest.mark.parametrize("action", ["requeue", "bury"])
async def test_an_answer_and_an_action_at_the_same_time_never_both_win(
    ends: Ends, action: Action
) -> None:
    tasks = range(30)
    ends.trainer.dispatch([make_task(task) for task in tasks])
    generator = ends.generator()
    claimed = await claim(generator, train=30)

    def repair_all() -> list[bool]:
        return [ends.repair(action, task).is_done for task in reversed(tasks)]

    repairs = asyncio.create_task(asyncio.to_thread(repair_all))
    publications = [generator.publish(item, make_group(item, "a")) for item in claimed]
    published = await asyncio.gather(*publications)
    repaired = await repairs
    for task, is_repaired, is_published in zip(tasks, reversed(repaired), published, strict=True):
        assert is_repaired != is_published, task
    left = "waiting" if action == "requeue" else "dead"
    assert ends.states() == {
        task: "finished" if is_published else left
        for task, is_published in zip(tasks, published, strict=True)
    }
    assert ends.trainer.count_refused() == repaired.count(True)


@pytest.mark.parametrize("action", ["requeue", "bury"])
async def test_a_server_killed_after_an_action_has_it_whole_or_not_at_all(
    durable_server: Server, action: Action
) -> None:
    ends = Ends(durable_server.settings, "killed")
    ends.trainer.dispatch([make_task(task) for task in range(20)])
    generator = ends.generator()
    await claim(generator, train=20)
    await asyncio.sleep(1.2)  # until the file has them
    for task in range(20):
        assert ends.repair(action, task).is_done
    durable_server.kill()
    durable_server.start()
    with durable_server.client() as client:
        rebuilt = client.hget(Keys("killed").state, "rebuilt")
    repaired = {"requeue": "waiting", "bury": "dead"}[action]
    states = ends.states()
    assert set(states) == set(range(20))
    assert set(states.values()) <= {"claimed", repaired}
    with durable_server.client() as client:
        assert client.hget(Keys("killed").state, "rebuilt") == rebuilt, "the index was true"
    await ends.close()

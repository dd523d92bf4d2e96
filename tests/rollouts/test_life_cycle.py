"""Random histories of both ends against a plain model: every task ends settled or dead exactly
once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rollcast.rollouts.base import (
    MAX_FAILURES,
    Claimed,
    Delivery,
    GeneratorQueue,
    Redispatch,
    TrainerQueue,
)
from rollcast.rollouts.keys import Keys
from rollcast.rollouts.records import Purpose
from rollcast.rollouts.redis_generator_queue import RedisGeneratorQueue
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import make_group, make_rollout, make_task
from testkit.rollouts.memory import MemoryBroker, MemoryGeneratorQueue, MemoryTrainerQueue
from testkit.rollouts.servers import Server

_runs = itertools.count()
Ends = tuple[Callable[[], TrainerQueue], Callable[[str], GeneratorQueue]]
picks = st.integers(0, 1 << 16)


class LifeCycle(RuleBasedStateMachine):
    """`place`, `attempt` and `version` are the model; `ended` counts how often each task came to
    its end.
    """

    def __init__(self, connect: Callable[[], Ends]) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.make_trainer, self.make_generator = connect()
        self.trainer = self.make_trainer()
        self.names = map("generator-{}".format, itertools.count())
        self.generators: dict[str, GeneratorQueue] = {}
        self.closed: list[TrainerQueue | GeneratorQueue] = []
        self.claims: dict[str, list[Claimed]] = {}
        self.stale: list[tuple[GeneratorQueue, Claimed]] = []
        self.held: dict[str, Delivery] = {}
        self.step = 1
        self.num_dispatched = 0
        self.place: dict[int, str] = {}
        self.attempt: dict[int, int] = {}
        self.version: dict[int, PolicyVersion | None] = {}
        self.ended: Counter[int] = Counter()
        self.refused = 0
        for _ in range(2):
            self.join()
        self.dispatch(5, Purpose.TRAIN)
        self.claim(0, 2, 0)

    def pick_claim(self, number: int) -> tuple[GeneratorQueue, Claimed]:
        everything = [(name, item) for name, items in self.claims.items() for item in items]
        name, item = everything[number % len(everything)]
        return self.generators[name], item

    def let_go(self, queue: GeneratorQueue, item: Claimed) -> None:
        self.claims[queue.owner].remove(item)
        self.stale.append((queue, item))

    def taken(self, sequences: list[int], result: Redispatch) -> None:
        """The model's share of fence, sweep and redo."""
        assert sorted(result.redone + result.dead) == sorted(sequences)
        for sequence in sequences:
            for name, items in self.claims.items():
                for item in [i for i in items if i.task.sequence == sequence]:
                    self.let_go(self.generators[name], item)
            self.failed(sequence)
        assert all(self.place[sequence] == "dead" for sequence in result.dead)

    def failed(self, sequence: int) -> None:
        self.attempt[sequence] += 1
        self.place[sequence] = "dead" if self.attempt[sequence] == MAX_FAILURES else "waiting"

    @precondition(lambda self: len(self.generators) < 4)
    @rule()
    def join(self) -> None:
        queue = self.make_generator(next(self.names))
        self.generators[queue.owner] = queue
        self.claims[queue.owner] = []

    @rule(count=st.integers(1, 5), purpose=st.sampled_from(Purpose))
    def dispatch(self, count: int, purpose: Purpose) -> None:
        new = list(range(self.num_dispatched, self.num_dispatched + count))
        self.num_dispatched += count
        outstanding = [sequence for sequence, place in self.place.items() if place != "gone"]
        tasks = [make_task(sequence, purpose) for sequence in [*outstanding[:3], *new]]
        assert self.trainer.dispatch(tasks) == new
        for sequence in new:
            self.place[sequence], self.attempt[sequence], self.version[sequence] = (
                "waiting",
                0,
                None,
            )

    @rule(number=picks, train=st.integers(0, 3), evals=st.integers(0, 2))
    def claim(self, number: int, train: int, evals: int) -> None:
        queue = list(self.generators.values())[number % len(self.generators)]
        self.step += 1
        now = PolicyVersion(1, self.step)
        claimed = self.loop.run_until_complete(
            queue.claim(train=train, evals=evals, first_version=lambda: now, block_seconds=0)
        )
        waiting = sum(place == "waiting" for place in self.place.values())
        assert len(claimed) <= train + evals
        assert claimed or not waiting or not (train and evals)
        for item in claimed:
            sequence = item.task.sequence
            assert self.place[sequence] == "waiting"
            assert item.task.attempt == self.attempt[sequence]
            assert item.first_version == (self.version[sequence] or now)
            self.place[sequence] = "claimed"
            self.claims[queue.owner].append(item)

    @precondition(lambda self: any(self.claims.values()))
    @rule(number=picks)
    def renew(self, number: int) -> None:
        queue, item = self.pick_claim(number)
        stale = [old for owner, old in self.stale if owner is queue]
        lost = self.loop.run_until_complete(queue.renew([item, *stale]))
        assert lost == [old.task.sequence for old in stale]

    @precondition(lambda self: any(self.claims.values()))
    @rule(number=picks)
    def publish(self, number: int) -> None:
        queue, item = self.pick_claim(number)
        assert self.loop.run_until_complete(queue.publish(item, make_group(item, queue.owner)))
        self.claims[queue.owner].remove(item)
        self.place[item.task.sequence] = "finished"

    @precondition(lambda self: any(self.claims.values()))
    @rule(number=picks, tokens=st.integers(0, 2))
    def hand_back(self, number: int, tokens: int) -> None:
        queue, item = self.pick_claim(number)
        item.task.rollouts = [make_rollout(0, tokens, item.first_version, partial=True)]
        assert self.loop.run_until_complete(queue.hand_back(item, item.task))
        self.let_go(queue, item)
        self.place[item.task.sequence] = "waiting"
        self.version[item.task.sequence] = item.first_version if tokens else None

    @precondition(lambda self: any(self.claims.values()))
    @rule(number=picks)
    def fail(self, number: int) -> None:
        queue, item = self.pick_claim(number)
        assert self.loop.run_until_complete(queue.fail(item, "broken"))
        self.let_go(queue, item)
        self.failed(item.task.sequence)

    @precondition(lambda self: self.stale)
    @rule(number=picks)
    def answer_late(self, number: int) -> None:
        queue, item = self.stale[number % len(self.stale)]
        for answer in (
            queue.publish(item, make_group(item, queue.owner)),
            queue.hand_back(item, item.task),
            queue.fail(item, "late"),
        ):
            assert not self.loop.run_until_complete(answer)
            self.refused += 1

    @precondition(lambda self: len(self.generators) > 1)
    @rule(number=picks)
    def fence(self, number: int) -> None:
        name = list(self.generators)[number % len(self.generators)]
        sequences = [item.task.sequence for item in self.claims[name]]
        self.taken(sequences, self.trainer.fence(name, "silent"))
        self.closed.append(self.generators.pop(name))
        del self.claims[name]

    @rule()
    def sweep(self) -> None:
        """Nothing was renewed for no time at all: every claim is taken."""
        sequences = [item.task.sequence for items in self.claims.values() for item in items]
        self.taken(sequences, self.trainer.sweep(0.0))

    @precondition(lambda self: any(self.claims.values()))
    @rule(number=picks)
    def redo(self, number: int) -> None:
        sequence = self.pick_claim(number)[1].task.sequence
        self.taken([sequence], self.trainer.redo([sequence], "overdue"))

    @rule()
    def restart_trainer(self) -> None:
        self.closed.append(self.trainer)
        self.trainer = self.make_trainer()
        self.held = {}

    @rule(count=st.integers(1, 4))
    def read(self, count: int) -> None:
        deliveries = self.trainer.read(count, 0)
        assert len(deliveries) <= count
        for delivery in deliveries:
            assert delivery.stream_id not in self.held
            assert self.place[delivery.group.sequence] == "finished"
            self.held[delivery.stream_id] = delivery

    @precondition(lambda self: self.held)
    @rule(count=st.integers(1, 3))
    def settle(self, count: int) -> None:
        used = list(self.held)[:count]
        self.trainer.remove(used)
        for stream_id in used:
            self.end(self.held.pop(stream_id).group.sequence)

    @rule()
    def bury(self) -> None:
        dead = self.trainer.outstanding().dead
        self.trainer.retire(list(dead))
        for sequence, item in dead.items():
            assert item.attempt == MAX_FAILURES
            self.end(sequence)

    def end(self, sequence: int) -> None:
        self.ended[sequence] += 1
        self.place[sequence] = "gone"

    @invariant()
    def the_snapshot_is_true(self) -> None:
        snapshot = self.trainer.outstanding()
        for name, found in (
            ("waiting", snapshot.waiting),
            ("claimed", snapshot.claims),
            ("finished", snapshot.finished),
            ("dead", snapshot.dead),
        ):
            assert set(found) == {
                sequence for sequence, place in self.place.items() if place == name
            }
            assert all(item.attempt == self.attempt[sequence] for sequence, item in found.items())
        for sequence, item in snapshot.waiting.items():
            assert item.first_version == self.version[sequence]
        for name, items in self.claims.items():
            for claimed in items:
                record = snapshot.claims[claimed.task.sequence]
                assert (record.owner, record.first_version) == (name, claimed.first_version)
        assert self.trainer.count_refused() == self.refused

    def teardown(self) -> None:
        """Let the run finish: nothing may be left, nothing may have ended twice."""
        if not hasattr(self, "trainer"):
            return
        self.restart_trainer()
        while any(self.claims.values()):
            self.publish(0)
        while any(place in ("waiting", "finished", "dead") for place in self.place.values()):
            self.claim(0, 3, 3)
            while any(self.claims.values()):
                self.publish(0)
            while self.trainer_has_more():
                self.settle(100)
            self.bury()
        self.the_snapshot_is_true()
        assert self.ended == Counter(range(self.num_dispatched))
        for queue in (self.trainer, *self.closed, *self.generators.values()):
            if (closing := queue.close()) is not None:
                self.loop.run_until_complete(closing)
        self.loop.close()

    def trainer_has_more(self) -> bool:
        for _ in range(2):  # a read that looked back for a predecessor's groups comes first
            self.read(4)
        return bool(self.held)


def run_histories(connect: Callable[[], Ends], *, max_examples: int) -> None:
    run_state_machine_as_test(
        lambda: LifeCycle(connect),  # type: ignore[arg-type]  # a factory is as good
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_every_task_ends_once_in_memory() -> None:
    def connect() -> Ends:
        broker = MemoryBroker()
        return lambda: MemoryTrainerQueue(broker), lambda owner: MemoryGeneratorQueue(broker, owner)

    run_histories(connect, max_examples=100)


def test_every_task_ends_once_in_redis(redis_server: Server) -> None:
    runs: list[str] = []

    def connect() -> Ends:
        run = f"history-{next(_runs)}"
        runs.append(run)
        return (
            lambda: RedisTrainerQueue(redis_server.settings_of("trainer"), run),
            lambda owner: RedisGeneratorQueue(redis_server.settings_of("generator"), run, owner),
        )

    run_histories(connect, max_examples=30)
    with redis_server.client() as raw:
        rebuilt = [raw.hget(Keys(run).state, "rebuilt") for run in runs]
    assert rebuilt == [None] * len(runs), "the index was out of step with the streams"

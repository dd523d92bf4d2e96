"""Redis killed, frozen, restarted with less than it knew, or restarted empty, in the middle of
traffic.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from pydantic import SecretStr

from rollcast.config.connections import Redis as RedisSettings
from rollcast.config.errors import UserError
from rollcast.local.ports import free_port
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.redis_generator_queue import RedisGeneratorQueue
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import VERSION, make_group, make_task
from testkit.rollouts.servers import Server

NUM_TASKS = 400
WINDOW = 12
DEADLINE_SECONDS = 60.0


class TrainerLoop(threading.Thread):
    """Trains on every task once: credit from the snapshot, a ledger of what was used, missing tasks
    redone.
    """

    def __init__(self, settings: RedisSettings, run: str) -> None:
        super().__init__(daemon=True)
        self.queue = RedisTrainerQueue(settings, run)
        self.used: list[int] = []
        self.num_dispatched = 0
        self.num_missing = 0
        self.num_duplicates = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while len(self.used) < NUM_TASKS or self.queue.outstanding().sequences:
                assert time.monotonic() < deadline, (
                    f"only {len(self.used)} of {NUM_TASKS} tasks came back"
                )
                self.turn()
        except BaseException as error:
            self.error = error

    def turn(self) -> None:
        used = set(self.used)
        for delivery in self.queue.read(WINDOW, 0.02):
            if delivery.group.sequence in used:
                self.num_duplicates += 1
            else:
                self.used.append(delivery.group.sequence)
                used.add(delivery.group.sequence)
            self.queue.remove([delivery.stream_id])
        self.queue.sweep(1.0)
        present = self.queue.outstanding()
        self.queue.retire(
            [*(used & (present.waiting.keys() | present.claims.keys())), *present.dead]
        )
        missing = set(range(self.num_dispatched)) - used - (present.sequences - present.dead.keys())
        self.num_missing += len(missing)
        self.queue.dispatch([make_task(sequence) for sequence in sorted(missing)])
        free = max(
            0,
            min(
                WINDOW - len(present.sequences - used) - len(missing),
                NUM_TASKS - self.num_dispatched,
            ),
        )
        new = range(self.num_dispatched, self.num_dispatched + free)
        self.num_dispatched += free
        self.queue.dispatch([make_task(sequence) for sequence in new])


async def generate(settings: RedisSettings, run: str, owner: str, done: asyncio.Event) -> None:
    queue = RedisGeneratorQueue(settings, run, owner)
    turns = 0
    while not done.is_set():
        claimed = await queue.claim(
            train=3, evals=0, first_version=lambda: VERSION, block_seconds=0.05
        )
        await asyncio.sleep(0.005)
        lost = set(await queue.renew(claimed))
        for item in claimed:
            turns += 1
            if item.task.sequence in lost:
                continue
            if turns % 7 == 0:
                await queue.hand_back(item, item.task)
            else:
                await queue.publish(item, make_group(item, owner))
    await queue.close()


def append_only_file(folder: Path) -> Path:
    """The file that grows: one in Redis 6.2, the newest increment in Redis 7."""
    files = sorted(folder.glob("**/*.incr.aof")) or sorted(folder.glob("**/*.aof"))
    return files[-1]


async def wait_until_used(trainer: TrainerLoop, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(trainer.used) < count and trainer.is_alive():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("loss", ["nothing", "tail", "everything"])
async def test_every_task_is_used_once_over_kills_of_redis(
    durable_server: Server, loss: str
) -> None:
    server, run = durable_server, f"killed-{loss}"
    trainer, done = TrainerLoop(server.settings_of("trainer"), run), asyncio.Event()
    generators = [
        asyncio.ensure_future(generate(server.settings_of("generator"), run, name, done))
        for name in ("a", "b")
    ]
    trainer.start()
    for part in (NUM_TASKS // 4, NUM_TASKS // 2):
        await wait_until_used(trainer, part - 30)
        size = append_only_file(server.folder).stat().st_size
        await wait_until_used(trainer, part)
        server.kill()
        if loss == "tail":
            os.truncate(append_only_file(server.folder), size)
        elif loss == "everything":
            os.truncate(append_only_file(server.folder), 0)
        await asyncio.sleep(0.1)
        await asyncio.to_thread(server.start)
    await asyncio.to_thread(trainer.join, DEADLINE_SECONDS)
    done.set()
    await asyncio.gather(*generators)
    if trainer.error is not None:
        raise trainer.error
    assert Counter(trainer.used) == Counter(range(NUM_TASKS))
    assert trainer.queue.away_seconds > 0
    if loss != "nothing":
        assert trainer.num_missing + trainer.num_duplicates > 0, "Redis should have lost something"
    trainer.queue.close()


async def test_a_frozen_redis_costs_a_deadline_and_loses_nothing(durable_server: Server) -> None:
    settings = durable_server.settings.model_copy(update={"timeout_seconds": 0.2})
    trainer = RedisTrainerQueue(settings, "frozen", patience_seconds=0.3)
    generator = RedisGeneratorQueue(settings, "frozen", "a", patience_seconds=0.3)
    trainer.dispatch([make_task(1), make_task(2)])
    (claimed,) = await generator.claim(
        train=1, evals=0, first_version=lambda: VERSION, block_seconds=0
    )
    group = make_group(claimed, "a")
    os.kill(durable_server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(QueueAway, match="Redis took no command"):
            await generator.publish(claimed, group)
        with pytest.raises(QueueAway):
            await generator.claim(train=1, evals=0, first_version=lambda: VERSION, block_seconds=0)
        with pytest.raises(QueueAway):
            trainer.outstanding()
    finally:
        os.kill(durable_server.pid, signal.SIGCONT)
    assert await generator.publish(claimed, group), (
        "whether or not the frozen server took the first call"
    )
    later = PolicyVersion(1, 9)
    (found,) = await generator.claim(train=1, evals=0, first_version=lambda: later, block_seconds=1)
    assert found.task.sequence == 2
    assert [delivery.group.sequence for delivery in trainer.read(10, 1)] == [1]
    assert trainer.outstanding().claims.keys() == {2}
    assert trainer.count_refused() == 0
    assert trainer.away_seconds > 0
    trainer.close()
    await generator.close()


async def test_a_claim_that_waits_for_redis_does_not_hold_back_new_weights(
    durable_server: Server,
) -> None:
    """`recorded` comes through between two attempts; the next one asks for the version that is held
    by then.
    """
    settings = durable_server.settings.model_copy(update={"timeout_seconds": 0.2})
    trainer = RedisTrainerQueue(durable_server.settings_of("trainer"), "held-up")
    generator = RedisGeneratorQueue(settings, "held-up", "a", patience_seconds=DEADLINE_SECONDS)
    held = VERSION
    assert (
        await generator.claim(train=1, evals=0, first_version=lambda: held, block_seconds=0) == []
    )
    os.kill(durable_server.pid, signal.SIGSTOP)
    try:
        claiming = asyncio.ensure_future(
            generator.claim(
                train=1, evals=0, first_version=lambda: held, block_seconds=DEADLINE_SECONDS
            )
        )
        await asyncio.sleep(0.05)
        held = PolicyVersion(1, 9)
        await asyncio.wait_for(generator.wait_until_recorded(), DEADLINE_SECONDS / 2)
        assert not claiming.done()
    finally:
        os.kill(durable_server.pid, signal.SIGCONT)
    trainer.dispatch([make_task(1)])
    (claimed,) = await asyncio.wait_for(claiming, DEADLINE_SECONDS)
    assert (claimed.task.sequence, claimed.first_version) == (1, held)
    assert trainer.outstanding().claims[1].first_version == held
    trainer.close()
    await generator.close()


def test_a_server_that_is_not_there_is_an_error_after_the_patience() -> None:
    queue = RedisTrainerQueue(
        RedisSettings(port=free_port("127.0.0.1"), timeout_seconds=0.2),
        "nowhere",
        patience_seconds=0.3,
    )
    with pytest.raises(QueueAway):
        queue.start_incarnation(1)


def test_a_wrong_password_is_the_users_mistake_at_once(durable_server: Server) -> None:
    with durable_server.client() as client:
        client.config_set("requirepass", "right")
    for password in ("wrong", None):
        settings = durable_server.settings.model_copy(
            update={"password": SecretStr(password) if password else None}
        )
        with pytest.raises(UserError, match=r"redis\.password"):
            RedisTrainerQueue(settings, "locked").start_incarnation(1)
    right = durable_server.settings.model_copy(update={"password": SecretStr("right")})
    assert RedisTrainerQueue(right, "locked").start_incarnation(1) == 1


def test_a_password_that_was_right_is_waited_for(durable_server: Server) -> None:
    """As in an upgrade or when credentials are rolled: the trainer must not fail its Job."""
    settings = durable_server.settings_of("trainer")
    trainer = RedisTrainerQueue(settings, "rolled", patience_seconds=0.3)
    assert trainer.dispatch([make_task(1)]) == [1]
    with durable_server.client() as client:
        client.execute_command("ACL", "SETUSER", "trainer", "resetpass", ">another")
        client.client_kill_filter(_type="normal", skipme=True)
        with pytest.raises(QueueAway, match="Redis refuses a password that was right"):
            trainer.dispatch([make_task(2)])
        client.execute_command("ACL", "SETUSER", "trainer", ">trainer")
    assert trainer.dispatch([make_task(2)]) == [2]
    trainer.close()


def test_a_full_server_is_waited_for_and_changes_nothing(durable_server: Server) -> None:
    trainer = RedisTrainerQueue(durable_server.settings_of("trainer"), "full", patience_seconds=0.3)
    trainer.dispatch([make_task(1)])
    with durable_server.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(QueueAway, match=r"OOM|maxmemory"):
            trainer.dispatch([make_task(2)])
        client.config_set("maxmemory", 0)
    assert trainer.outstanding().sequences == {1}
    assert trainer.dispatch([make_task(2)]) == [2]
    trainer.close()

"""Real processes are killed, frozen and cut off: the others go on, and nothing half received is
ever applied.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from rollcast.local.ports import free_port
from rollcast.wire.version import PolicyVersion
from testkit.weights.trainer_end import WEIGHTS, Process, Trainer, wait_until
from tests.weights import trainer_process

SLOW = {"slow_seconds": 0.1}
"""Seconds for each of the twelve buckets: time to strike in mid-broadcast."""
RECONNECT_SECONDS = 5.0
"""From a trainer that listens again to the last generator's connection."""


@pytest.mark.parametrize("victim_first", [True, False])
def test_a_generator_killed_in_mid_broadcast_costs_the_others_nothing(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    victim_first: bool,
) -> None:
    trainer = start_trainer()
    names = ["victim", "other"] if victim_first else ["other", "victim"]
    generators = {}
    for name in names:
        generators[name] = start_generator(name, trainer.rpc, **(SLOW if name == "victim" else {}))
        wait_until(lambda: len(trainer.publisher.members()) == len(generators))  # fixes the ranks
    trainer.publish(0)
    trainer.wait_members("victim", "other")
    expected = trainer.publish(1)
    generators["victim"].wait("applied")
    generators["victim"].wait("bucket", index=3)
    generators["victim"].signal(signal.SIGKILL)
    assert trainer.publisher.wait_acknowledged(1, 20.0)
    assert generators["other"].wait("applied", version="1.1")["digest"] == expected
    wait_until(lambda: trainer.removed == [("victim", "disconnected")])
    expected = trainer.publish(2)
    assert trainer.publisher.wait_acknowledged(2, 20.0)
    assert generators["other"].wait("applied", version="1.2")["digest"] == expected
    assert trainer.metric('rollcast_generators_fenced_total{reason="disconnected",run="test"}') == 1


def test_a_generator_frozen_in_mid_broadcast_is_fenced_and_comes_back_as_new(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer()
    victim, other = (
        start_generator("victim", trainer.rpc, **SLOW),
        start_generator("other", trainer.rpc),
    )
    trainer.publish(0)
    victim.wait("applied")
    trainer.wait_members("victim", "other")
    expected = trainer.publish(1)
    victim.wait("bucket", index=3)
    victim.signal(signal.SIGSTOP)
    assert trainer.publisher.wait_acknowledged(1, 20.0)
    assert other.wait("applied", version="1.1")["digest"] == expected
    wait_until(lambda: trainer.removed == [("victim", "silent")])
    victim.signal(signal.SIGCONT)
    assert victim.wait("fenced")["reason"] == "silent"
    trainer.wait_members("other", "again-1")
    expected = trainer.publish(2)
    assert trainer.publisher.wait_acknowledged(2, 20.0)
    for generator in (victim, other):
        assert generator.wait("applied", version="1.2")["digest"] == expected
    assert trainer.removed == [("victim", "silent")]


def test_a_generator_that_applies_for_longer_than_silence_is_borne_is_not_fenced(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    """A large version out of host memory: its workers neither answer nor step meanwhile."""
    trainer = start_trainer()
    generator = start_generator(
        "large", trainer.rpc, apply_seconds=1.4 * WEIGHTS["heartbeat_timeout_seconds"]
    )
    trainer.publish(0)
    trainer.wait_members("large")
    expected = trainer.publish(1)
    assert trainer.publisher.wait_acknowledged(1, 20.0)
    assert generator.wait("applied", version="1.1")["digest"] == expected
    assert trainer.removed == []


def test_a_joiner_killed_while_it_catches_up_does_not_hold_up_the_others(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer(coalesce_seconds=1.0)
    joiner, other = (
        start_generator("joiner", trainer.rpc, **SLOW),
        start_generator("other", trainer.rpc),
    )
    trainer.publish(0)
    joiner.wait("bucket", index=3)
    joiner.signal(signal.SIGKILL)
    trainer.wait_members("other")
    wait_until(lambda: trainer.removed == [("joiner", "disconnected")])
    expected = trainer.publish(1)
    assert other.wait("applied", version="1.1")["digest"] == expected


def test_a_trainer_killed_in_mid_broadcast_is_followed_by_its_next_incarnation(
    start_process: Callable[..., Process], start_generator: Callable[..., Process]
) -> None:
    rpc = {"port": 0}
    first = start_process(trainer_process.run, {"incarnation": 1, "rpc": rpc})
    rpc = {"port": first.wait("started")["port"]}
    slow, quick = start_generator("slow", rpc, **SLOW), start_generator("quick", rpc)
    first.tell(0)
    for generator in (slow, quick):
        generator.wait("applied", version="1.0")
    time.sleep(1.0)  # the common epoch is made
    first.tell(1)
    slow.wait("bucket", index=3)
    first.signal(signal.SIGKILL)
    first.process.join()
    second = start_process(trainer_process.run, {"incarnation": 2, "rpc": rpc})
    second.wait("started")
    second.tell(8)
    expected = second.wait("published")["digest"]
    for generator in (slow, quick):
        assert generator.wait("incarnation")["history"] == [[1, 7]]
        assert generator.wait("applied", version="2.8")["digest"] == expected
    assert "1.1" not in [event.get("version") for event in slow.events]  # half received: discarded


def test_a_trainer_that_was_away_for_long_is_joined_again_within_seconds(
    start_process: Callable[..., Process], start_generator: Callable[..., Process]
) -> None:
    """After 19 s the back-off that gRPC's channels share by default has grown to some 10 s, most of
    it ahead.
    """
    rpc = {"port": 0}
    first = start_process(trainer_process.run, {"incarnation": 1, "rpc": rpc})
    rpc = {"port": first.wait("started")["port"]}
    generators = [start_generator(f"g{index}", rpc) for index in range(3)]
    first.tell(0)
    for generator in generators:
        generator.wait("applied", version="1.0")
    first.signal(signal.SIGKILL)
    first.process.join()
    time.sleep(19.0)
    second = start_process(trainer_process.run, {"incarnation": 2, "rpc": rpc})
    second.wait("started")
    listens_since = time.monotonic()
    for generator in generators:
        generator.wait("incarnation", incarnation=2)
    seconds = time.monotonic() - listens_since
    print(f"all are connected {seconds:.1f} s after the trainer listens")
    assert seconds < RECONNECT_SECONDS
    second.tell(8)
    for generator in generators:
        generator.wait("applied", version="2.8")


def test_a_trainer_that_was_frozen_fences_nobody(
    start_process: Callable[..., Process], start_generator: Callable[..., Process]
) -> None:
    """For a moment it still counts as reached; for longer it does not, and is joined again when it
    wakes.
    """
    trainer = start_process(trainer_process.run, {"incarnation": 1, "rpc": {"port": 0}})
    generator = start_generator("patient", {"port": trainer.wait("started")["port"]})

    def joined() -> bool:
        generator.tell("joined")
        return bool(generator.wait("joined")["joined"])

    def nothing_under_way(version: str) -> bool:
        """A trainer that is frozen in the middle of sending costs the group, which is not what is
        tried here.
        """
        trainer.tell("members")
        return list(trainer.wait("members")["members"]) == [("patient", version)]

    trainer.tell(0)
    generator.wait("applied", version="1.0")
    wait_until(lambda: nothing_under_way("1.0"))
    # A newcomer was caught up in a private group; the group of all opens after that. What came
    # through it: it stands.
    trainer.tell(1)
    generator.wait("applied", version="1.1")
    wait_until(lambda: nothing_under_way("1.1"))
    assert joined()
    trainer.signal(signal.SIGSTOP)
    time.sleep(4.0)  # longer than the heartbeat's timeout
    assert joined()
    trainer.signal(signal.SIGCONT)
    trainer.tell(2)
    generator.wait("applied", version="1.2")
    assert "fenced" not in [event["event"] for event in generator.events]
    wait_until(lambda: nothing_under_way("1.2"))
    trainer.signal(signal.SIGSTOP)
    wait_until(lambda: not joined())
    trainer.signal(signal.SIGCONT)
    wait_until(joined)
    trainer.tell(3)
    generator.wait("applied", version="1.3")


def test_a_corrupted_version_is_sent_again_and_never_applied(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer()
    generator = start_generator("corrupt", trainer.rpc, corrupt=True)
    expected = trainer.publish(0)
    assert generator.wait("applied")["digest"] == expected
    assert trainer.metric('rollcast_weight_failures_total{reason="catch_up",run="test"}') == 1
    assert trainer.removed == []


def test_a_live_front_end_with_a_hung_engine_is_fenced(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer()
    generator = start_generator("hung", trainer.rpc)
    trainer.publish(0)
    trainer.wait_members("hung")
    generator.tell("hang")
    wait_until(lambda: trainer.removed == [("hung", "hung")])
    assert generator.wait("fenced")["reason"] == "hung"


def test_generators_count_from_their_start_and_after_a_fence_from_there(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    """Whatever the wall clock is set to meanwhile: of one it stays as it is, of others it is set
    back and forward.
    """
    rpc = {"port": free_port("127.0.0.1")}
    earliest = time.monotonic()
    generators = {
        name: start_generator(
            name, rpc, wall_clock_set_seconds=3600.0 * hours, again=f"{name}-again"
        )
        for name, hours in {"as-it-is": 0, "set-back": -7, "set-forward": 7}.items()
    }
    for generator in generators.values():
        generator.wait("started")
    began = time.monotonic()
    time.sleep(3.0)  # their engines start, or there is no trainer yet
    trainer = start_trainer(rpc=rpc)
    trainer.publish(0)
    trainer.wait_members(*generators)
    for member in trainer.publisher.members():
        assert earliest - 1.0 < member.allocated_since < began + 1.0, member.name
    told_at = time.monotonic()
    for generator in generators.values():
        generator.tell("hang")
    trainer.wait_members(*(f"{name}-again-1" for name in generators))
    for member in trainer.publisher.members():
        assert member.allocated_since > told_at, member.name


def test_an_idle_engine_need_not_step(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer(heartbeat_timeout_seconds=1.5)
    generator = start_generator("idle", trainer.rpc, running_rollouts=0)
    trainer.publish(0)
    trainer.wait_members("idle")
    generator.tell("hang")
    time.sleep(3.0)
    assert trainer.removed == []


def test_a_generator_whose_stream_broke_keeps_its_name_and_its_weights(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer()
    with Proxy(trainer.rpc["port"]) as proxy:
        generator = start_generator("cut-off", {"port": proxy.port})
        trainer.publish(0)
        trainer.wait_members("cut-off")
        joined = trainer.publisher.members()
        proxy.cut()
        wait_until(
            lambda: not trainer.publisher.members() or not trainer.publisher.members()[0].joined
        )
        trainer.wait_members("cut-off")
        assert trainer.publisher.members()[0].version == joined[0].version == PolicyVersion(1, 0)
        expected = trainer.publish(1)
        assert generator.wait("applied", version="1.1")["digest"] == expected
        assert [event["event"] for event in generator.events].count(
            "applied"
        ) == 2  # 1.0 was not sent again
        assert trainer.removed == []


def test_a_generator_that_comes_back_holds_up_the_gate_until_it_caught_up(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    """Its engine goes on sampling with what it held: its claims must be reckoned with before it is
    a member again.
    """
    trainer = start_trainer(coalesce_seconds=4.0)
    with Proxy(trainer.rpc["port"]) as proxy:
        generator = start_generator("cut-off", {"port": proxy.port})
        assert trainer.publisher.lowest_step() is None
        trainer.publish(0)
        trainer.wait_members("cut-off")
        proxy.cut()
        wait_until(lambda: not trainer.publisher.members()[0].joined)
        trainer.publish(1)
        assert not trainer.publisher.members()[0].joined
        assert trainer.publisher.lowest_step() == 0
        assert not trainer.publisher.wait_acknowledged(1, 0.0)
        assert trainer.publisher.wait_acknowledged(1, 20.0)
        generator.wait("applied", version="1.1")
        assert trainer.removed == []


class Proxy:
    """Forwards TCP connections to a local port until they are cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        while self._open:
            connection = self._open.pop()
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import DistError, PrefixStore, TCPStore  # type: ignore[attr-defined]

from rollcast.trainer.learner.commands import (
    CHUNK_BYTES,
    CommandKind,
    CommandReceiver,
    CommandSender,
    RankCommand,
)

SERVER = """
import time
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
time.sleep(60)
"""

FOLLOWER = """
import sys
from torch.distributed import TCPStore
from rollcast.trainer.learner.commands import CommandReceiver
client = TCPStore("127.0.0.1", int(sys.stdin.readline()), is_master=False)
CommandReceiver(client, 1, 1.0).receive(lambda: print("asks", flush=True))
"""


def test_commands_arrive_in_order_and_whole() -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    bodies = {rank: os.urandom(2 * CHUNK_BYTES + rank) for rank in (1, 2)}

    def follow(rank: int) -> list[RankCommand]:
        client = TCPStore("127.0.0.1", server.port, is_master=False)
        receiver = CommandReceiver(PrefixStore("learner", client), rank)
        received = [receiver.receive()]
        while received[-1].kind is not CommandKind.STOP:
            received.append(receiver.receive())
        return received

    with ThreadPoolExecutor() as threads:
        followers = [threads.submit(follow, rank) for rank in (1, 2)]
        sender = CommandSender(PrefixStore("learner", server), world_size=3)
        sender.send(CommandKind.STAGE)
        sender.send(CommandKind.UPDATE, bodies)
        sender.send(CommandKind.SAVE, b"1.5")
        sender.send(CommandKind.STOP)
        for rank, follower in zip((1, 2), followers, strict=True):
            assert follower.result(timeout=30) == [
                RankCommand(CommandKind.STAGE),
                RankCommand(CommandKind.UPDATE, bodies[rank]),
                RankCommand(CommandKind.SAVE, b"1.5"),
                RankCommand(CommandKind.STOP),
            ]
    assert (
        server.num_keys() <= 1
    )  # what was read is deleted: nothing grows with the number of steps


def test_a_long_wait_is_silent_and_ends_with_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    """What a rank writes while rank 0 waits for rollouts would bury rank 0's own log."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    client = TCPStore("127.0.0.1", server.port, is_master=False)
    looks: list[None] = []
    with ThreadPoolExecutor() as threads:
        follower = threads.submit(CommandReceiver(client, 1).receive, lambda: looks.append(None))
        with pytest.raises(TimeoutError):
            follower.result(timeout=2.5)
        CommandSender(server, world_size=2).send(CommandKind.STAGE)
        assert follower.result(timeout=10) == RankCommand(CommandKind.STAGE)
    assert len(looks) > 1
    assert capfd.readouterr().err == ""


def start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )


def test_a_lost_store_ends_the_wait() -> None:
    child = start(SERVER)
    assert child.stdout is not None
    with child:
        client = TCPStore("127.0.0.1", int(child.stdout.readline()), is_master=False)
        with ThreadPoolExecutor() as threads:
            follower = threads.submit(CommandReceiver(client, 1).receive)
            child.send_signal(signal.SIGKILL)
            with pytest.raises(DistError):
                follower.result(timeout=30)


def test_a_frozen_rank_0_ends_the_rank_that_asks_it() -> None:
    """torch's question itself has no deadline."""
    with start(SERVER) as rank_0, start(FOLLOWER) as follower:
        assert rank_0.stdout is not None
        assert follower.stdin is not None
        assert follower.stdout is not None
        follower.stdin.write(rank_0.stdout.readline())
        follower.stdin.flush()
        assert follower.stdout.readline() == "asks\n"
        rank_0.send_signal(signal.SIGSTOP)
        output, errors = follower.communicate(timeout=60)
        assert follower.returncode == 1
        assert "rank 0 does not answer" in output + errors
        rank_0.kill()

"""Thirty kills and thirty cuts in the middle of pulls: nothing lost, none fenced by mistake."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollcast.local.ports import free_port
from testkit.weights.slow_network import SlowNetwork
from testkit.weights.trainer_end import WEIGHTS, Process, Trainer, wait_until

KILLS, CUTS = 30, 30


@pytest.fixture
def store(tmp_path: Path) -> dict[str, Any]:
    """Settings of a store in a folder."""
    (tmp_path / "store").mkdir()
    return {"transport": "store", "store": {"location": f"{tmp_path}/store", "anchor_every": 8}}


@pytest.fixture
def network(tmp_path: Path, store: dict[str, Any]) -> Iterator[tuple[SlowNetwork, str]]:
    """The same folder over HTTP, behind a network on which a pull takes half a second."""
    port = free_port("127.0.0.1")
    server = subprocess.Popen(
        [sys.executable, "-m", "testkit.weights.range_server", f"{tmp_path}/store", str(port)]
    )
    network = SlowNetwork(port, 0.01, 6e5)
    try:
        with network.opened() as slow_port:
            yield network, f"http://127.0.0.1:{slow_port}"
    finally:
        server.kill()
        server.wait()


def test_thirty_cuts(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
    network: tuple[SlowNetwork, str],
) -> None:
    line, location = network
    # Cuts come so often that on a busy machine few pulls succeed.
    patience = {"acknowledge_timeout_seconds": 60.0, "heartbeat_timeout_seconds": 30.0}
    trainer = start_trainer(**patience, **store)
    expected = trainer.publish(0)
    over_http = {"transport": "store", "store": {"location": location}}
    far = start_generator("far", trainer.rpc, weights=WEIGHTS | patience | over_http)
    near = start_generator("near", trainer.rpc, weights=WEIGHTS | patience | store)
    assert far.wait("applied", version="1.0")["digest"] == expected
    cut_connections = 0
    stopped = threading.Event()

    def cut_often() -> None:
        nonlocal cut_connections
        moments = random.Random(1)
        while not stopped.wait(moments.uniform(0.2, 1.2)):
            cut_connections += line.cut() > 0

    cutting = threading.Thread(target=cut_often)
    cutting.start()
    step = 0
    try:
        while cut_connections < CUTS:
            step += 1
            expected = trainer.publish(step, changed_share=0.3)
            assert near.wait("applied", version=f"1.{step}")["digest"] == expected
            assert step < 500
    finally:
        stopped.set()
        cutting.join()
    assert far.wait("applied", version=f"1.{step}")["digest"] == expected
    assert trainer.removed == []
    trainer.wait_members("far", "near")


def test_thirty_kills(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
) -> None:
    trainer = start_trainer(**store)
    trainer.publish(0)
    settings = {"weights": WEIGHTS | store}
    bystander = start_generator("bystander", trainer.rpc, **settings)
    trainer.wait_members("bystander")
    for step in range(1, KILLS + 1):
        victim = start_generator(f"victim-{step}", trainer.rpc, slow_read_seconds=0.2, **settings)
        expected = trainer.publish(step, changed_share=0.3)
        victim.wait("range")
        time.sleep(0.01 * step)
        victim.signal(signal.SIGKILL)
        victim.close()
        assert bystander.wait("applied", version=f"1.{step}")["digest"] == expected
    names = {f"victim-{step}" for step in range(1, KILLS + 1)}
    wait_until(lambda: {name for name, _ in trainer.removed} == names)
    assert {reason for _, reason in trainer.removed} == {"disconnected"}
    trainer.wait_members("bystander")

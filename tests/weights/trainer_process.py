"""A trainer as a process of its own, to be killed: it publishes on command."""

from __future__ import annotations

import resource
import time
from multiprocessing.connection import Connection
from typing import Any

from rollcast.telemetry.logging import configure_logging
from rollcast.weights.transport import stored_object, word_code
from testkit.weights.device import DEVICE
from testkit.weights.generator_process import use_one_card
from testkit.weights.trainer_end import SPECS, Trainer


def run(connection: Connection, settings: dict[str, Any]) -> None:
    """Commands: a step, to be published, with the share that it changes if not all; "members";
    ("limit", bytes of a file). Events: started, published, members (name and version), frame of an
    object of the store.
    """
    slow_down_writing(connection, settings.get("slow_write_seconds", 0.0))
    configure_logging("trainer")
    if DEVICE != "cpu":
        use_one_card(f"trainer-{settings['incarnation']}")
    trainer = Trainer(
        SPECS,
        device=DEVICE,
        incarnation=settings["incarnation"],
        rpc=settings["rpc"],
        **settings.get("weights", {}),
    )
    connection.send({"event": "started", "port": trainer.rpc["port"]})
    while True:
        command = connection.recv()
        if command == "members":
            members = [
                (member.name, str(member.version))
                for member in trainer.publisher.members()
                if member.joined
            ]
            connection.send({"event": "members", "members": members})
        elif isinstance(command, tuple) and command[0] == "limit":
            # The kernel refuses what is longer, as a full disk does.
            resource.setrlimit(resource.RLIMIT_FSIZE, (command[1], resource.RLIM_INFINITY))
        else:
            step, share = command if isinstance(command, tuple) else (command, 1.0)
            connection.send({"event": "published", "digest": trainer.publish(step, share)})


def slow_down_writing(connection: Connection, seconds: float) -> None:
    def slow_encode(*words: Any) -> bytes:
        connection.send({"event": "frame"})
        time.sleep(seconds)
        return word_code.encode(*words)

    if seconds:
        vars(stored_object)["encode"] = slow_encode

"""A trainer as a process of its own, to be killed: it publishes on command."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

from rollcast.telemetry.logging import configure_logging
from testkit.weights.device import DEVICE
from testkit.weights.generator_process import use_one_card
from testkit.weights.trainer_end import SPECS, Trainer


def run(connection: Connection, settings: dict[str, Any]) -> None:
    """Commands: a step, to be published, or "members"; events: started, published, members (name
    and version).
    """
    configure_logging("trainer")
    if DEVICE != "cpu":
        use_one_card(f"trainer-{settings['incarnation']}")
    trainer = Trainer(
        SPECS, device=DEVICE, incarnation=settings["incarnation"], rpc=settings["rpc"]
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
        else:
            connection.send({"event": "published", "digest": trainer.publish(command)})

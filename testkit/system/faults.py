"""How a fault is made so that it costs something, and what the trainer counts of it."""

from __future__ import annotations

import signal
from contextlib import suppress

import httpx

from rollcast.config.connections import Redis
from rollcast.rollouts.records import Claim, Purpose
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from testkit.system.harness import System, wait_for


def count_joined(system: System) -> float:
    """Generators that the trainer's page counts, or 0 without a page."""
    with suppress(httpx.HTTPError, OSError, ValueError):
        return system.metrics("trainer").get(("rollcast_generators", (("state", "joined"),)), 0.0)
    return 0.0


def stop_holding_tasks(system: System, name: str) -> dict[int, Claim]:
    """SIGSTOP a generator at a moment when it holds tasks, so that the fault always costs
    something; those tasks.

    Some of them are to be trained on: the trainer's books tell of no other.
    """
    queue = RedisTrainerQueue(Redis(port=system.redis_port), system.settings["run"])

    def held_when_stopped() -> dict[int, Claim]:
        system.signal(name, signal.SIGSTOP)
        claims = queue.outstanding().claims
        generator_claims = {
            sequence: claim
            for sequence, claim in claims.items()
            if claim.owner.startswith(f"{name}-")
        }
        if all(claim.purpose is not Purpose.TRAIN for claim in generator_claims.values()):
            system.signal(name, signal.SIGCONT)
            return {}
        return generator_claims

    held_claims: dict[int, Claim] = wait_for(
        held_when_stopped, 60, f"{name} holding tasks", every=0.03
    )
    queue.close()
    return held_claims

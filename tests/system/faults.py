"""What a generator that was frozen in the middle of a publish would send."""

from __future__ import annotations

import asyncio

from rollcast.config.connections import Redis
from rollcast.rollouts.base import Claimed
from rollcast.rollouts.records import Claim
from rollcast.rollouts.redis_generator_queue import RedisGeneratorQueue
from testkit.rollouts.examples import make_group, make_task
from testkit.system.harness import System


def answer_late(system: System, held: dict[int, Claim]) -> None:
    """What the frozen generator would send if it woke up in the middle of a publish: wire 1 must
    not take it.
    """

    async def publish() -> list[bool]:
        taken = []
        for sequence, claim in held.items():
            queue = RedisGeneratorQueue(
                Redis(port=system.redis_port), system.settings["run"], claim.owner
            )
            claimed = Claimed(
                make_task(sequence, purpose=claim.purpose), claim.stream_id, claim.first_version
            )
            taken.append(await queue.publish(claimed, make_group(claimed, claim.owner)))
            await queue.close()
        return taken

    assert not any(asyncio.run(publish()))

"""Ends a container whose files take more than it may write: podman has no limit of disk on usual
file systems.

start -> every few seconds: its folder of this machine is measured -> too much: ended with a reason
"""

import asyncio

from rollcast.environments.containers.podman import PodmanContainer
from rollcast.environments.hosted.disk_use import DiskLimits, excess

PERIOD_SECONDS = 5.0
"""How often a container is measured."""


async def watch_disk(container: PodmanContainer, max_bytes: int) -> None:
    """Until it has ended. Raises nothing but a cancellation."""
    folder = await container.written_folder()
    if folder is None:
        return
    # Counting half a million files takes some seconds, in a thread of its own.
    limits = DiskLimits(num_bytes=max_bytes, num_entries=500_000)
    while not container.has_ended:
        if reason := await asyncio.to_thread(excess, folder, (), limits):
            container.end_reason = reason
            await container.end()
            return
        await asyncio.sleep(PERIOD_SECONDS)

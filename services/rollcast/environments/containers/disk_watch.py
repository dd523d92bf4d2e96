"""Ends a container whose files take more than it may write: podman has no limit of disk on usual
file systems.

start -> every few seconds: its folder of this machine is measured -> too much: ended with a reason
"""

import asyncio
import contextlib

from rollcast.environments.containers.container import ContainerError
from rollcast.environments.containers.podman import PodmanContainer
from rollcast.environments.hosted.disk_use import DiskLimits, excess, open_unchanged


async def watch_disk(container: PodmanContainer, max_bytes: int) -> None:
    """Measure a container until it has ended."""
    folder = None
    reason = ""
    # Counting half a million files takes some seconds, in a thread of its own.
    limits = DiskLimits(num_bytes=max_bytes, num_entries=500_000)
    while not container.has_ended:
        # podman may be slow for a while: the next look succeeds.
        with contextlib.suppress(ContainerError):
            folder = folder or await container.written_folder()
            processes = await container.process_ids()
            if folder is not None:
                reason = await asyncio.to_thread(
                    excess, folder, processes, limits, opened_by=open_unchanged
                )
            if reason:
                await container.end_because(reason)
                return
        # How often a container is measured
        await asyncio.sleep(5.0)

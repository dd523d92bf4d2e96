"""Ends a container whose files take more than it may write: podman has no limit of disk on usual
file systems.

start -> every few seconds: its folder of this machine is measured -> too much: ended with a reason
"""

import asyncio
import contextlib

from rollcast.environments.containers.errors import ContainerError
from rollcast.environments.containers.podman_container import PodmanContainer
from rollcast.environments.python_processes.disk_use import DiskLimits, excess, open_unchanged


async def watch_disk(container: PodmanContainer, max_bytes: int) -> None:
    """Measure a container until it has ended."""
    places = None
    # Counting half a million files takes some seconds, in a thread of its own.
    limits = DiskLimits(num_bytes=max_bytes, num_entries=500_000)
    while not container.is_over:
        # podman may be slow for a while, or the container end: the next look knows.
        with contextlib.suppress(ContainerError, OSError, ValueError):
            places = places or await container.watched_places()
            if places is not None:
                folder, process_lists = places
                processes = [
                    int(line) for file in process_lists for line in file.read_text().split()
                ]
                reason = await asyncio.to_thread(
                    excess, folder, processes, limits, opened_by=open_unchanged
                )
                if reason:
                    await container.end_because(reason)
                    return
        # How often a container is measured
        await asyncio.sleep(5.0)

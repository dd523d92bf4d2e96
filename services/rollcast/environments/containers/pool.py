"""The containers of one environment: some are started ahead.

acquire -> a warm one, else a new one -> given to an episode -> release: ended
    '--- another is started in its place, in the background
close: all are ended
"""

import asyncio
from collections.abc import Mapping

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.containers.abandoned import remove_abandoned_containers
from rollcast.environments.containers.container import ContainerError
from rollcast.environments.containers.disk_watch import watch_disk
from rollcast.environments.containers.podman import Podman, PodmanContainer, podman_command


class ContainerPool:
    """Safe for any number of episodes at the same time, in one event loop."""

    def __init__(self, settings: ContainerSettings, start_seconds: float) -> None:
        self._settings = settings
        self._start_seconds = start_seconds
        self._podman = Podman(settings)
        self._warm: list[asyncio.Task[PodmanContainer]] = []
        self._watches: dict[PodmanContainer, asyncio.Task[None]] = {}
        remove_abandoned_containers(podman_command(settings))
        self._fill()

    async def acquire(
        self, image: str | None = None, variables: Mapping[str, str] = {}
    ) -> PodmanContainer:
        """A container that nobody used. image: of the episode's row; None = the settings'. Raises
        EnvironmentFailedError.
        """
        image = image or self._settings.image
        if image is None:
            raise EnvironmentFailedError(
                "its row has no field `image`, and neither has the environment"
            )
        try:
            if self._warm and image == self._settings.image and not variables:
                starting = self._warm.pop(0)
                self._fill()
                container = await starting
                # One that waited for long may have reached the end of its life.
                if container.has_ended:
                    container = await self._start(image, variables)
            else:
                container = await self._start(image, variables)
        except ContainerError as error:
            raise EnvironmentFailedError(f"container of {image}: {error}") from error
        return container

    async def release(self, container: PodmanContainer) -> None:
        """End a container that `acquire` gave."""
        watch = self._watches.pop(container, None)
        if watch is not None:
            watch.cancel()
        await container.end()

    async def close(self) -> None:
        """End all."""
        warm, self._warm = self._warm, []
        for starting in warm:
            starting.cancel()
        await asyncio.gather(*warm, return_exceptions=True)
        await asyncio.gather(*(self.release(container) for container in list(self._watches)))

    def _fill(self) -> None:
        image = self._settings.image
        while image is not None and len(self._warm) < self._settings.warm:
            self._warm.append(asyncio.create_task(self._start(image, {})))

    async def _start(self, image: str, variables: Mapping[str, str]) -> PodmanContainer:
        container = await self._podman.start(image, self._start_seconds, variables)
        max_bytes = int(self._settings.disk_gib * (1 << 30))
        self._watches[container] = asyncio.create_task(watch_disk(container, max_bytes))
        return container

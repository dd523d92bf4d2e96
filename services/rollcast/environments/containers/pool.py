"""The containers of one environment: some are started ahead.

acquire -> a warm one, else a new one -> given to an episode -> release: ended
    '--- another is started in its place, in the background
close: all are ended, and none starts any more
"""

import asyncio
from collections.abc import Mapping

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.containers.container import Container, ContainerEngine
from rollcast.environments.containers.errors import ContainerError


class ContainerPool:
    """Safe for any number of episodes at the same time, in one event loop."""

    def __init__(
        self, engine: ContainerEngine, settings: ContainerSettings, start_seconds: float
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._start_seconds = start_seconds
        self._warm: list[asyncio.Task[Container]] = []
        self._starting: set[asyncio.Task[Container]] = set()
        self._started: set[Container] = set()
        """Containers that have not been ended."""
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._fill()

    async def acquire(
        self, image: str | None = None, variables: Mapping[str, str] = {}
    ) -> Container:
        """A container that no episode used. image: of the episode's row; None = the settings'.

        Raises EnvironmentFailedError.
        """
        image = image or self._settings.image
        if image is None:
            raise EnvironmentFailedError(
                "its row has no field `image`, and neither has the environment"
            )
        if image == self._settings.image and not variables:
            while self._warm:
                starting = self._warm.pop(0)
                self._fill()
                # One that failed, or reached the end of its life while it waited, is passed over.
                if (container := await self._finish(starting)) is not None:
                    return container
        starting = self._start(image, variables)
        container = await self._finish(starting)
        if container is None:
            raise EnvironmentFailedError(f"container of {image}: {starting.exception()}")
        return container

    async def release(self, container: Container) -> None:
        """End a container that `acquire` gave."""
        await container.end()
        self._started.discard(container)

    async def close(self) -> None:
        """End all."""
        self._is_closed = True
        for starting in self._starting:
            starting.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(self.release(container) for container in self._started))
        await self._engine.close()

    def _fill(self) -> None:
        image = self._settings.image
        while image is not None and len(self._warm) < self._settings.warm and not self._is_closed:
            self._warm.append(self._start(image, {}))

    async def _finish(self, starting: asyncio.Task[Container]) -> Container | None:
        """The container of a start; None = the start failed, or the container has ended. It is also
        ended if its episode is given up meanwhile.
        """
        try:
            await asyncio.wait({starting})
            if starting.cancelled() or starting.exception() is not None:
                return None
            container = starting.result()
            if await container.has_ended():
                await self.release(container)
                return None
            return container
        except asyncio.CancelledError:
            starting.add_done_callback(self._end_unused)
            raise

    def _start(self, image: str, variables: Mapping[str, str]) -> asyncio.Task[Container]:
        starting = asyncio.create_task(self._start_watched(image, variables))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        return starting

    async def _start_watched(self, image: str, variables: Mapping[str, str]) -> Container:
        """Raises ContainerError."""
        if self._is_closed:
            raise ContainerError("the generator ends")
        container = await self._engine.start(image, self._start_seconds, variables)
        self._started.add(container)
        return container

    def _end_unused(self, starting: asyncio.Task[Container]) -> None:
        if not starting.cancelled() and starting.exception() is None:
            ending = asyncio.create_task(self.release(starting.result()))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

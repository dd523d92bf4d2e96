"""Starts pods, tries their images before a run, and removes those of killed processes."""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from rollcast.config.base import CONTAINER_IMAGE
from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.abandoned import is_gone
from rollcast.environments.containers.container import COMMAND_SECONDS
from rollcast.environments.containers.errors import ContainerError
from rollcast.environments.containers.pods.api import ClusterError, PodApi
from rollcast.environments.containers.pods.manifest import (
    OWNER_LABEL,
    PROCESS_LABEL,
    owner,
    pod_manifest,
)
from rollcast.environments.containers.pods.pod import PodContainer
from rollcast.environments.containers.pods.state import (
    failure_reason,
    has_failed,
    is_running,
)

T = TypeVar("T")


class Kubernetes:
    """A ContainerEngine."""

    def __init__(self, settings: ContainerSettings, environment: str) -> None:
        self._settings = settings
        self._environment = environment
        self._connecting: asyncio.Task[PodApi] | None = None

    async def start(
        self, image: str, start_seconds: float, variables: Mapping[str, str] = {}
    ) -> PodContainer:
        if self._connecting is None:
            self._connecting = asyncio.create_task(PodApi.connect(self._settings.namespace))
        try:
            api = await asyncio.shield(self._connecting)
        except ClusterError as error:
            self._connecting = None
            raise ContainerError(str(error)) from error
        return await self._start(api, image, start_seconds, variables)

    async def close(self) -> None:
        if self._connecting is not None:
            (api,) = await asyncio.gather(self._connecting, return_exceptions=True)
            if isinstance(api, PodApi):
                await api.close()

    def remove_abandoned(self) -> int:
        try:
            return _run_apart(self._remove_abandoned())
        except (ClusterError, ValueError):
            return 0

    def missing(self, field: str) -> Iterator[str]:
        try:
            rights = _run_apart(self._missing_rights())
        except ClusterError as error:
            yield f"{field}.engine = kubernetes: {error}; run in a pod with a service account"
            return
        if rights:
            yield (
                f"{field}.engine = kubernetes: this account may not {', '.join(rights)}; grant it "
                "by a Role, as the chart does"
            )

    def missing_images(
        self, images: Mapping[str, str], field: str, command: str = ":"
    ) -> Iterator[str]:
        """Each image is tried by a short pod."""
        yield from _run_apart(self._try_images(images, field, command))

    async def _start(
        self, api: PodApi, image: str, start_seconds: float, variables: Mapping[str, str]
    ) -> PodContainer:
        if re.fullmatch(CONTAINER_IMAGE, image) is None:
            raise ContainerError("this is no name of an image")
        name = f"rollcast-{uuid.uuid4().hex[:16]}"
        manifest = pod_manifest(self._settings, self._environment, name, image, variables)
        container = PodContainer(api, name, self._settings)
        try:
            await api.create(manifest)
            container.is_created = True
            await _wait_until_running(api, name, start_seconds)
        except BaseException as error:
            await asyncio.shield(container.end())
            if isinstance(error, ClusterError):
                raise ContainerError(f"it cannot be started: {error}") from error
            raise
        return container

    async def _missing_rights(self) -> list[str]:
        async with self._open_api() as api:
            needed = [(verb, "") for verb in ("create", "get", "list", "watch", "delete")]
            needed += [(verb, "exec") for verb in ("create", "get")]
            return [
                f"{verb} pods{subresource and '/'}{subresource}"
                for verb, subresource in needed
                if not await api.is_allowed(verb, subresource)
            ]

    async def _try_images(self, images: Mapping[str, str], field: str, command: str) -> list[str]:
        # As many pods at a time as a small cluster has room for
        room = asyncio.Semaphore(16)
        loop = asyncio.get_running_loop()
        # Of all together, because the generator does not start before: twenty gibibytes at ten
        # mebibytes a second
        deadline = loop.time() + 1_800.0

        async def try_image(api: PodApi, image: str) -> str:
            async with room:
                try:
                    seconds = round(max(deadline - loop.time(), 1.0))
                    container = await self._start(api, image, seconds, {})
                except ContainerError as error:
                    return f"{error}"
                try:
                    output = await container.run(["/bin/sh", "-c", command], COMMAND_SECONDS)
                    return f"{command} failed in it: {output.text}" if output.code else ""
                except ContainerError as error:
                    return f"{error}"
                finally:
                    await container.end()

        try:
            # Such as those of a former check that was ended
            await self._remove_abandoned()
            async with self._open_api() as api:
                failures = await asyncio.gather(*(try_image(api, image) for image in images))
        except (ClusterError, ValueError) as error:
            return [f"{field}.engine = kubernetes: {error}; run in a pod with a service account"]
        return [
            f"{named_by} = {image}: {failure}; correct the name, or what keeps its pod from a start"
            for (image, named_by), failure in zip(images.items(), failures, strict=True)
            if failure
        ]

    async def _remove_abandoned(self) -> int:
        async with self._open_api() as api:
            names = [
                pod["metadata"]["name"]
                for pod in await api.list_pods(f"{OWNER_LABEL}={owner()}")
                if is_gone(pod["metadata"]["labels"].get(PROCESS_LABEL, "0").replace("-", ":"))
            ]
            for name in names:
                await api.delete(name)
            return len(names)

    @asynccontextmanager
    async def _open_api(self) -> AsyncIterator[PodApi]:
        """A connection of one call, in an event loop of its own. Raises ClusterError."""
        api = await PodApi.connect(self._settings.namespace)
        try:
            yield api
        finally:
            await api.close()


def _run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Wait for it in a thread: the caller, such as a notebook, may have an event loop. Every call
    to the cluster has its own deadline.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _wait_until_running(api: PodApi, name: str, seconds: float) -> None:
    """Raises ContainerError and ClusterError."""
    reason = ""
    try:
        async with asyncio.timeout(seconds):
            while True:
                async for pod in api.watch(name):
                    if pod is None:
                        raise ContainerError("its pod was deleted")
                    if is_running(pod):
                        return
                    reason = failure_reason(pod) or reason
                    if has_failed(pod):
                        raise ContainerError(f"it cannot be started: {reason}")
                # An API server that ends every watch is not asked without a pause.
                await asyncio.sleep(0.5)
    except TimeoutError:
        raise ContainerError(f"it was not started within {seconds:g} s ({reason})") from None

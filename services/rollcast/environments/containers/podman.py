"""Containers by podman's command line.

    podman run -i (kept open) ---------------------------------------. ends the container when this
        |                                                            | process closes it, or dies
    exec, exec, cp ...                                               |
        '--- end: rm --force, and the command above ends ------------'

Every command has a deadline. The first process of a container reads its standard input until that
closes; a generator that is killed therefore leaves no container.
"""

import asyncio
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping

from rollcast.config.base import CONTAINER_IMAGE
from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.abandoned import (
    LABEL,
    process_identity,
    remove_abandoned_containers,
)
from rollcast.environments.containers.check import missing_for_podman, missing_podman_images
from rollcast.environments.containers.disk_watch import watch_disk
from rollcast.environments.containers.errors import ContainerError
from rollcast.environments.containers.podman_arguments import limit_arguments, podman_command
from rollcast.environments.containers.podman_container import PodmanContainer

FIRST_PROCESS = "exec 3<&0; while :; do (read -r _ <&3) & wait $!; [ $? -eq 1 ] && exit 0; done"
"""Waits until standard input closes. A child waits for that, so that the process can collect
orphans; another child follows when a command of the container has ended everything."""


class Podman:
    """A ContainerEngine."""

    def __init__(self, settings: ContainerSettings) -> None:
        self._settings = settings
        self._podman = podman_command(settings)

    async def start(
        self, image: str, start_seconds: float, variables: Mapping[str, str] = {}
    ) -> PodmanContainer:
        if re.fullmatch(CONTAINER_IMAGE, image) is None:
            raise ContainerError("this is no name of an image")
        name = f"rollcast-{uuid.uuid4().hex[:16]}"
        command = [
            *self._podman, "run", "--interactive", "--rm", "--pull", "never", "--name", name,
            *("--label", f"{LABEL}={process_identity()}"),
            *("--timeout", str(int(self._settings.seconds))),
            # Output that a program writes to the first process's is kept nowhere.
            *("--log-driver", "none", *limit_arguments(self._settings)),
            *(f"--env={variable}={value}" for variable, value in variables.items()),
            *("--entrypoint", json.dumps(["/bin/sh", "-c", FIRST_PROCESS]), image),
        ]  # fmt: skip
        read_end, write_end = os.pipe()
        try:
            keeper = await asyncio.create_subprocess_exec(
                *command,
                stdin=read_end,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                # podman's watcher writes a file into its folder when memory runs out: not here.
                cwd="/proc",
                start_new_session=True,
            )
        except BaseException as error:
            os.close(write_end)
            if isinstance(error, OSError | ValueError):
                raise ContainerError(f"podman cannot be started: {error}") from error
            raise
        finally:
            os.close(read_end)
        container = PodmanContainer(name, self._podman, keeper, write_end, self._settings)
        try:
            await container.wait_until_ready(start_seconds)
        except BaseException:
            await asyncio.shield(container.end())
            raise
        max_bytes = int(self._settings.disk_gib * (1 << 30))
        container.disk_watch = asyncio.create_task(watch_disk(container, max_bytes))
        return container

    async def close(self) -> None:
        """Podman holds nothing."""

    def remove_abandoned(self) -> int:
        return remove_abandoned_containers(self._podman)

    def missing(self, field: str) -> Iterator[str]:
        return missing_for_podman(self._settings, field)

    def missing_images(
        self, images: Mapping[str, str], field: str, command: str = ":"
    ) -> Iterator[str]:
        return missing_podman_images(self._settings, images, field, command)

"""One pod: commands in it, files into it and out of it."""

import asyncio
import io
import os
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import IO, Any

import structlog

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.container import (
    COMMAND_SECONDS,
    END_ALL,
    MAKE_ROOM,
    CommandOutput,
    ContainerError,
    SpoiledError,
)
from rollcast.environments.containers.files import ArchivedFiles
from rollcast.environments.containers.pods.api import ClusterError, PodApi
from rollcast.environments.containers.pods.command import (
    LostCommandError,
    run_in_pod,
    stream_command,
)
from rollcast.environments.containers.pods.served import ServedCommands
from rollcast.environments.containers.pods.state import end_error

BEGIN = (
    'ulimit -c 0; ulimit -f "$1"; [ -z "$2" ] || cd -- "$2" || exit 126; n=$3; shift 3; '
    'while [ "$n" -gt 0 ]; do export "$1"; shift; n=$((n-1)); done; exec "$@" 2>&1'
)
"""Program of a shell: the largest file in blocks, the folder, the number of variables, those, and
the command."""
UNPACK = f'{{ cd / && {MAKE_ROOM} && head -c "$3" | tar -C "$2" -xf -; }} 2>&1'
"""One command: none begins while the folder of the image is not there."""
PACK = 'tar -C "$1" -cf - "./$2"'
PACK_TARGET = 'tar -C "$1" -chf - "./$2"'
"""A link is followed."""
log = structlog.get_logger()


class PodContainer(ArchivedFiles):
    """A Container."""

    def __init__(self, api: PodApi, name: str, settings: ContainerSettings) -> None:
        super().__init__(settings)
        self._api = api
        self._name = name
        self._end_reason = ""
        """Deed of its programs for which it was ended from here; empty = none."""
        self._is_ended = False
        """Whether it was ended from here: a cluster lets it run for a moment."""
        self._served: list[ServedCommands] = []

    @property
    def name(self) -> str:
        return self._name

    async def has_ended(self) -> bool:
        try:
            return (
                self._is_ended
                or end_error(await self._api.read(self._name), self._settings) is not None
            )
        except ClusterError:
            return False

    async def open_commands(self, *, user: str | None, folder: str | None) -> list[str]:
        def stream(command: Sequence[str]) -> AsyncGenerator[bytes | int, None]:
            begun = self._begin(command, {}, user, folder)
            return stream_command(self._api, self._name, begun)

        served = await ServedCommands.start(stream)
        self._served.append(served)
        return served.command

    async def run(
        self,
        command: Sequence[str],
        seconds: float,
        *,
        variables: Mapping[str, str] = {},
        user: str | None = None,
        folder: str | None = None,
    ) -> CommandOutput:
        output = await self._run(self._begin(command, variables, user, folder), seconds)
        if output.is_overdue:
            # The end of the connection does not end the program in the pod.
            await self.end_programs()
        await self._raise_if_gone(output)
        return output

    async def end_programs(self) -> None:
        """End every process except the first one. Raises SpoiledError if that cannot be done."""
        # A pod in which this takes longer is ended
        output = await self._run(["/bin/sh", "-c", END_ALL], 10.0)
        if output.is_overdue:
            if not await self._is_alive():
                raise await self._find_end()
            self._end_reason = "its programs could not be ended"
            await self.end()
            raise SpoiledError(self._end_reason)

    async def end(self) -> None:
        self._is_ended = True
        while self._served:
            await self._served.pop().close()
        # An API server that restarts is back in some seconds.
        for pause_seconds in (0.0, 1.0, 5.0):
            await asyncio.sleep(pause_seconds)
            try:
                await self._api.delete(self._name)
                return
            except ClusterError as error:
                reason = str(error)
        log.warning("a pod cannot be removed", pod=self._name, reason=reason)

    def _begin(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        user: str | None,
        folder: str | None,
    ) -> list[str]:
        # The commands of a pod are all its image's user's.
        if user not in (None, "0", "root"):
            raise ContainerError(f"no command of a pod can be that of the user {user}")
        # A shell counts blocks of 512 bytes
        num_blocks = int(self._settings.disk_gib * (1 << 21))
        assignments = [f"{name}={value}" for name, value in variables.items()]
        return [
            *("/bin/sh", "-c", BEGIN, "sh", str(num_blocks), folder or "", str(len(assignments))),
            *assignments,
            *command,
        ]

    async def _run(self, command: Sequence[str], seconds: float, **options: Any) -> CommandOutput:
        """options: of run_in_pod. Raises ContainerError if the pod is gone, or the command's end is
        not known.
        """
        if self._is_ended:
            raise await self._find_end()
        try:
            return await run_in_pod(self._api, self._name, command, seconds, **options)
        except LostCommandError as error:
            if _names_absent_program(error):
                raise SpoiledError("its shell or the folder of its image was removed") from error
            if await self._is_alive():
                raise ContainerError(str(error)) from error
            raise await self._find_end() from error

    async def _unpack(self, archive: bytes | IO[bytes], *, removed: str, target: str) -> None:
        stdin = io.BytesIO(archive) if isinstance(archive, bytes) else archive
        num_bytes = stdin.seek(0, os.SEEK_END)
        stdin.seek(0)
        unpacking = ["/bin/sh", "-c", UNPACK, "sh", removed, target, str(num_bytes)]
        output = await self._run(unpacking, COMMAND_SECONDS, stdin=stdin)
        if output.code:
            await self._raise_if_gone(output)
            raise SpoiledError(f"files cannot be copied to {target}: {output.text}")

    async def _pack(
        self, path: str, max_bytes: int, output_file: IO[bytes] | None
    ) -> CommandOutput:
        place = PurePosixPath(path)
        program = PACK_TARGET if output_file is None else PACK
        output = await self._run(
            ["/bin/sh", "-c", program, "sh", str(place.parent), place.name],
            COMMAND_SECONDS,
            output_file=output_file,
            max_bytes=max_bytes,
        )
        if output.is_overdue:
            raise SpoiledError(f"{path} was not copied within {COMMAND_SECONDS:g} s")
        return output

    async def _raise_if_gone(self, output: CommandOutput) -> None:
        # Codes of a shell that cannot start a program, and of signals
        if output.code >= 125 and (self._is_ended or not await self._is_alive()):
            raise await self._find_end()

    async def _is_alive(self) -> bool:
        """Whether the pod starts programs: by one that is not there, because its own programs may
        have replaced every other one.
        """
        absent = f"/rollcast-{uuid.uuid4().hex}"
        try:
            return not (await run_in_pod(self._api, self._name, [absent], 10.0)).is_overdue
        except LostCommandError as error:
            return _names_absent_program(error)

    async def _find_end(self) -> ContainerError:
        """What the end of the pod is, once the cluster knows."""
        if self._end_reason:
            return SpoiledError(self._end_reason)
        if self._is_ended:
            return ContainerError("it has ended")
        # A kubelet reports an end within some seconds, the loss of a node in 50 s.
        for _ in range(60):
            try:
                pod = await self._api.read(self._name)
            except ClusterError as error:
                return ContainerError(str(error))
            if (end := end_error(pod, self._settings)) is not None:
                return end
            await asyncio.sleep(1.0)
        return ContainerError("its pod starts no programs")


def _names_absent_program(error: LostCommandError) -> bool:
    """Whether a runtime says that a file of the pod is not there. One in /proc is of a process that
    ends at this moment.
    """
    text = str(error).lower()
    return "no such file or directory" in text and "/proc/" not in text

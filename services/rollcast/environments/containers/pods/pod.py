"""One pod: commands in it, files into it and out of it."""

import asyncio
import io
import os
import shlex
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import IO

import structlog

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.bounded_output import CommandOutput
from rollcast.environments.containers.container import (
    COMMAND_SECONDS,
    END_ALL,
    MAKE_ROOM,
    Container,
)
from rollcast.environments.containers.errors import ContainerError, SpoiledError
from rollcast.environments.containers.pods.api import ClusterError, PodApi
from rollcast.environments.containers.pods.command import (
    LostCommandError,
    RefusedCommandError,
    run_in_pod,
    stream_command,
)
from rollcast.environments.containers.pods.served import ServedCommands
from rollcast.environments.containers.pods.state import end_error

START_COMMAND = ("/bin/sh", "-c", 'newline="\n"; IFS= read -r line && eval "$line"')
"""Reads a line of shell from standard input: clusters log a command's address."""
UNPACK = f'{{ cd / && {MAKE_ROOM} && head -c "$3" | tar -C "$2" -xf -; }} 2>&1'
"""One command: none begins while the folder of the image is not there."""
PACK_LINK = 'tar -C "$1" -cf - "./$2"'
PACK_TARGET = 'tar -C "$1" -chf - "./$2"'
"""A link is followed."""
log = structlog.get_logger()


class PodContainer(Container):
    """A pod of an episode."""

    def __init__(self, api: PodApi, name: str, settings: ContainerSettings) -> None:
        super().__init__(name, settings)
        self._api = api
        self.is_created = False
        """Whether the cluster has answered that it is there."""
        self._end_reason = ""
        """Why it was ended for a deed of its programs; empty = it was not."""
        self._is_ended = False
        """Whether it was ended from here: a cluster lets it run for a moment."""
        self._served: list[ServedCommands] = []

    async def has_ended(self) -> bool:
        try:
            return (
                self._is_ended
                or end_error(await self._api.read(self.name), self._settings) is not None
            )
        except ClusterError:
            return False

    async def open_commands(self, *, user: str | None, folder: str | None) -> list[str]:
        def stream(command: Sequence[str]) -> AsyncGenerator[bytes | int, None]:
            script = self._script(command, {}, user, folder)
            return stream_command(self._api, self.name, START_COMMAND, script)

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
        script = self._script(command, variables, user, folder)
        output = await self._run(START_COMMAND, seconds, stdin=script)
        # The end of the connection does not end the program in the pod.
        if output.is_overdue or (output.code == 137 and output.num_dropped):
            await self.end_programs()
        await self._raise_if_gone(output)
        return output

    async def end_programs(self) -> None:
        """End every process except the first one, and serve no further command.

        Raises SpoiledError if that cannot be done, ContainerError if a served command was lost.
        """
        if any([await served.close() for served in self._served]):
            # One that was on its way may still begin.
            await asyncio.sleep(2.0)
        # A pod in which this takes longer is ended
        output = await self._run(["/bin/sh", "-c", END_ALL], 10.0)
        if output.is_overdue:
            await self._check_alive()
            self._end_reason = "its programs could not be ended"
            await self.end()
            raise SpoiledError(self._end_reason)
        for served in self._served:
            if served.failure:
                raise ContainerError(f"a command was lost: {served.failure}")

    async def end(self) -> None:
        self._is_ended = True
        for served in self._served:
            await served.close()
        reason = ""
        # An API server that restarts is back in some seconds. A pod whose creation was not answered
        # may come after an admission of ten.
        for pause_seconds in (0.0, 1.0, 5.0, 10.0):
            await asyncio.sleep(pause_seconds)
            try:
                if await self._api.delete(self.name) or self.is_created:
                    return
                reason = ""
            except ClusterError as error:
                reason = str(error)
        if reason:
            log.warning("a pod cannot be removed", pod=self.name, reason=reason)

    def _script(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        user: str | None,
        folder: str | None,
    ) -> IO[bytes]:
        """The line that START_COMMAND reads."""
        # The commands of a pod are all its image's user's.
        if user not in (None, "0", "root"):
            raise ContainerError(f"no command of a pod can be that of the user {user}")
        # A shell counts blocks of 512 bytes
        num_blocks = int(self._settings.disk_gib * (1 << 21))
        lines = [
            f"ulimit -c 0; ulimit -f {num_blocks}",
            *((f"cd -- {shlex.quote(folder)} || exit 126",) if folder else ()),
            *(f"export {shlex.quote(f'{name}={value}')}" for name, value in variables.items()),
            f"exec {shlex.join(command)} 2>&1 </dev/null",
        ]
        # Every other end of a line is between single quotes.
        line = "; ".join(lines).replace("\n", "'\"$newline\"'")
        return io.BytesIO(line.encode("utf-8", "surrogateescape") + b"\n")

    async def _run(
        self,
        command: Sequence[str],
        seconds: float,
        *,
        stdin: IO[bytes] | None = None,
        output_file: IO[bytes] | None = None,
        max_bytes: int = 1 << 20,
    ) -> CommandOutput:
        """See run_in_pod. Raises ContainerError if the pod is gone, or the command's end is
        not known.
        """
        if self._is_ended:
            await self._check_alive()
        try:
            return await run_in_pod(
                self._api,
                self.name,
                command,
                seconds,
                stdin=stdin,
                output_file=output_file,
                max_bytes=max_bytes,
            )
        except LostCommandError as error:
            await self._check_alive()
            if isinstance(error, RefusedCommandError):
                raise SpoiledError(
                    "its shell, or the folder of its image, cannot be used any more"
                ) from error
            raise ContainerError(str(error)) from error

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
        packed_path = PurePosixPath(path)
        program = PACK_TARGET if output_file is None else PACK_LINK
        return await self._run(
            ["/bin/sh", "-c", program, "sh", str(packed_path.parent), packed_path.name],
            COMMAND_SECONDS,
            output_file=output_file,
            max_bytes=max_bytes,
        )

    async def _raise_if_gone(self, output: CommandOutput) -> None:
        # Codes of a shell that cannot start a program, and of signals
        if output.code >= 125:
            await self._check_alive()

    async def _check_alive(self) -> None:
        """Raises ContainerError if the pod starts no programs any more."""
        if self._is_ended:
            raise (
                SpoiledError(self._end_reason)
                if self._end_reason
                else ContainerError("it has ended")
            )
        # One that is not there: its own programs may have replaced every other one.
        absent = f"/rollcast-{uuid.uuid4().hex}"
        is_reached = True
        try:
            if not (await run_in_pod(self._api, self.name, [absent], 10.0)).is_overdue:
                return
        except LostCommandError as error:
            is_reached = isinstance(error, RefusedCommandError)
            # A runtime enters the folder of the image first.
            if is_reached and (absent in str(error) or "chdir" in str(error)):
                return
        # A kubelet reports an end within some seconds, the loss of a node in 50 s.
        for _ in range(60):
            try:
                pod = await self._api.read(self.name)
            except ClusterError as error:
                raise ContainerError(str(error)) from error
            if (end := end_error(pod, self._settings)) is not None:
                raise end
            await asyncio.sleep(1.0)
        if is_reached:
            raise SpoiledError("its programs leave no room for another one")
        raise ContainerError("no command reaches its pod")

"""One container of podman: commands in it, files into it and out of it."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import structlog

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.bounded_output import CommandOutput
from rollcast.environments.containers import enter
from rollcast.environments.containers.container import (
    COMMAND_SECONDS,
    END_ALL,
    MAKE_ROOM,
    Container,
)
from rollcast.environments.containers.errors import ContainerError, SpoiledError
from rollcast.environments.containers.host_command import run_host_command
from rollcast.environments.last_lines import LastLines

log = structlog.get_logger()


class PodmanContainer(Container):
    """A container, and the command of podman that keeps it."""

    def __init__(
        self,
        name: str,
        podman: Sequence[str],
        keeper: asyncio.subprocess.Process,
        stdin: int,
        settings: ContainerSettings,
    ) -> None:
        """keeper: the command that started it, and ends with it. stdin: ends it when closed."""
        super().__init__(name, settings)
        self._podman = list(podman)
        self._keeper = keeper
        self._stdin: int | None = stdin
        self._error_output = asyncio.create_task(_read_end(keeper))
        self.disk_watch: asyncio.Task[None] | None = None
        """Ends it if its files take too much."""
        self.end_reason = ""
        """Why it was ended for a deed of its programs; empty = it was not."""

    async def has_ended(self) -> bool:
        return self.is_over

    @property
    def is_over(self) -> bool:
        """Whether the command that started it has ended."""
        return self._keeper.returncode is not None

    async def wait_until_ready(self, seconds: float) -> None:
        """Raises ContainerError."""
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline:
            if self.is_over:
                raise ContainerError(f"it cannot be started: {await self._failure()}")
            if (await self._ask("exec", self.name, "/bin/sh", "-c", ":")).code == 0:
                return
            # How often a container that is being started is looked at
            await asyncio.sleep(0.1)
        raise ContainerError(f"it was not started within {seconds:g} s")

    async def open_commands(self, *, user: str | None, folder: str | None) -> list[str]:
        entering = [sys.executable, "-I", "-S", enter.__file__]
        return [*entering, *self._command_in([], user=user, folder=folder)]

    def _command_in(
        self,
        command: Sequence[str],
        *,
        variables: Mapping[str, str] = {},
        user: str | None = None,
        folder: str | None = None,
    ) -> list[str]:
        """The command of this machine that runs another one in the container."""
        return [
            *self._podman,
            "exec",
            *(f"--env={name}={value}" for name, value in variables.items()),
            *(("--user", user) if user else ()),
            *(("--workdir", folder) if folder else ()),
            self.name,
            *command,
        ]

    async def run(
        self,
        command: Sequence[str],
        seconds: float,
        *,
        variables: Mapping[str, str] = {},
        user: str | None = None,
        folder: str | None = None,
    ) -> CommandOutput:
        host_command = self._command_in(command, variables=variables, user=user, folder=folder)
        output = await run_host_command(host_command, seconds)
        if output.is_overdue:
            # The end of podman's command does not end the program in the container.
            await self.end_programs()
        await self._raise_if_gone(output)
        return output

    async def end_programs(self) -> None:
        command = self._command_in(["/bin/sh", "-c", END_ALL], user="0")
        # A container in which this takes longer is ended
        output = await run_host_command(command, 10.0)
        if output.is_overdue:
            await self.end_because("its programs could not be ended")
            raise SpoiledError(self.end_reason)

    async def end_because(self, reason: str) -> None:
        """End it for what its programs did."""
        self.end_reason = self.end_reason or reason
        await self.end()

    async def end(self) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None
        # A watch that ends its container goes on to do so.
        if self.disk_watch is not None and self.disk_watch is not asyncio.current_task():
            self.disk_watch.cancel()
        if not self.is_over:
            failure = ""
            try:
                removal = await self._ask(
                    *("rm", "--force", "--volumes", "--time", "0", "--ignore", self.name)
                )
                failure = removal.text if removal.code else ""
            except ContainerError as error:
                failure = str(error)
            if failure:
                log.warning("a container cannot be removed", container=self.name, reason=failure)
            await self._wait_for_keeper()
        if not self.is_over:
            self._keeper.kill()
        # podman's watcher may hold the output open.
        await asyncio.wait({self._error_output}, timeout=COMMAND_SECONDS)
        self._error_output.cancel()

    async def watched_places(self) -> tuple[Path, list[Path]] | None:
        """The folder of this machine with all that the container wrote, and the files that list its
        processes. None = not known.
        """
        form = "{{.State.Pid}} {{.GraphDriver.Data.UpperDir}}"
        output = await self._ask("inspect", "--format", form, self.name)
        pid, _, folder = output.text.strip().partition(" ")
        if output.code or not Path(folder).is_absolute():
            return None
        return Path(folder), _process_lists(int(pid))

    async def _failure(self) -> str:
        """The last lines of podman, whose watcher may hold the output open."""
        await asyncio.wait({self._error_output}, timeout=COMMAND_SECONDS)
        return self._error_output.result() if self._error_output.done() else "it did not say why"

    async def _unpack(self, archive: bytes | IO[bytes], *, removed: str, target: str) -> None:
        command = ["/bin/sh", "-c", MAKE_ROOM, "sh", removed, target]
        output = await self.run(command, COMMAND_SECONDS, user="0", folder="/")
        if output.code:
            raise SpoiledError(f"the folder {target} cannot be made: {output.text}")
        output = await run_host_command(
            [*self._podman, "cp", "-", f"{self.name}:{target}"], COMMAND_SECONDS, stdin=archive
        )
        if output.code:
            await self._raise_if_gone(output)
            raise SpoiledError(f"files cannot be copied to {target}: {output.text}")

    async def _pack(
        self, path: str, max_bytes: int, output_file: IO[bytes] | None
    ) -> CommandOutput:
        return await run_host_command(
            [*self._podman, "cp", f"{self.name}:{path}", "-"],
            COMMAND_SECONDS,
            output_file=output_file,
            max_bytes=max_bytes,
        )

    async def _raise_if_gone(self, output: CommandOutput) -> None:
        # Codes of podman itself, of a shell that cannot start a program, and of signals
        if output.code < 125:
            return
        state = await self._ask("inspect", "--format", "{{.State.Running}}", self.name)
        if state.text.strip() == "true":
            return
        await self._wait_for_keeper()
        if self.end_reason:
            raise SpoiledError(self.end_reason)
        # 137: the first process was killed, from outside or for its memory.
        if self._keeper.returncode not in (None, 0, 137):
            raise SpoiledError("its first process was ended by another one")
        raise ContainerError("it has ended")

    async def _wait_for_keeper(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COMMAND_SECONDS):
                await self._keeper.wait()

    async def _ask(self, *arguments: str) -> CommandOutput:
        output = await run_host_command([*self._podman, *arguments], COMMAND_SECONDS)
        if output.is_overdue:
            raise ContainerError(f"podman did not answer within {COMMAND_SECONDS:g} s")
        return output


async def _read_end(keeper: asyncio.subprocess.Process) -> str:
    """The last lines that podman wrote, in one line."""
    assert keeper.stderr is not None
    lines = LastLines()
    # Bytes of one read of a pipe
    while chunk := await keeper.stderr.read(1 << 16):
        lines.add(chunk)
    lines.end()
    await keeper.wait()
    return lines.in_one_line()


def _process_lists(pid: int) -> list[Path]:
    """The files of control groups that list the processes of the group of one."""
    lists = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            lists.append(Path(f"/sys/fs/cgroup/{controllers}{path}/cgroup.procs"))
    return [file for file in lists if file.exists()]

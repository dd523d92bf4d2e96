"""Containers by podman's command line.

    podman run -i (kept open) ---------------------------------------. ends the container when this
        |                                                            | process closes it, or dies
    exec, exec, cp ...                                               |
        '--- end: rm --force, and the command above ends ------------'

Every command has a deadline. The first process of a container reads its standard input until that
closes; a generator that is killed therefore leaves no container.
"""

import asyncio
import contextlib
import json
import os
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.abandoned import owner_label
from rollcast.environments.containers.container import (
    CommandOutput,
    Container,
    ContainerError,
)
from rollcast.environments.containers.files import pack_folder, unpack_file
from rollcast.environments.containers.host_command import run_host_command
from rollcast.environments.last_lines import LastLines

COMMAND_SECONDS = 60.0
"""Deadline of one command of podman that runs nothing of the container, on a busy machine."""
END_SECONDS = 20.0
"""Longest end of a container."""
FIRST_PROCESS = "exec 3<&0; while :; do (read -r _ <&3) & wait $!; [ $? -eq 1 ] && exit 0; done"
"""Waits until standard input closes. Its child waits, so that it can collect orphaned processes,
and starts anew when a command of the container has ended everything."""
END_ALL = "kill -9 -1"
"""In a container it ends every process but the first one and the shell itself."""
MAKE_FOLDER = 'mkdir -p -- "$1"'
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
)  # fmt: skip
"""What package managers need of root. Others, such as raw sockets and devices, are given up."""


def podman_command(settings: ContainerSettings) -> list[str]:
    """podman, with the run file's runtime."""
    return ["podman", *(("--runtime", settings.runtime) if settings.runtime else ())]


def limit_arguments(settings: ContainerSettings) -> list[str]:
    """The limits of one container, as arguments of `podman run`.

    Numbers of files and processes are always given: podman's own defaults are more than a process
    without privileges may ask for.
    """
    memory = int(settings.memory_gib * (1 << 30))
    arguments = [
        *("--ulimit", "nofile=1024:1024"),
        *("--ulimit", f"nproc={settings.processes}:{settings.processes}"),
        *("--ulimit", "core=0:0"),
    ]
    if settings.limits == "rlimits":
        disk = int(settings.disk_gib * (1 << 30))
        return [
            *arguments,
            *("--ulimit", f"as={memory}:{memory}"),
            *("--ulimit", f"fsize={disk}:{disk}"),
        ]
    return [
        *arguments,
        *("--memory", str(memory)),
        *("--memory-swap", str(memory)),
        *("--cpus", f"{settings.processors:g}"),
        *("--pids-limit", str(settings.processes)),
    ]


class Podman:
    """Starts containers with the same settings."""

    def __init__(self, settings: ContainerSettings) -> None:
        self._settings = settings
        self._podman = podman_command(settings)

    async def start(
        self, image: str, start_seconds: float, variables: Mapping[str, str] = {}
    ) -> "PodmanContainer":
        """A new container. variables: of every process in it. Raises ContainerError."""
        settings = self._settings
        name = f"rollcast-{uuid.uuid4().hex[:16]}"
        read_end, write_end = os.pipe()
        command = [
            *self._podman, "run", "--interactive", "--rm", "--pull", "never", "--name", name,
            "--label", owner_label(), "--timeout", str(int(settings.seconds)),
            "--network", settings.network, "--security-opt", "no-new-privileges",
            "--cap-drop", "all", *(f"--cap-add={name}" for name in CAPABILITIES),
            *limit_arguments(settings),
            *(f"--env={name}={value}" for name, value in variables.items()),
            "--entrypoint", json.dumps(["/bin/sh", "-c", FIRST_PROCESS]), image,
        ]  # fmt: skip
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
        except OSError as error:
            os.close(write_end)
            raise ContainerError(f"podman cannot be started: {error.strerror}") from error
        finally:
            os.close(read_end)
        container = PodmanContainer(name, self._podman, keeper, write_end, settings)
        try:
            await container.wait_until_ready(start_seconds)
        except BaseException:
            await asyncio.shield(container.end())
            raise
        return container


class PodmanContainer:
    """A Container."""

    def __init__(
        self,
        name: str,
        podman: Sequence[str],
        keeper: asyncio.subprocess.Process,
        stdin: int,
        settings: ContainerSettings,
    ) -> None:
        """keeper: the command that started it, and ends with it. stdin: ends it when closed."""
        self._name = name
        self._podman = list(podman)
        self._keeper = keeper
        self._stdin: int | None = stdin
        self._settings = settings
        self._error_output = asyncio.create_task(_read_end(keeper))
        self.end_reason = ""
        """Why it was ended from here; empty = it was not."""

    @property
    def name(self) -> str:
        return self._name

    @property
    def has_ended(self) -> bool:
        return self._keeper.returncode is not None

    async def wait_until_ready(self, seconds: float) -> None:
        """Raises ContainerError."""
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline:
            if self.has_ended:
                raise ContainerError(f"it cannot be started: {await self._error_output}")
            if (await self._ask("exec", self._name, "/bin/sh", "-c", ":")).code == 0:
                return
            # How often a container that is being started is looked at
            await asyncio.sleep(0.1)
        raise ContainerError(f"it was not started within {seconds:g} s")

    def command_in(
        self,
        command: Sequence[str],
        *,
        variables: Mapping[str, str] = {},
        user: str | None = None,
        folder: str | None = None,
    ) -> list[str]:
        return [
            *self._podman,
            "exec",
            *(f"--env={name}={value}" for name, value in variables.items()),
            *(("--user", user) if user else ()),
            *(("--workdir", folder) if folder else ()),
            self._name,
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
        host_command = self.command_in(command, variables=variables, user=user, folder=folder)
        output = await run_host_command(host_command, seconds)
        if output.is_overdue:
            # The end of podman's command does not end the program in the container.
            await self._ask("exec", "--user", "0", self._name, "/bin/sh", "-c", END_ALL)
        await self._raise_if_gone(output)
        return output

    async def put(self, folder: Path, target: str) -> None:
        archive = await asyncio.to_thread(pack_folder, folder)
        output = await run_host_command(
            [*self._podman, "exec", "--user", "0", self._name, "/bin/sh", "-c", MAKE_FOLDER, "sh",
             target],
            COMMAND_SECONDS,
        )  # fmt: skip
        await self._raise_if_gone(output)
        await self.unpack(archive, target)

    async def unpack(self, archive: bytes | IO[bytes], target: str) -> None:
        """Unpack a tar archive in a folder that is there. Raises ContainerError."""
        output = await run_host_command(
            [*self._podman, "cp", "-", f"{self._name}:{target}"], COMMAND_SECONDS, stdin=archive
        )
        if output.code:
            await self._raise_if_gone(output)
            raise ContainerError(f"files cannot be copied to {target}: {output.text}")

    async def read(self, path: str, max_bytes: int) -> bytes | None:
        # A tar archive pads what it holds, and ends in blocks of zeros.
        output = await self._pack(path, max_bytes + 32_768, None)
        if output.code:
            await self._raise_if_gone(output)
            return None
        content = None if output.num_dropped else unpack_file(output.content)
        if content is None or len(content) > max_bytes:
            raise ContainerError(f"{path} is no file of at most {max_bytes} bytes")
        return content

    async def copy_to(self, other: Container, path: str) -> None:
        with tempfile.TemporaryFile() as archive:
            max_bytes = int(self._settings.disk_gib * (1 << 30))
            output = await self._pack(path, max_bytes, archive)
            if output.code or output.num_dropped:
                await self._raise_if_gone(output)
                raise ContainerError(f"{path} cannot be copied out of its container")
            archive.seek(0)
            await other.unpack(archive, str(PurePosixPath(path).parent))

    async def end(self) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None
        if not self.has_ended:
            with contextlib.suppress(ContainerError):
                await self._ask("rm", "--force", "--time", "0", "--ignore", self._name)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self._keeper.wait()
        if not self.has_ended:
            self._keeper.kill()
        await self._error_output

    async def written_folder(self) -> Path | None:
        """The folder of this machine with what the container wrote; None = it is not known."""
        output = await self._ask(
            "inspect", "--format", "{{.GraphDriver.Data.UpperDir}}", self._name
        )
        folder = Path(output.text.strip())
        return folder if output.code == 0 and folder.is_absolute() else None

    async def _pack(
        self, path: str, max_bytes: int, output_file: IO[bytes] | None
    ) -> CommandOutput:
        """A file or folder as a tar archive. Raises ContainerError at the deadline."""
        output = await run_host_command(
            [*self._podman, "cp", f"{self._name}:{path}", "-"],
            COMMAND_SECONDS,
            output_file=output_file,
            max_bytes=max_bytes,
        )
        if output.is_overdue:
            raise ContainerError(f"{path} was not copied within {COMMAND_SECONDS:g} s")
        return output

    async def _raise_if_gone(self, output: CommandOutput) -> None:
        """Raises ContainerError if a command failed because its container is not there."""
        # Codes of podman itself, of a shell that cannot start a program, and of signals
        if output.code < 125:
            return
        state = await self._ask("inspect", "--format", "{{.State.Running}}", self._name)
        if state.text.strip() != "true":
            raise ContainerError(self.end_reason or "it has ended")

    async def _ask(self, *arguments: str) -> CommandOutput:
        output = await run_host_command([*self._podman, *arguments], COMMAND_SECONDS)
        if output.is_overdue:
            raise ContainerError(f"podman did not answer within {COMMAND_SECONDS:g} s")
        return output


async def _read_end(keeper: asyncio.subprocess.Process) -> str:
    """The last lines that podman wrote; in one line."""
    assert keeper.stderr is not None
    lines = LastLines()
    # Bytes of one read of a pipe
    while chunk := await keeper.stderr.read(1 << 16):
        lines.add(chunk)
    lines.end()
    await keeper.wait()
    return lines.in_one_line()

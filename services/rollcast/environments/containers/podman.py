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
import re
import resource
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

import structlog

from rollcast.config.base import CONTAINER_IMAGE
from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.abandoned import owner_label
from rollcast.environments.containers.archives import check_archive, pack_folder, unpack_file
from rollcast.environments.containers.container import (
    CommandOutput,
    ContainerError,
    SpoiledError,
)
from rollcast.environments.containers.host_command import run_host_command
from rollcast.environments.last_lines import LastLines

COMMAND_SECONDS = 60.0
"""Deadline of one command of podman that runs nothing of the container, on a busy machine."""
FIRST_PROCESS = "exec 3<&0; while :; do (read -r _ <&3) & wait $!; [ $? -eq 1 ] && exit 0; done"
"""Waits until standard input closes. A child waits for that, so that the process can collect
orphans; another child follows when a command of the container has ended everything."""
END_ALL = "kill -9 -1"
"""Command of a container's shell: it ends every process except the first one and that shell."""
MAKE_ROOM = 'rm -rf -- "$1" && mkdir -p -- "$2"'
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
)  # fmt: skip
"""Rights of root that package managers need. Others, such as to raw sockets and devices, are given
up."""
log = structlog.get_logger()


def podman_command(settings: ContainerSettings) -> list[str]:
    """podman, with the run file's runtime."""
    return ["podman", *(("--runtime", settings.runtime) if settings.runtime else ())]


def limit_arguments(settings: ContainerSettings) -> list[str]:
    """The network, rights and limits of one container, as arguments of `podman run`."""
    memory = int(settings.memory_gib * (1 << 30))
    disk = int(settings.disk_gib * (1 << 30))
    is_grouped = settings.limits == "cgroups"
    num_processes = settings.processes
    if is_grouped:
        # The kernel counts this one over all containers of a user: control groups count for each.
        # podman lowers its own to the machine's largest process number, and can give no more.
        num_processes = int(Path("/proc/sys/kernel/pid_max").read_text())
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        if hard != resource.RLIM_INFINITY:
            num_processes = min(num_processes, hard)
    # podman's own defaults of files and processes are more than a user without privileges may have.
    limits = {"nofile": 1024, "nproc": num_processes, "core": 0, "fsize": disk}
    if not is_grouped:
        limits["data"] = memory
    arguments = [
        *("--network", settings.network, "--security-opt", "no-new-privileges"),
        *("--cap-drop", "all", *(f"--cap-add={name}" for name in CAPABILITIES)),
        # Neither proxies' passwords nor files outside of the container's own layer
        *("--http-proxy=false", "--no-hosts", "--image-volume", "ignore", "--no-healthcheck"),
        *(f"--ulimit={name}={value}:{value}" for name, value in limits.items()),
    ]
    if is_grouped:
        arguments += [
            *("--memory", str(memory), "--memory-swap", str(memory)),
            *("--cpus", f"{settings.processors:g}", "--pids-limit", str(settings.processes)),
        ]
    return arguments


class Podman:
    """Starts containers with the same settings."""

    def __init__(self, settings: ContainerSettings) -> None:
        self._settings = settings
        self._podman = podman_command(settings)

    async def start(
        self, image: str, start_seconds: float, variables: Mapping[str, str] = {}
    ) -> "PodmanContainer":
        """A new container. variables: of every process in it. Raises ContainerError."""
        if re.fullmatch(CONTAINER_IMAGE, image) is None:
            raise ContainerError("this is no name of an image")
        name = f"rollcast-{uuid.uuid4().hex[:16]}"
        command = [
            *self._podman, "run", "--interactive", "--rm", "--pull", "never", "--name", name,
            *("--label", owner_label(), "--timeout", str(int(self._settings.seconds))),
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
        """Deed of its programs for which it was ended from here; empty = none."""

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
                raise ContainerError(f"it cannot be started: {await self._failure()}")
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
            await self.end_programs()
        await self._raise_if_gone(output)
        return output

    async def end_programs(self) -> None:
        """End every process except the first one. Raises SpoiledError if that cannot be done."""
        command = self.command_in(["/bin/sh", "-c", END_ALL], user="0")
        # A container in which this takes longer is ended
        output = await run_host_command(command, 10.0)
        if output.is_overdue:
            await self.end_because("its programs could not be ended")
            raise SpoiledError(self.end_reason)

    async def end_because(self, reason: str) -> None:
        """End it for what its programs did."""
        self.end_reason = self.end_reason or reason
        await self.end()

    async def put(self, folder: Path, target: str) -> None:
        archive = await asyncio.to_thread(pack_folder, folder)
        await self._unpack(archive, removed=target, target=target)

    async def read(self, path: str, max_bytes: int) -> bytes | None:
        # A tar archive pads its files, and ends in blocks of zeros.
        output = await self._pack(path, max_bytes + 32_768, None)
        if output.code:
            await self._raise_if_gone(output)
            return None
        content = None if output.num_dropped else unpack_file(output.content)
        if content is None or len(content) > max_bytes:
            raise SpoiledError(f"{path} is no file of at most {max_bytes} bytes")
        return content

    async def copy_to(self, other: "PodmanContainer", path: str) -> None:
        max_bytes = int(self._settings.disk_gib * (1 << 30))
        with tempfile.TemporaryFile() as archive:
            output = await self._pack(path, max_bytes, archive)
            if output.code:
                await self._raise_if_gone(output)
                return
            if output.num_dropped:
                raise SpoiledError(f"{path} has more than {max_bytes} bytes")
            archive.seek(0)
            with await asyncio.to_thread(check_archive, archive, path) as checked:
                await other._unpack(checked, removed=path, target=str(PurePosixPath(path).parent))

    async def end(self) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None
        if not self.has_ended:
            failure = ""
            try:
                removal = await self._ask(
                    *("rm", "--force", "--volumes", "--time", "0", "--ignore", self._name)
                )
                failure = removal.text if removal.code else ""
            except ContainerError as error:
                failure = str(error)
            if failure:
                log.warning("a container cannot be removed", container=self._name, reason=failure)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COMMAND_SECONDS):
                    await self._keeper.wait()
        if not self.has_ended:
            self._keeper.kill()
        # podman's watcher may hold the output open.
        await asyncio.wait({self._error_output}, timeout=COMMAND_SECONDS)
        self._error_output.cancel()

    async def watched_places(self) -> tuple[Path, list[Path]] | None:
        """The folder of this machine with all that the container wrote, and the files that list its
        processes. None = not known.
        """
        form = "{{.State.Pid}} {{.GraphDriver.Data.UpperDir}}"
        output = await self._ask("inspect", "--format", form, self._name)
        pid, _, folder = output.text.strip().partition(" ")
        if output.code or not Path(folder).is_absolute():
            return None
        return Path(folder), _process_lists(int(pid))

    async def _failure(self) -> str:
        """The last lines of podman, whose watcher may hold the output open."""
        await asyncio.wait({self._error_output}, timeout=COMMAND_SECONDS)
        return self._error_output.result() if self._error_output.done() else "it did not say why"

    async def _unpack(self, archive: bytes | IO[bytes], *, removed: str, target: str) -> None:
        """Unpack a tar archive in a folder, which is made; `removed` goes before. Raises
        ContainerError.
        """
        command = ["/bin/sh", "-c", MAKE_ROOM, "sh", removed, target]
        output = await self.run(command, COMMAND_SECONDS, user="0", folder="/")
        if output.code:
            raise SpoiledError(f"the folder {target} cannot be made: {output.text}")
        output = await run_host_command(
            [*self._podman, "cp", "-", f"{self._name}:{target}"], COMMAND_SECONDS, stdin=archive
        )
        if output.code:
            await self._raise_if_gone(output)
            raise SpoiledError(f"files cannot be copied to {target}: {output.text}")

    async def _pack(
        self, path: str, max_bytes: int, output_file: IO[bytes] | None
    ) -> CommandOutput:
        """A file or folder as a tar archive. Raises SpoiledError at the deadline."""
        output = await run_host_command(
            [*self._podman, "cp", f"{self._name}:{path}", "-"],
            COMMAND_SECONDS,
            output_file=output_file,
            max_bytes=max_bytes,
        )
        if output.is_overdue:
            raise SpoiledError(f"{path} was not copied within {COMMAND_SECONDS:g} s")
        return output

    async def _raise_if_gone(self, output: CommandOutput) -> None:
        """Raises ContainerError if a command failed because its container is not there."""
        # Codes of podman itself, of a shell that cannot start a program, and of signals
        if output.code < 125:
            return
        state = await self._ask("inspect", "--format", "{{.State.Running}}", self._name)
        if state.text.strip() == "true":
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COMMAND_SECONDS):
                await self._keeper.wait()
        if self.end_reason:
            raise SpoiledError(self.end_reason)
        # 137: the first process was killed, from outside or for its memory.
        if self._keeper.returncode not in (None, 0, 137):
            raise SpoiledError("its first process was ended by another one")
        raise ContainerError("it has ended")

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

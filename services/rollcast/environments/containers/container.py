"""A running container and the engine that starts it, whichever the run file names."""

import asyncio
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, Self

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.bounded_output import CommandOutput
from rollcast.environments.containers.archives import check_archive, pack_folder, unpack_file
from rollcast.environments.containers.errors import SpoiledError

COMMAND_SECONDS = 60.0
"""Deadline of one order to an engine that runs nothing of the container, on a busy machine."""
END_ALL = "kill -9 -1"
"""Command of a container's shell: it ends every process except the first one and that shell."""
MAKE_ROOM = 'rm -rf -- "$1" && mkdir -p -- "$2"'
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
)  # fmt: skip
"""Rights of root that package managers need. Others, such as to raw sockets and devices, are given
up."""


class Container(ABC):
    """One container, whose engine packs and unpacks tar archives.

    Every method raises ContainerError when it is gone, SpoiledError if its programs are to blame.
    """

    def __init__(self, name: str, settings: ContainerSettings) -> None:
        self.name = name
        self._settings = settings

    @abstractmethod
    async def has_ended(self) -> bool:
        """Whether it is known to run no more."""

    @abstractmethod
    async def open_commands(self, *, user: str | None, folder: str | None) -> list[str]:
        """The command of this machine that runs another one, which follows it, in the container:
        without input, with a bounded output, until the container ends.

        user, folder: None = the image's.
        """

    @abstractmethod
    async def run(
        self,
        command: Sequence[str],
        seconds: float,
        *,
        variables: Mapping[str, str] = {},
        user: str | None = None,
        folder: str | None = None,
    ) -> CommandOutput:
        """Run a command to its end, or to its deadline: then every process in the container is
        ended, except the first one.

        user, folder: None = the image's.
        """

    async def put(self, folder: Path, target: str) -> None:
        """Copy a folder of this machine to a folder of the container; a former one is removed."""
        archive = await asyncio.to_thread(pack_folder, folder)
        await self._unpack(archive, removed=target, target=target)

    async def read(self, path: str, max_bytes: int) -> bytes | None:
        """The content of a file. None = no such file. A longer one, or a folder, is refused."""
        # A tar archive pads its files, and ends in blocks of zeros.
        output = await self._pack_in_time(path, max_bytes + 32_768, None)
        if output is None:
            return None
        content = None if output.num_dropped else unpack_file(bytes(output.content))
        if content is None or len(content) > max_bytes:
            raise SpoiledError(f"{path} is no file of at most {max_bytes} bytes")
        return content

    async def copy_to(self, target_container: Self, path: str) -> None:
        """Copy a file or folder to the same place of another container of this engine. Nothing is
        copied if it is not there.
        """
        max_bytes = int(self._settings.disk_gib * (1 << 30))
        with tempfile.TemporaryFile() as archive:
            output = await self._pack_in_time(path, max_bytes, archive)
            if output is None:
                return
            if output.num_dropped:
                raise SpoiledError(f"{path} has more than {max_bytes} bytes")
            archive.seek(0)
            with await asyncio.to_thread(check_archive, archive, path) as checked:
                await target_container._unpack(
                    checked, removed=path, target=str(PurePosixPath(path).parent)
                )

    @abstractmethod
    async def end_programs(self) -> None:
        """End every process except the first one; `open_commands` starts no further one.

        Raises SpoiledError if that cannot be done.
        """

    @abstractmethod
    async def end(self) -> None:
        """End it and everything in it. May be called again; never fails."""

    async def _pack_in_time(
        self, path: str, max_bytes: int, output_file: IO[bytes] | None
    ) -> CommandOutput | None:
        """None = there is no such file or folder."""
        output = await self._pack(path, max_bytes, output_file)
        if output.is_overdue:
            raise SpoiledError(f"{path} was not copied within {COMMAND_SECONDS:g} s")
        if output.code:
            await self._raise_if_gone(output)
            return None
        return output

    @abstractmethod
    async def _pack(
        self, path: str, max_bytes: int, output_file: IO[bytes] | None
    ) -> CommandOutput:
        """A file or folder as a tar archive, in `output_file` or in the output."""

    @abstractmethod
    async def _unpack(self, archive: bytes | IO[bytes], *, removed: str, target: str) -> None:
        """Unpack a tar archive in a folder, which is made; `removed` goes before."""

    @abstractmethod
    async def _raise_if_gone(self, output: CommandOutput) -> None:
        """Raises ContainerError if a command failed because its container is not there."""


class ContainerEngine(Protocol):
    """Starts containers with the same settings.

    The checks yield sentences, and wait for the engine.
    """

    async def start(
        self, image: str, start_seconds: float, variables: Mapping[str, str] = {}
    ) -> Container:
        """A new container. variables: of every process in it. Raises ContainerError."""

    async def close(self) -> None:
        """Give up what the engine holds. Its containers are ended before."""

    def remove_abandoned(self) -> int:
        """Remove the containers of this machine's processes that were killed; returns their number.
        Never raises.
        """

    def missing(self, field: str) -> Iterator[str]:
        """Sentences on what keeps this machine from starting containers with the settings."""

    def missing_images(
        self, images: Mapping[str, str], field: str, command: str = ":"
    ) -> Iterator[str]:
        """Images that cannot be had, or whose containers do not start.

        images: each with the setting or row that names it. command: of a shell, which must succeed
        in a container.
        """

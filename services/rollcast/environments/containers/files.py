"""Files of a container, whose engine packs and unpacks tar archives."""

import asyncio
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path, PurePosixPath
from typing import IO, Self

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.archives import check_archive, pack_folder, unpack_file
from rollcast.environments.containers.container import CommandOutput, SpoiledError


class ArchivedFiles(ABC):
    """The methods of a Container that move files."""

    def __init__(self, settings: ContainerSettings) -> None:
        self._settings = settings

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

    async def copy_to(self, other: Self, path: str) -> None:
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

    @abstractmethod
    async def _pack(
        self, path: str, max_bytes: int, output_file: IO[bytes] | None
    ) -> CommandOutput:
        """A file or folder as a tar archive, in `output_file` or in the output. Raises SpoiledError
        at the deadline.
        """

    @abstractmethod
    async def _unpack(self, archive: bytes | IO[bytes], *, removed: str, target: str) -> None:
        """Unpack a tar archive in a folder, which is made; `removed` goes before. Raises
        ContainerError.
        """

    @abstractmethod
    async def _raise_if_gone(self, output: CommandOutput) -> None:
        """Raises ContainerError if a command failed because its container is not there."""

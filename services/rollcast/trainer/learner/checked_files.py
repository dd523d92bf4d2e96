"""Files of a checkpoint with their checksums, on a disk or a network that may refuse them.

    __0_0.distcp, .metadata                 the files of torch.distributed.checkpoint
    __0_0.distcp.crc32, .metadata.crc32     size and CRC-32 of each

torch's writer aborts the process if a write fails inside it. So the stream keeps the error and
raises it once torch is done with the file.
"""

import io
import os
import zlib
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.serialization import set_crc32_options

DATA = ".distcp"
METADATA = ".metadata"
TEMPORARY = ".tmp"
"""Suffix that torch's writer gives `.metadata` until it is written."""
CHECKSUM = ".crc32"


class CheckedWriter(FileSystemWriter):
    """Writes a checkpoint into a folder, with a checksum next to each file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.fs = CheckedFileSystem()
        set_crc32_options(
            False
        )  # torch's own checksums are never read and cost half of the processor's time


class CheckedFileSystem(FileSystem):
    @contextmanager
    def create_stream(
        self, path: str | os.PathLike[str], mode: str
    ) -> Generator[io.IOBase, None, None]:
        if mode != "wb":
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        checked = CheckedStream(Path(path).open("wb"))  # noqa: SIM115  (`end` closes it)
        try:
            yield checked
        finally:
            checked.end()
        # Only for a whole file: `end` has raised the error of a refused write.
        Path(checksum_name(path)).write_text(checked.checksum)


class CheckedStream(io.BufferedIOBase):
    """Counts the bytes written.

    After the first refused write nothing is written; `end` raises its error.
    """

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._num_bytes = 0
        self._crc = 0
        self._refusal: Exception | None = None
        self._is_over = False

    @property
    def checksum(self) -> str:
        """Text that `check` compares the file with."""
        return f"{self._num_bytes} {self._crc}\n"

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self._refusal is None:
            self._crc = zlib.crc32(data, self._crc)
            self._num_bytes += size
            self._attempt(lambda: self._raw.write(data))
        # Of a refused write too: torch's writer would abort the process.
        return size

    def flush(self) -> None:
        if not self._is_over and self._refusal is None:
            self._attempt(self._raw.flush)

    def tell(self) -> int:
        return self._num_bytes

    def fileno(self) -> int:
        return self._raw.fileno()

    def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._attempt(self._raw.close)  # an object is sent by this
        super().close()

    def _attempt(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:
            self._refusal = self._refusal or error

    def end(self) -> None:
        """Close the file, if torch did not. Raises the error of a refused write."""
        self.close()
        if self._refusal is not None:
            raise self._refusal


def checksum_name(path: str | os.PathLike[str]) -> str:
    """The name of the checksum of the file that torch writes as `path`."""
    return f"{os.fspath(path).removesuffix(TEMPORARY)}{CHECKSUM}"


def data_files(names: Collection[str]) -> list[str]:
    """The files of a checkpoint that hold tensors, in order."""
    return sorted(name for name in names if name.endswith(DATA))


def files_to_check(names: Collection[str]) -> list[str]:
    """The files of a checkpoint whose checksum is in another file, in order.

    Raises ValueError if one lacks it.
    """
    needed = [METADATA, *data_files(names)]
    if unchecked_files := [name for name in needed if f"{name}{CHECKSUM}" not in names]:
        raise ValueError(
            f"{unchecked_files[0]} has no checksum: {unchecked_files[0]}{CHECKSUM} does not exist"
        )
    return needed


def check(name: str, num_bytes: int, data: IO[bytes], checksum: str) -> None:
    """Raises ValueError if a file is not as it was written."""
    try:
        expected_bytes, expected_crc = map(int, checksum.split())
    except ValueError:
        raise ValueError(f"{name}{CHECKSUM} is not as it was written") from None
    crc = 0
    if num_bytes == expected_bytes:
        # Bytes of one read: few enough to stay in the cache
        while chunk := data.read(16 << 20):
            crc = zlib.crc32(chunk, crc)
    if num_bytes != expected_bytes or crc != expected_crc:
        raise ValueError(f"{name} is not as it was written")

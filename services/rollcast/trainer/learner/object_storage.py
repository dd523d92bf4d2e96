"""Checkpoints behind a URL that fsspec knows: s3://bucket/path, gs://bucket/path.

Objects cannot be renamed. They are written under the checkpoint's own name, the controller's state
last: a checkpoint is whole if it has that file, which is removed first when the checkpoint is.
Credentials and addresses are those of the library behind the protocol, from its environment
variables and files.
"""

import io
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, cast

from torch.distributed.checkpoint._fsspec_filesystem import FileSystem, FsspecReader, FsspecWriter
from torch.serialization import set_crc32_options

from rollcast.connections.object_files import (
    NO_CACHE,
    as_os_error,
    folder_options,
    open_location,
)
from rollcast.runfolder.files import CONTROLLER
from rollcast.trainer.learner.checked_files import CHECKSUM, CheckedStream, check, checksum_name
from rollcast.trainer.learner.saved_metadata import PlainReader
from rollcast.trainer.learner.storage import newest_first


class ObjectFiles(FileSystem):
    """The file system for torch: with a checksum next to each file, and without folders."""

    @contextmanager
    def create_stream(
        self, path: str | os.PathLike[str], mode: str
    ) -> Generator[io.IOBase, None, None]:
        with as_os_error():
            if mode != "wb":
                with super().create_stream(path, mode) as stream:
                    yield stream
                return
            assert self.fs is not None
            checked = CheckedStream(self.fs.open(os.fspath(path), "wb"))
            try:
                yield checked
            finally:
                checked.end()
            self.fs.pipe_file(checksum_name(path), checked.checksum.encode())

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """Does nothing: torch would create a missing bucket."""


class ObjectWriter(FsspecWriter):
    def __init__(self, path: str) -> None:
        super().__init__(
            path, sync_files=False
        )  # without a local file, torch would sync all disks of the machine
        files = ObjectFiles()
        self.path = files.init_path(path, **NO_CACHE, **folder_options(path))
        self.fs = cast(Any, files)
        set_crc32_options(False)  # as `CheckedWriter`


class ObjectReader(PlainReader, FsspecReader):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        files = ObjectFiles()
        self.path = files.init_path(path, **NO_CACHE)
        self.fs = cast(Any, files)


class ObjectStorage:
    """The methods of `FolderStorage`."""

    remedy = "fix the credentials or the bucket, or change trainer.checkpoints"

    def __init__(self, url: str) -> None:
        """Raises OSError if the URL's protocol is unknown, or its library is not installed."""
        self.location = url
        self._fs, self._root = open_location(url)

    def at(self, name: str) -> str:
        return f"{self.location}/{name}"

    def names(self) -> list[str]:
        with as_os_error():
            return [name for name in self._all() if self._is_whole(name)]

    def controller(self, name: str) -> str:
        with as_os_error():
            return bytes(self._fs.cat_file(self._path(name, CONTROLLER))).decode()

    def files(self, name: str) -> set[str]:
        with as_os_error():
            return {path.rpartition("/")[2] for path in self._fs.ls(self._path(name), detail=False)}

    def check(self, name: str, file: str) -> None:
        path = self._path(name, file)
        with as_os_error(), self._fs.open(path, "rb") as data:
            check(
                file,
                self._fs.size(path),
                data,
                bytes(self._fs.cat_file(f"{path}{CHECKSUM}")).decode(),
            )

    def reader(self, name: str) -> ObjectReader:
        return ObjectReader(self.at(name))

    def begin(self, name: str, num_bytes: int) -> None:
        """Free space is not checked: object storage does not report it."""
        with as_os_error():
            complete_names = set(self.names())
            # A checkpoint without the controller's state was never completed.
            for stale in self._all():
                if stale not in complete_names:
                    self._fs.rm(self._path(stale), recursive=True)

    def writer(self, name: str) -> ObjectWriter:
        return ObjectWriter(self.at(name))

    def abandon(self, name: str) -> None:
        with suppress(Exception):
            self._fs.rm(self._path(name), recursive=True)

    def replace_controller(self, name: str, controller: str) -> None:
        with as_os_error():
            self._fs.pipe_file(self._path(name, CONTROLLER), controller.encode())

    complete = replace_controller

    def remove(self, name: str) -> None:
        """All of it stays if the controller's state, which makes it whole, cannot be removed."""
        with suppress(Exception):
            self._fs.rm_file(self._path(name, CONTROLLER))
            self._fs.rm(self._path(name), recursive=True)

    def _is_whole(self, name: str) -> bool:
        """Not by `exists`, which returns False when the storage does not answer."""
        try:
            self._fs.info(self._path(name, CONTROLLER))
        except FileNotFoundError:
            return False
        return True

    def _all(self) -> list[str]:
        """All checkpoints, whole or not."""
        try:
            paths = self._fs.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        return newest_first([path.rstrip("/").rpartition("/")[2] for path in paths])

    def _path(self, *parts: str) -> str:
        return "/".join([self._root.rstrip("/"), *parts])

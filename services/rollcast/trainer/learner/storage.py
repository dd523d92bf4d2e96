"""The place of checkpoints: a folder (here), or a URL that fsspec reaches (`object_storage`).

    begin -> every rank writes through `writer` -> complete | abandon
    names -> controller, files, check, reader

A checkpoint has its name only once it is whole.
"""

import errno
import os
import shutil
from pathlib import Path

from torch.distributed.checkpoint.filesystem import FileSystemWriter

from rollcast.runfolder.files import CONTROLLER
from rollcast.trainer.learner.checked_files import CHECKSUM, CheckedWriter, check
from rollcast.trainer.learner.saved_metadata import PlainReader
from rollcast.wire.version import PolicyVersion

PARTIAL = ".partial-"


def newest_first(names: list[str]) -> list[str]:
    """The names that are versions, newest first."""
    versioned_names = []
    for name in names:
        try:
            versioned_names.append((PolicyVersion.parse(name), name))
        except ValueError:
            continue
    return [name for _, name in sorted(versioned_names, reverse=True)]


class FolderStorage:
    """Every method raises OSError; `name`: the version, as "2.118".

    A checkpoint is written under another name.
    """

    remedy = "free space there, or change `folder` or trainer.checkpoints"
    """The end of the sentence for a user who cannot write there."""

    def __init__(self, folder: Path) -> None:
        self.location = folder

    def at(self, name: str) -> Path:
        return self.location / name

    def names(self) -> list[str]:
        """Names of whole checkpoints, the newest first."""
        if not self.location.is_dir():
            return []
        return newest_first([path.name for path in self.location.iterdir() if path.is_dir()])

    def controller(self, name: str) -> str:
        return (self.at(name) / CONTROLLER).read_text()

    def files(self, name: str) -> set[str]:
        return {path.name for path in self.at(name).iterdir()}

    def check(self, name: str, file: str) -> None:
        """Read one of its files again. Raises ValueError if its checksum differs."""
        path = self.at(name) / file
        with path.open("rb") as data:
            check(file, path.stat().st_size, data, path.with_name(f"{file}{CHECKSUM}").read_text())

    def reader(self, name: str) -> PlainReader:
        return PlainReader(self.at(name))

    def begin(self, name: str, num_bytes: int) -> None:
        """Make an empty place, if there is room; incomplete checkpoints are removed."""
        self.location.mkdir(parents=True, exist_ok=True)
        for stale in self.location.glob(f"{PARTIAL}*"):
            shutil.rmtree(stale)
        if shutil.disk_usage(self.location).free < num_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._partial(name).mkdir()

    def writer(self, name: str) -> FileSystemWriter:
        return CheckedWriter(self._partial(name))

    def complete(self, name: str, controller: str) -> None:
        """Give it its name, once all of it is there."""
        _replace(self._partial(name) / CONTROLLER, controller)
        self._partial(name).rename(self.at(name))
        # The new name is on the disk only once the folder is.
        descriptor = os.open(self.location, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    def abandon(self, name: str) -> None:
        """Remove the incomplete checkpoint, as far as possible."""
        shutil.rmtree(self._partial(name), ignore_errors=True)

    def replace_controller(self, name: str, controller: str) -> None:
        """Replace the controller's state of a whole checkpoint atomically."""
        _replace(self.at(name) / CONTROLLER, controller)

    def remove(self, name: str) -> None:
        """Remove a whole checkpoint, as far as possible; one that was partly removed by a killed
        process has its name no more.
        """
        self.at(name).rename(self._partial(name))
        shutil.rmtree(self._partial(name), ignore_errors=True)

    def _partial(self, name: str) -> Path:
        return self.location / f"{PARTIAL}{name}"


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.tmp")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)

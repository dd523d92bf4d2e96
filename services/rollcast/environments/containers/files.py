"""Files on their way into a container and out of it, as tar archives in memory."""

import io
import tarfile
from pathlib import Path

from rollcast.environments.containers.container import ContainerError

MAX_FOLDER_BYTES = 256 << 20
"""Largest folder that is copied into a container: tests of a task, not data sets."""


def pack_folder(folder: Path) -> bytes:
    """The regular files and folders below it, owned by the container's root. Raises ContainerError.

    Links are followed if they stay inside: a task's folder may come from anywhere.
    """
    buffer = io.BytesIO()
    root = folder.resolve()
    try:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for path in sorted(folder.rglob("*")):
                place = path.resolve(strict=True)
                if not place.is_relative_to(root):
                    raise ContainerError(f"{path} leads out of {folder}; replace it by a file")
                if not place.is_file() and not place.is_dir():
                    raise ContainerError(f"{path} is neither file nor folder; remove it")
                entry = archive.gettarinfo(str(place), str(path.relative_to(folder)))
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                if buffer.tell() + entry.size > MAX_FOLDER_BYTES:
                    raise ContainerError(
                        f"{folder} has more than the {MAX_FOLDER_BYTES >> 20} MiB that are copied "
                        "into a container; put its data into the image"
                    )
                if place.is_dir():
                    archive.addfile(entry)
                else:
                    with place.open("rb") as file:
                        archive.addfile(entry, file)
    except (OSError, RuntimeError) as error:
        raise ContainerError(f"{folder} cannot be read: {error}") from error
    return buffer.getvalue()


def unpack_file(archive: bytes) -> bytes | None:
    """The content of an archive of one regular file; None = it holds something else."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            entry = files.next()
            if entry is None or not entry.isreg():
                return None
            file = files.extractfile(entry)
            return None if file is None else file.read()
    except (tarfile.TarError, EOFError, OSError):
        return None

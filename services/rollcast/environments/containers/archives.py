"""Files on their way into a container and out of it, as tar archives."""

import io
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import IO

from rollcast.environments.containers.errors import ContainerError, SpoiledError


def pack_folder(folder: Path) -> bytes:
    """The files and folders below it, owned by the container's root. Raises ContainerError.

    A link to a file becomes a copy if it stays inside: a task's folder may come from anywhere.
    """
    # Tests of a task, not data sets
    max_bytes = 256 << 20
    buffer = io.BytesIO()
    root = folder.resolve()
    try:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for path in sorted(folder.rglob("*")):
                resolved_path = path.resolve(strict=True)
                if not resolved_path.is_relative_to(root):
                    raise ContainerError(f"{path} leads out of {folder}; replace it by a file")
                if not resolved_path.is_file() and (
                    path.is_symlink() or not resolved_path.is_dir()
                ):
                    raise ContainerError(f"{path} is neither file nor folder; remove it")
                entry = archive.gettarinfo(str(resolved_path), str(path.relative_to(folder)))
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                if buffer.tell() + entry.size > max_bytes:
                    raise ContainerError(
                        f"{folder} has more than the {max_bytes >> 20} MiB that are copied "
                        "into a container; put its data into the image"
                    )
                if resolved_path.is_dir():
                    archive.addfile(entry)
                else:
                    # Two names of one file are two files: the first may not be there.
                    entry.type = tarfile.REGTYPE
                    entry.size = resolved_path.stat().st_size
                    with resolved_path.open("rb") as file:
                        archive.addfile(entry, file)
    except (OSError, RuntimeError, ValueError) as error:
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
    except (tarfile.TarError, EOFError, OSError, ValueError):
        return None


def check_archive(archive: IO[bytes], path: str) -> IO[bytes]:
    """A copy of an archive that unpacks to `path` alone, for a container that must not be spoiled:
    files, folders, and links that are no part of another entry's path; no set-user bits.

    Raises SpoiledError.
    """
    name = PurePosixPath(path).name
    checked = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
    links: set[PurePosixPath] = set()
    is_empty = True
    try:
        with (
            tarfile.open(fileobj=archive, mode="r|") as entries,
            tarfile.open(fileobj=checked, mode="w") as copies,
        ):
            for entry in entries:
                entry_path = PurePosixPath(entry.name)
                parents = {entry_path, *entry_path.parents}
                if is_empty and not (entry.isreg() or entry.isdir()):
                    raise SpoiledError(f"{path} is neither file nor folder")
                if (
                    entry_path.is_absolute()
                    or ".." in entry_path.parts
                    or entry_path.parts[:1] != (name,)
                ):
                    raise SpoiledError(f"{path} has an entry of another place")
                if links & parents:
                    raise SpoiledError(f"{path} has an entry below a link")
                is_empty = False
                if entry.issym():
                    links.add(entry_path)
                elif not (entry.isreg() or entry.isdir() or entry.islnk()):
                    continue
                if entry.islnk():
                    target = PurePosixPath(entry.linkname)
                    if target.parts[:1] != (name,) or ".." in target.parts:
                        raise SpoiledError(f"{path} has a link to another place")
                    if links & {target, *target.parents}:
                        raise SpoiledError(f"{path} has an entry below a link")
                entry.mode &= 0o777
                copies.addfile(entry, entries.extractfile(entry) if entry.isreg() else None)
        checked.seek(0)
        return checked
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        checked.close()
        raise SpoiledError(f"{path} cannot be read: {error}") from error
    except BaseException:
        checked.close()
        raise

"""Files in a folder or behind a URL that fsspec knows: s3://bucket/path, gs://bucket/path.

Credentials and addresses are those of the library behind the protocol, from its environment
variables and files.
"""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs

NO_NETWORK = frozenset({"builtins", "_pickle", "torch", "zlib"})
"""Modules whose errors concern the data or our code, not the network."""
NO_CACHE = {"use_listings_cache": False}
"""No listing is cached, because other processes write too."""


@contextmanager
def as_os_error() -> Iterator[None]:
    """Errors of the library behind a protocol concern the network, and may pass; those of
    credentials do not.
    """
    try:
        yield
    except Exception as error:
        name = type(error).__name__
        if type(error).__module__.partition(".")[0] in NO_NETWORK or isinstance(error, OSError):
            raise
        number = errno.EACCES if "Credential" in name else errno.EIO
        raise OSError(number, f"{name}: {' '.join(str(error).split())[:200]}") from error


def open_location(location: str, **options: Any) -> tuple[Any, str]:
    """The file system of a URL, and the path in it. `options`: of the protocol's library.

    Raises OSError if the protocol is unknown, or its library is not installed.
    """
    try:
        fs, root = url_to_fs(location, **NO_CACHE, **folder_options(location), **options)
    except (ValueError, ImportError) as error:
        raise OSError(errno.ENOENT, str(error)) from error
    return fs, str(root)


def folder_options(url: str) -> dict[str, Any]:
    """A file:// URL needs its folders made; other protocols have no such option."""
    return {"auto_mkdir": True} if url.startswith(("file:", "local:")) else {}


def _deadlines(url: str) -> dict[str, Any]:
    """S3's client would wait for five minutes, and `ObjectFolder.read` repeats what fails."""
    if not url.startswith("s3"):
        return {}
    attempts = {"max_attempts": 1}
    return {"config_kwargs": {"connect_timeout": 10, "read_timeout": 20, "retries": attempts}}


class ObjectFolder:
    """Objects that are written once and read in parts; every method raises OSError."""

    def __init__(self, location: Path | str) -> None:
        is_folder = isinstance(location, Path)
        self.location = str(location)
        url = f"file://{os.path.abspath(location)}" if is_folder else str(location)
        self._fs, self._root = open_location(url, **_deadlines(url))

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        """A file to write; the object is removed if that fails."""
        with as_os_error():
            try:
                with self._fs.open(self._path(name), "wb") as file:
                    yield file
            except BaseException:
                self.remove(name)
                raise

    def probe(self, name: str) -> None:
        """Write an object, list all names and remove it. Raises OSError unless it may pass by
        itself, and NotImplementedError if the protocol cannot write.
        """
        try:
            with self.create(name) as file:
                file.write(b"0")
            # Each is a right of its own. Without the last one the storage would only grow.
            self.names()
            # Another process may have removed it.
            with as_os_error(), suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))
        except (FileNotFoundError, FileExistsError, NotADirectoryError, PermissionError):
            raise
        except OSError:
            self.remove(name)

    def read(self, name: str, start: int, end: int) -> bytes:
        """Bytes [start, end) of an object, which are all there."""
        # A network that fails once is asked again, an object that is not there is not.
        for pause_seconds in (0.2, 1.0, None):
            try:
                with as_os_error():
                    data = bytes(self._fs.cat_file(self._path(name), start=start, end=end))
                    if len(data) != end - start:
                        raise OSError(errno.EIO, f"{name} is shorter than it should be")
                    return data
            except FileNotFoundError:
                raise
            except OSError:
                if pause_seconds is None:
                    raise
                time.sleep(pause_seconds)
        raise AssertionError

    def names(self) -> list[str]:
        try:
            with as_os_error():
                return [
                    path.rstrip("/").rpartition("/")[2]
                    for path in self._fs.ls(self._root, detail=False)
                ]
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        """Remove an object, as far as possible."""
        with suppress(Exception):
            self._fs.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

"""Targets of hostile programs, all of them real: listeners, a victim, secrets, files; and was any
of it touched?
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

SECRET_VARIABLE = "ROLLCAST_REDIS_PASSWORD"
PREFIX = "rollcast-planted-"


class Surroundings:
    """`filled` names everything for `hostile_programs`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = (PREFIX + secrets.token_hex(40))[:40]
        self._environment = os.environ.get(SECRET_VARIABLE)
        os.environ[SECRET_VARIABLE] = self.secret
        (folder / "secret.txt").write_text(self.secret)
        (folder / "secret_module.py").write_text(f"VALUE = {self.secret!r}\n")
        (folder / "target").write_text("untouched")
        (folder / "empty").mkdir()
        (folder / "link").symlink_to(folder / "secret.txt")
        abstract = secrets.token_hex(8)
        self.victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self._listeners = [
            listening(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            listening(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            listening(socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "unix")),
            listening(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{abstract}"),
        ]
        self.filled: dict[str, object] = {
            "folder": folder,
            "secret": folder / "secret.txt",
            "link": folder / "link",
            "target": folder / "target",
            "prefix": PREFIX,
            "never": self.secret,
            "victim": self.victim.pid,
            "grader": os.getpid(),
            "port": self._listeners[0].getsockname()[1],
            "udp": self._listeners[1].getsockname()[1],
            "unix": folder / "unix",
            "abstract": abstract,
        }
        self._initial_state = self._look()

    def find_changes(self) -> list[str]:
        """Differences from the earlier state."""
        changes = [f"{path} changed" for path in self._look() ^ self._initial_state]
        changes += [
            f"somebody called {listener.getsockname()!r}"
            for listener in self._listeners
            if was_called(listener)
        ]
        if (
            self.victim.poll() is not None
            or psutil.Process(self.victim.pid).status() == psutil.STATUS_STOPPED
        ):
            changes.append("the victim was hit")
        return changes

    def _look(self) -> set[tuple[object, ...]]:
        """Folders that programs write to: names, kinds, owners, modes, sizes and times of their
        entries.
        """
        entries: set[tuple[object, ...]] = set()
        for path in [self.folder, *self.folder.rglob("*")]:
            status = path.lstat()
            entries.add(
                (
                    str(path),
                    status.st_mode,
                    status.st_uid,
                    status.st_size,
                    status.st_mtime_ns,
                    status.st_nlink,
                )
            )
        for folder in ("/tmp", "/dev/shm", "/"):
            entries |= {
                (str(path),)
                for path in Path(folder).iterdir()
                if "hostile" in path.name or path.name == "chroot"
            }
        library = Path(os.__file__).stat()
        return entries | {(os.__file__, library.st_mode, library.st_size)}

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for listener in self._listeners:
            listener.close()
        if self._environment is None:
            del os.environ[SECRET_VARIABLE]
        else:
            os.environ[SECRET_VARIABLE] = self._environment


def listening(family: int, kind: int, address: tuple[str, int] | str) -> socket.socket:
    listener = socket.socket(family, kind)
    listener.setblocking(False)
    listener.bind(address)
    if kind == socket.SOCK_STREAM:
        listener.listen()
    return listener


def was_called(listener: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        if listener.type == socket.SOCK_DGRAM:
            listener.recv(100)
        else:
            listener.accept()[0].close()
        return True
    return False


@contextlib.contextmanager
def surroundings(folder: Path) -> Iterator[Surroundings]:
    hostile_setup = Surroundings(folder)
    try:
        yield hostile_setup
    finally:
        hostile_setup.close()

"""The process that imports one environment's code, and forks an environment for each connection it is sent.

python -P -m rollcast.environments.hosted.nursery CONTROL_DESCRIPTOR < settings as JSON

control readable     -> fork an environment for the connection that came; closed -> end all of them
connection hung up   -> end its environment, with every process that it started
SIGCHLD              -> close the connection of the environment that ended, so that the generator hears of it
"""

import contextlib
import gc
import json
import os
import resource
import select
import shutil
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from rollcast.config.environments.own_class import ClassEnvironment
from rollcast.config.environments.tool_set import ToolSet
from rollcast.config.own_functions import failure
from rollcast.environments.hosted.definition import Definition, load_definition
from rollcast.environments.hosted.guard import guard
from rollcast.environments.hosted.profiles import Containment, containment
from rollcast.environments.hosted.serving import serve
from rollcast.tasks.sandbox.limits import address_space_bytes
from rollcast.tasks.sandbox.lockdown import MAX_SERVER_FILES, die_with_parent, hide_memory, show_descriptors
from rollcast.tasks.sandbox.preparation import readable_files

FORK = b"fork"
SHIPPED = "rollcast"


@dataclass
class Child:
    """One environment. `pid` is its guard's, if it has one."""

    pid: int
    connection: socket.socket
    folder: Path | None
    has_guard: bool


class Nursery:
    def __init__(self, control: socket.socket, definition: Definition, contained: Containment) -> None:
        self._control = control
        self._definition = definition
        self._contained = contained
        self._pid = os.getpid()
        self._children: dict[int, Child] = {}
        """By the number of their connection."""
        self._poll = select.epoll()
        self._woken, self._wake = os.pipe()
        for descriptor in (self._woken, self._wake):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Until the generator closes its end of `control`."""
        self._poll.register(self._control.fileno(), select.EPOLLIN)
        self._poll.register(self._woken, select.EPOLLIN)
        try:
            while True:
                for descriptor, _ in self._poll.poll():
                    if descriptor == self._control.fileno():
                        if not self._accept():
                            return
                    elif descriptor == self._woken:
                        self._reap()
                    elif (child := self._children.get(descriptor)) is not None:
                        self._end(child)
        finally:
            for child in list(self._children.values()):
                self._end(child)
            while self._children:
                self._reap(wait=True)

    def _accept(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, 16, 1)
        if data != FORK:
            return False
        if not descriptors:  # too many files are open: the generator hears that this connection is closed
            return True
        connection = socket.socket(fileno=descriptors[0])
        try:
            self._fork(connection)
        except OSError:  # no process, memory or disk is left for this one; the others live on
            connection.close()
        return True

    def _fork(self, connection: socket.socket) -> None:
        """Raises OSError."""
        is_in_folder = self._contained.profile == "folder"
        folder = Path(tempfile.mkdtemp(prefix="rollcast-environment-")).resolve() if is_in_folder else None
        try:
            pid = os.fork()
        except OSError:
            _remove(folder)
            raise
        if pid == 0:
            try:
                self._become_environment(connection, folder)
            finally:
                os._exit(1)
        child = Child(pid, connection, folder, self._contained.profile != "compute")
        self._children[connection.fileno()] = child
        self._poll.register(connection.fileno(), 0)  # hang-ups are always reported

    def _become_environment(self, connection: socket.socket, folder: Path | None) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for end in [self._control, *(child.connection for child in self._children.values())]:
            end.close()
        self._poll.close()

        def run() -> None:
            if folder is not None:
                show_descriptors()  # its guard counts the files that it has open
                os.chdir(folder)
                os.environ.update(HOME=str(folder), TMPDIR=str(folder))
            kept = self._contained.put_on(connection.fileno(), folder)
            serve(self._definition, connection if kept == connection.fileno() else socket.socket(fileno=kept))

        if self._contained.profile == "compute":
            die_with_parent()
            run()
        else:
            guard(run, connection, folder, self._pid)
        os._exit(0)

    def _end(self, child: Child) -> None:
        """Ask for its end; `_reap` does the rest."""
        with contextlib.suppress(FileNotFoundError):
            self._poll.unregister(child.connection.fileno())
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGTERM if child.has_guard else signal.SIGKILL)

    def _reap(self, *, wait: bool = False) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)
        for number, child in list(self._children.items()):
            pid, _ = os.waitpid(child.pid, 0 if wait else os.WNOHANG)
            if not pid:
                continue
            del self._children[number]
            with contextlib.suppress(FileNotFoundError, ValueError):
                self._poll.unregister(number)
            child.connection.close()
            _remove(child.folder)


def _remove(folder: Path | None) -> None:
    """Nothing of a private folder stays, whatever its files' modes are."""
    if folder is None:
        return
    for parent, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            os.chmod(parent, stat.S_IRWXU)
            for entry in os.scandir(parent):
                if entry.is_dir(follow_symlinks=False):
                    os.chmod(entry.path, stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def _prepared(settings: ClassEnvironment | ToolSet) -> tuple[Definition, Containment]:
    definition = load_definition(settings)
    readable = readable_files(definition.module or SHIPPED)
    return definition, containment(settings.profile, readable, address_space_bytes())


def _said(send: Callable[[bytes], object], message: dict[str, str]) -> None:
    send(json.dumps(message).encode())


def main(arguments: list[str]) -> int:
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=int(arguments[0]))
    settings = TypeAdapter[ClassEnvironment | ToolSet](ClassEnvironment | ToolSet).validate_json(
        sys.stdin.buffer.read()
    )
    if settings.profile != "trusted":
        hide_memory()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(MAX_SERVER_FILES, hard), hard))
    sys.path.append(os.getcwd())  # may hold a module of the user; comes after all installed packages
    try:
        definition, contained = _prepared(settings)
    except Exception as error:
        _said(control.send, {"failed": failure(error)})
        return 1
    except SystemExit as error:
        _said(control.send, {"failed": f"its module ends the process when it is imported ({error!r})"})
        return 1
    gc.collect()
    gc.freeze()
    _said(control.send, {"ready": ""})
    Nursery(control, definition, contained).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

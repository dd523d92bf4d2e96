"""The process that imports one environment's code, and forks an environment for each connection it
is sent.

python -P -m rollcast.environments.hosted.nursery CONTROL_DESCRIPTOR FOLDER < source as JSON

control readable     -> fork an environment for the connection that came; ping -> pong;
                        closed -> end all of them
connection hung up   -> end its environment, with every process that it started
SIGCHLD              -> close the connection of the environment that ended, so that the generator
                        hears of it
"""

import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from rollcast.config.own_functions import failure
from rollcast.environments.hosted.definition import Definition, load_definition
from rollcast.environments.hosted.private_folder import PrivateFolder, start_removal
from rollcast.environments.hosted.profiles import Containment, containment
from rollcast.environments.hosted.roles import Become, EnvironmentRole, play
from rollcast.environments.hosted.source import HostedSource
from rollcast.tasks.sandbox.limits import address_space_bytes
from rollcast.tasks.sandbox.lockdown import MAX_SERVER_FILES, adopt_orphans, hide_memory
from rollcast.tasks.sandbox.readable_files import readable_files

FORK = b"fork"
PING = b"ping"
PONG = b"pong"
SHIPPED = "rollcast"


@dataclass
class Child:
    """One environment. `pid` is its guard's, if it has one."""

    pid: int
    connection: socket.socket
    private: PrivateFolder | None
    has_guard: bool


class Nursery:
    def __init__(
        self,
        control: socket.socket,
        source: HostedSource,
        definition: Definition,
        contained: Containment,
        folder: Path,
    ) -> None:
        """folder: for the private folders."""
        self._control = control
        self._call_seconds = source.call_seconds
        self._definition = definition
        self._contained = contained
        self._folder = folder
        self._pid = os.getpid()
        self._children: dict[int, Child] = {}
        """By the number of their connection."""
        self._poll = select.epoll()
        self._woken, self._wake = os.pipe()
        for descriptor in (self._woken, self._wake):
            os.set_blocking(descriptor, False)
        # Only a signal with a handler of Python wakes the poll.
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Until the generator closes its end of `control`."""
        self._poll.register(self._control.fileno(), select.EPOLLIN)
        self._poll.register(self._woken, select.EPOLLIN)
        is_open = True
        while is_open:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._control.fileno():
                    is_open = self._read_control()
                elif descriptor == self._woken:
                    self._reap()
                elif (child := self._children.get(descriptor)) is not None:
                    self._end(child)

    def close(self) -> None:
        """End all environments, and wait for that."""
        for child in list(self._children.values()):
            self._end(child)
        while self._children:
            self._reap(wait=True)

    def _read_control(self) -> bool:
        """False = the generator has closed it."""
        data, descriptors, _, _ = socket.recv_fds(self._control, 16, 1)
        if data == PING:
            self._control.send(PONG)
            return True
        if data != FORK:
            return False
        if (
            not descriptors
        ):  # too many files are open: the generator hears that this connection is closed
            return True
        connection = socket.socket(fileno=descriptors[0])
        try:
            if _is_hung_up(connection):  # nothing waits for it any more
                connection.close()
            else:
                self._fork(connection)
        except OSError:  # no process, memory or disk is left for this one; the others live on
            connection.close()
        return True

    def _fork(self, connection: socket.socket) -> None:
        """Raises OSError."""
        private = PrivateFolder.make(self._folder) if self._contained.profile == "folder" else None
        try:
            pid = os.fork()
        except OSError:
            if private is not None:
                private.remove()  # it is empty
            raise
        has_guard = self._contained.profile != "compute"
        if pid == 0:
            self._let_go()
            role = EnvironmentRole(
                self._definition,
                self._contained,
                self._call_seconds,
                connection,
                private,
                self._pid,
            )
            raise Become(role.run_guarded if has_guard else role.run_alone)
        self._children[connection.fileno()] = Child(pid, connection, private, has_guard)
        self._poll.register(connection.fileno(), 0)  # hang-ups are always reported

    def _let_go(self) -> None:
        """A fork keeps nothing of the nursery's own."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for end in [self._control, *(child.connection for child in self._children.values())]:
            end.close()
        self._poll.close()
        os.close(self._woken)
        os.close(self._wake)

    def _end(self, child: Child) -> None:
        """Ask for its end; `_reap` does the rest."""
        with contextlib.suppress(FileNotFoundError):
            self._poll.unregister(child.connection.fileno())
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGTERM if child.has_guard else signal.SIGKILL)
            os.kill(child.pid, signal.SIGCONT)  # a guard that was stopped would not end

    def _reap(self, *, wait: bool = False) -> None:
        """Collect the environments that have ended, and the orphans that they left
        to this process.
        """
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)
        options = 0 if wait else os.WNOHANG
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, options)[0]) != 0:
                # Only the first wait blocks.
                options = os.WNOHANG
                self._forget(pid)

    def _forget(self, pid: int) -> None:
        for number, child in list(self._children.items()):
            if child.pid == pid:
                del self._children[number]
                with contextlib.suppress(FileNotFoundError, ValueError):
                    self._poll.unregister(number)
                child.connection.close()
                if (
                    child.private is not None and child.private.path.exists()
                ):  # its guard was killed
                    start_removal([child.private.path])


def _is_hung_up(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def _prepare_environment(source: HostedSource) -> tuple[Definition, Containment]:
    definition = load_definition(source)
    readable = readable_files(definition.module or SHIPPED)
    starts_anew = bool(definition.programs) and not definition.is_shipped
    if definition.programs and not starts_anew:
        with contextlib.suppress(ImportError):  # once, because many programs import it
            import_module("numpy")
    return definition, containment(
        source.profile, readable, address_space_bytes(), starts_anew=starts_anew
    )


def _say(send: Callable[[bytes], object], message: dict[str, object]) -> None:
    send(json.dumps(message).encode())


def _run(control: socket.socket, folder: Path) -> None:
    source = HostedSource.from_json(sys.stdin.buffer.read())
    if source.profile != "trusted":
        hide_memory()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(MAX_SERVER_FILES, hard), hard))
    sys.path.append(
        os.getcwd()
    )  # may hold a module of the user; comes after all installed packages
    try:
        definition, contained = _prepare_environment(source)
    except Exception as error:
        _say(control.send, {"failed": failure(error)})
        return
    except SystemExit as error:
        _say(
            control.send, {"failed": f"its module ends the process when it is imported ({error!r})"}
        )
        return
    adopt_orphans()
    gc.collect()
    # Forks share this memory until it is written to, and a garbage collection writes to every
    # object.
    gc.freeze()
    offered = {
        "gives_call_rewards": definition.gives_call_rewards,
        "gives_metrics": definition.gives_metrics,
    }
    _say(control.send, {"ready": True, **offered})
    fork_server = Nursery(control, source, definition, contained, folder)
    fork_server.serve()
    fork_server.close()


def main(arguments: list[str]) -> int:
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=int(arguments[0]))
    play(partial(_run, control, Path(arguments[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

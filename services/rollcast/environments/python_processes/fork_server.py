"""The process that imports one environment's code, and forks an environment for each connection it
is sent.

python -P -m rollcast.environments.python_processes.fork_server CONTROL_DESCRIPTOR FOLDER
    < source as JSON

control readable     -> fork an environment for the connection that came; ping -> pong;
                        closed -> end all of them
connection hung up   -> end its environment, with every process that it started
SIGCHLD              -> close the connection of the environment that ended, so that the generator
                        hears of it
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from rollcast.config.function_loading import failure
from rollcast.environments.python_processes.definition import Definition, load_definition
from rollcast.environments.python_processes.private_folder import PrivateFolder, start_removal
from rollcast.environments.python_processes.profiles import Containment, containment
from rollcast.environments.python_processes.roles import Become, EnvironmentRole, play
from rollcast.environments.python_processes.source import PythonSource
from rollcast.processes.fork_server import BaseForkServer, forget_signals, prepare_to_fork
from rollcast.processes.limits import address_space_bytes
from rollcast.processes.tree import adopt_orphans
from rollcast.tasks.sandbox.lockdown import hide_memory
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


class Nursery(BaseForkServer):
    def __init__(
        self,
        control: socket.socket,
        source: PythonSource,
        definition: Definition,
        contained: Containment,
        folder: Path,
    ) -> None:
        """folder: for the private folders."""
        super().__init__(control)
        self._call_seconds = source.call_seconds
        self._definition = definition
        self._contained = contained
        self._folder = folder
        self._pid = os.getpid()
        self._children: dict[int, Child] = {}
        """By their process ids."""

    def _end_all(self) -> None:
        for child in self._children.values():
            self._end(child)
        while self._children:
            self._reap(wait=True)

    def _take(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._control, 16, 1)
        if data == PING:
            self._control.send(PONG)
            return
        if data != FORK:
            self._is_open = False
            return
        # Too many files are open: the generator hears that this connection is closed.
        if not descriptors:
            return
        connection = socket.socket(fileno=descriptors[0])
        try:
            if _is_hung_up(connection):  # nothing waits for it any more
                connection.close()
            else:
                self._fork(connection)
        except OSError:  # no process, memory or disk is left for this one; the others live on
            connection.close()

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
            forget_signals()
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
        child = Child(pid, connection, private, has_guard)
        self._children[pid] = child
        self._watch(connection, 0, lambda: self._end(child))  # hang-ups are always reported

    def _end(self, child: Child) -> None:
        """Ask for its end; `_reap` does the rest."""
        self._watch_no_more(child.connection)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGTERM if child.has_guard else signal.SIGKILL)
            os.kill(child.pid, signal.SIGCONT)  # a guard that was stopped would not end

    def _reap(self, *, wait: bool = False) -> None:
        """Collect the environments that have ended, and the orphans that they left
        to this process.
        """
        options = 0 if wait else os.WNOHANG
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, options)[0]) != 0:
                # Only the first wait blocks.
                options = os.WNOHANG
                if (child := self._children.pop(pid, None)) is not None:
                    self._forget(child.connection)
                    # Its guard was killed.
                    if child.private is not None and child.private.path.exists():
                        start_removal([child.private.path])


def _is_hung_up(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def _prepare_environment(source: PythonSource) -> tuple[Definition, Containment]:
    definition = load_definition(source)
    readable = readable_files(definition.module or SHIPPED)
    starts_anew = bool(definition.programs) and not definition.is_shipped
    if definition.programs and not starts_anew:
        with contextlib.suppress(ImportError):  # once, because many programs import it
            import_module("numpy")
    return definition, containment(
        source.profile, readable, address_space_bytes(), starts_anew=starts_anew
    )


def _run(control: socket.socket, folder: Path) -> None:
    source = PythonSource.from_json(sys.stdin.buffer.read())
    if source.profile != "trusted":
        hide_memory()
    # May hold a module of the user; comes after all installed packages.
    sys.path.append(os.getcwd())
    prepared = prepare_to_fork(control, partial(_prepare_environment, source), failure)
    if prepared is None:
        return
    definition, contained = prepared
    adopt_orphans()
    offered = {
        "gives_call_rewards": definition.gives_call_rewards,
        "gives_metrics": definition.gives_metrics,
    }
    control.send(json.dumps({"ready": True, **offered}).encode())
    Nursery(control, source, definition, contained, folder).serve()


def main(arguments: list[str]) -> int:
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=int(arguments[0]))
    play(partial(_run, control, Path(arguments[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

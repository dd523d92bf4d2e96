"""Roles of a process that a fork server forks: the guard of an environment, the environment, or
the process of its programs.

A fork raises `Become`. So it leaves all frames of its parent, with the objects that they hold,
before it runs code of a user or a model.
"""

import os
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rollcast.environments.python_processes import programs
from rollcast.environments.python_processes.definition import Definition
from rollcast.environments.python_processes.folder_access import reachable_variables
from rollcast.environments.python_processes.guard import guard_environment
from rollcast.environments.python_processes.private_folder import PrivateFolder
from rollcast.environments.python_processes.profiles import Containment
from rollcast.environments.python_processes.program_client import ProgramProcess
from rollcast.environments.python_processes.serving import serve
from rollcast.processes.tree import die_with_parent
from rollcast.tasks.sandbox.lockdown import show_descriptors

Role = Callable[[], None]


class Become(BaseException):
    """This process is a fork, and runs this next."""

    def __init__(self, role: Role) -> None:
        super().__init__()
        self.role = role


def play(role: Role) -> None:
    """Run a role, and in forks of this process their own roles. Forks do not return."""
    first = os.getpid()
    code = 1
    try:
        while True:
            try:
                role()
                code = 0
                break
            except Become as become:
                role = become.role
    except BaseException:
        if os.getpid() == first:
            raise
        traceback.print_exc()
    finally:
        if os.getpid() != first:
            os._exit(code)


@dataclass(frozen=True, slots=True)
class EnvironmentRole:
    """The parts that an environment is made of."""

    definition: Definition
    contained: Containment
    call_seconds: float
    connection: socket.socket
    """The generator has the other end."""
    private: PrivateFolder | None
    """None = another profile than folder."""
    parent: int
    """The fork server."""

    def run_guarded(self) -> None:
        """Become the guard, and in its fork the environment."""
        guard_socket = environment_socket = None
        if self.private is not None:
            guard_socket, environment_socket = socket.socketpair()

        def run() -> None:
            raise Become(partial(self.run, environment_socket))

        guard_environment(run, self.connection, self.private, self.parent, guard_socket)

    def run_alone(self) -> None:
        """Become the environment, as a child of the fork server."""
        die_with_parent()
        if os.getppid() == self.parent:
            self.run(None)

    def run(self, guard_end: socket.socket | None) -> None:
        """guard_end: takes the listener of the profile folder's filter."""
        process = None
        if self.definition.programs and self.private is None:
            # Under `compute` no process can be started once the profile is on.
            process = self._fork_programs()
        if self.private is not None:
            os.setpgid(0, 0)  # a signal to its own group reaches neither guard nor fork server
            show_descriptors()
        connections = (
            [self.connection] if process is None else [self.connection, process.connection]
        )
        numbers = self.contained.put_on(
            tuple(end.fileno() for end in connections), self.private, guard_end
        )
        connection = _renumber_socket(self.connection, numbers[0])
        if process is not None:
            process.connection = _renumber_socket(process.connection, numbers[1])
        if self.private is not None:
            os.environ.update(reachable_variables(self.private.home))
        if self.definition.programs and self.private is not None:
            # The programs inherit the profile.
            process = self._fork_programs()
        serve(self.definition, connection, process)

    def _fork_programs(self) -> ProgramProcess:
        environment_socket, program_socket = socket.socketpair()
        names = self.definition.programs
        parent = os.getpid()
        if os.fork() == 0:
            environment_socket.close()
            run = partial(
                _run_programs, self.contained, program_socket, names, self.call_seconds, parent
            )
            raise Become(run if self.definition.is_shipped else partial(run, starts_anew=True))
        program_socket.close()
        return ProgramProcess(environment_socket, names)


def _run_programs(
    contained: Containment,
    connection: socket.socket,
    names: tuple[str, ...],
    call_seconds: float,
    parent: int,
    *,
    starts_anew: bool = False,
) -> None:
    """starts_anew: replace this process's memory, which holds a user's code."""
    die_with_parent()
    if os.getppid() != parent:
        return
    if starts_anew:
        program = contained.put_on_new_programs(connection.fileno())
        module = [sys.executable, "-P", "-m", programs.__name__]
        os.execv(sys.executable, [*module, ",".join(names), str(call_seconds), program.hex()])  # noqa: S606
    program_functions = programs.make_programs(names, call_seconds)
    number = contained.put_on_programs(connection.fileno())
    programs.serve_programs(program_functions, _renumber_socket(connection, number))


def _renumber_socket(connection: socket.socket, number: int) -> socket.socket:
    if number == connection.fileno():
        return connection
    connection.detach()
    return socket.socket(fileno=number)

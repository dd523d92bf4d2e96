"""The guard's answers to system calls that a filter cannot judge by their arguments
(`folder_calls`).

limits, scheduling, signals    continued for processes below this guard, refused for others
modes, owners, times           carried out by the guard, on a file below the private folder
                               (`file_changes`)
"""

import contextlib
import errno
import os
import select
from pathlib import Path
from typing import Any

from rollcast.environments.python_processes.file_changes import FileChanges
from rollcast.environments.python_processes.folder_calls import FILE_CHANGES, SIGNALS, as_int


class CallSupervisor:
    """Answers the calls of one environment."""

    def __init__(self, descriptor: int, home: Path, environment: int) -> None:
        """descriptor: of the listener, which is used up here. home: the private folder.
        environment: the process whose programs ask, on which they may not act."""
        from seccompy import syscall_name
        from seccompy.notify import Listener

        self._name_of = syscall_name
        self._listener = Listener(descriptor)
        self._changes = FileChanges(home)
        self._environment = environment
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def fileno(self) -> int:
        return int(self._listener.fileno())

    def answer_waiting(self) -> bool:
        """Answer calls that wait. False = no process with the filter is left."""
        # Answers until the guard looks at the environment again
        for _ in range(100):
            events = self._poll.poll(0)
            if not events:
                break
            if not events[0][1] & select.POLLIN:
                return False
            with contextlib.suppress(OSError):  # the caller has ended, or was interrupted
                self._answer(self._listener.recv())
        return True

    def _answer(self, call: Any) -> None:
        name = self._name_of(call.nr)
        if name not in FILE_CHANGES:
            self._judge(name, call)
            return
        try:
            self._changes.carry_out(
                name, call.args, call.pid, lambda: self._listener.valid(call.id)
            )
            error = 0
        except OSError as failure:
            # A path that leads outside of the folder is EXDEV.
            error = (
                errno.EPERM
                if failure.errno is None or failure.errno == errno.EXDEV
                else failure.errno
            )
        except Exception:  # numbers that Python does not take for a time or an owner
            error = errno.EINVAL
        self._listener.respond(call.id, error=error)

    def _judge(self, name: str, call: Any) -> None:
        """Arguments are numbers here, which the caller cannot change any more."""
        from seccompy.notify import RespFlag

        number = as_int(call.args[0])
        if name in SIGNALS and number < -1:
            number = -number  # a group, by its leader
        is_own = number == 0 or (
            number > 0 and is_below(number, os.getpid())
        )  # 0: the caller, or its own group
        # The programs of an environment must not act on the environment's own process.
        if is_own and (number != self._environment or call.pid == number):
            self._listener.respond(call.id, flags=RespFlag.CONTINUE)
        else:
            self._listener.respond(call.id, error=errno.EPERM)


def is_below(number: int, ancestor: int) -> bool:
    """Whether a process or thread descends from another process."""
    # Processes between one of an environment and its guard: each takes one of those that it may
    # have
    for _ in range(1_000):
        if number <= 1:
            return False
        number = _parent(number)
        if number == ancestor:
            return True
    return False


def _parent(number: int) -> int:
    """0 = there is no such process."""
    try:
        lines = Path(f"/proc/{number}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("PPid:")), 0)

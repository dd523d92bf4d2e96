"""The generator's end of one fork server's process."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil

from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.python_processes.fork_server import FORK, PING, PONG
from rollcast.environments.python_processes.source import PythonSource
from rollcast.processes.server_process import ServerProcess
from rollcast.processes.variables import users_variables

START_SECONDS = 120.0
"""Deadline for a module's import, on a busy machine."""
END_SECONDS = 5.0
"""How long a fork server may take to end all of its environments."""
INHERITED = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "LD_LIBRARY_PATH", "TMPDIR")
"""All that a contained environment sees of the surroundings: no address, password or token is among
them. A trusted one sees the user's variables without ours."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Under the profile compute no thread can be started, and numerical libraries would end the
process."""


class RunningForkServer(ServerProcess):
    """Methods block; each may be called from a thread of its own."""

    def __init__(self, source: PythonSource, folder: Path | None) -> None:
        """folder: for private folders. None = another profile than folder."""
        self.is_ready = False
        self.was_killed = False
        self.gives_call_rewards = False
        self.gives_metrics = False
        is_trusted = source.profile == "trusted"
        variables = {key: os.environ[key] for key in INHERITED if key in os.environ}
        if is_trusted:
            variables = users_variables()
        if source.profile == "compute":
            variables |= ONE_THREAD
        super().__init__(
            # The working folder comes after all installed packages: the fork server adds it last.
            [sys.executable, "-P", "-m", "rollcast.environments.python_processes.fork_server"],
            [str(folder)],
            variables,
            stdin=subprocess.PIPE,
            stderr=None if is_trusted else subprocess.DEVNULL,
        )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.process.stdin as stdin:
            stdin.write(source.to_json())

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        return self.was_killed or self.process.poll() is not None

    def ends_soon(self) -> bool:
        """Whether it has ended, or is about to: its connections close some moments before."""
        if not self.was_killed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                # Between the end of a process's connections and its own
                self.process.wait(timeout=1.0)
        return self.has_ended

    def wait_until_ready(self) -> None:
        """Raises EnvironmentFailedError: its module cannot be imported, or the machine cannot
        contain it.
        """
        answer = self.read_first_answer(START_SECONDS)
        self.gives_call_rewards = bool(answer.get("gives_call_rewards"))
        self.gives_metrics = bool(answer.get("gives_metrics"))
        # Deadline for a busy fork server to take a connection
        self.control.settimeout(30.0)
        if (failure_reason := answer.get("failed")) is not None:
            self.close()
            raise EnvironmentFailedError(str(failure_reason))
        self.is_ready = True

    def fork(self, connection: int) -> None:
        """Ask for an environment at the other end of a connection.

        Raises EnvironmentFailedError.
        """
        try:
            socket.send_fds(self.control, [FORK], [connection])
        except OSError as error:
            raise EnvironmentFailedError(
                f"its fork server does not accept a connection ({error})"
            ) from error

    def answers(self, seconds: float) -> bool:
        """Whether it answers within this time. Only one thread may ask at a time."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            # A copy, because another thread may send connections with a deadline of its own.
            control = stack.enter_context(self.control.dup())
            control.settimeout(seconds)
            control.send(PING)
            return control.recv(16) == PONG
        return False

    def close(self) -> None:
        """End it, with all environments."""
        self.hang_up()
        self.control.close()
        try:
            self.process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it although it does not answer.

        Each guard gets a signal then, and ends its processes.
        """
        self.was_killed = True
        self.hang_up()
        with contextlib.suppress(psutil.Error):
            for guard in psutil.Process(self.pid).children():
                with contextlib.suppress(psutil.Error):
                    guard.resume()  # one that was stopped would not end
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=END_SECONDS)

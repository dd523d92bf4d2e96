"""The generator's end of one nursery's process."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil

from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.hosted.nursery import FORK, PING, PONG
from rollcast.environments.hosted.source import HostedSource

START_SECONDS = 120.0
"""Deadline for a module's import, on a busy machine."""
END_SECONDS = 5.0
"""How long a nursery may take to end all of its environments."""
INHERITED = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "LD_LIBRARY_PATH", "TMPDIR")
"""All that a contained environment sees of the surroundings: no address, password or token is among
them. A trusted one sees the user's variables without ours."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Under the profile compute no thread can be started, and numerical libraries would end the
process."""


class RunningForkServer:
    """Methods block; each may be called from a thread of its own."""

    def __init__(self, source: HostedSource, folder: Path | None) -> None:
        """folder: for private folders. None = another profile than folder."""
        self.is_ready = False
        self.was_killed = False
        self.gives_call_rewards = False
        self.gives_metrics = False
        self._control, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        is_trusted = source.profile == "trusted"
        variables = {
            key: value for key, value in os.environ.items() if is_trusted or key in INHERITED
        }
        if source.profile == "compute":
            variables |= ONE_THREAD
        with its_end:
            self._process = subprocess.Popen(  # noqa: S603  # our own module
                [
                    sys.executable,
                    # The working folder comes after all installed packages: the nursery adds it at
                    # the end.
                    "-P",
                    "-m",
                    "rollcast.environments.hosted.nursery",
                    str(its_end.fileno()),
                    str(folder),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=None if is_trusted else subprocess.DEVNULL,
                pass_fds=(its_end.fileno(),),
                start_new_session=True,
                env={
                    key: value
                    for key, value in variables.items()
                    if not key.startswith("ROLLCAST_")
                },
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(source.to_json())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self.was_killed or self._process.poll() is not None

    def ends_soon(self) -> bool:
        """Whether it has ended, or is about to: its connections close some moments before."""
        if not self.was_killed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                # Between the end of a process's connections and its own
                self._process.wait(timeout=1.0)
        return self.has_ended

    def wait_until_ready(self) -> None:
        """Raises EnvironmentFailedError: its module cannot be imported, or the machine cannot
        contain it.
        """
        self._control.settimeout(START_SECONDS)
        failure_reason = None
        try:
            content = self._control.recv(1 << 16)
            if not content:
                failure_reason = "its module ends the process when it is imported"
            else:
                answer = json.loads(content)
                failure_reason = answer.get("failed")
                self.gives_call_rewards = bool(answer.get("gives_call_rewards"))
                self.gives_metrics = bool(answer.get("gives_metrics"))
        except TimeoutError:
            failure_reason = f"its module takes more than {START_SECONDS:g} s to import"
        except (OSError, ValueError) as error:
            failure_reason = f"{type(error).__name__}: {error}"
        # Deadline for a busy nursery to take a connection
        self._control.settimeout(30.0)
        if failure_reason is not None:
            self.close()
            raise EnvironmentFailedError(str(failure_reason))
        self.is_ready = True

    def fork(self, connection: int) -> None:
        """Ask for an environment at the other end of a connection.

        Raises EnvironmentFailedError.
        """
        try:
            socket.send_fds(self._control, [FORK], [connection])
        except OSError as error:
            raise EnvironmentFailedError(
                f"its fork server does not accept a connection ({error})"
            ) from error

    def answers(self, seconds: float) -> bool:
        """Whether it answers within this time. Only one thread may ask at a time."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            # A copy, because another thread may send connections with a deadline of its own.
            control = stack.enter_context(self._control.dup())
            control.settimeout(seconds)
            control.send(PING)
            return control.recv(16) == PONG
        return False

    def hang_up(self) -> None:
        """End it with all environments; threads that wait for it fail."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it, with all environments."""
        self.hang_up()
        self._control.close()
        try:
            self._process.wait(timeout=END_SECONDS)
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
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=END_SECONDS)

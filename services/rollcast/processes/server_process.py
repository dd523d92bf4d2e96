"""A process that is sent connections over a control socket, as its client sees it."""

import contextlib
import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from rollcast.processes.tree import end_group


class ServerProcess:
    """Ends when `control` closes."""

    def __init__(
        self,
        program: Sequence[str],
        arguments: Sequence[str],
        variables: Mapping[str, str],
        *,
        stdin: int | None = None,
        stderr: int | None = None,
        cwd: str | None = None,
    ) -> None:
        """Start `program` with the number of its descriptor and the arguments. Raises OSError.

        stdin, stderr, cwd: as in Popen.
        """
        self.control, server_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptor = server_socket.fileno()
        with server_socket:
            try:
                self.process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603  # ours
                    [*program, str(descriptor), *arguments],
                    stdout=subprocess.DEVNULL,
                    pass_fds=(descriptor,),
                    start_new_session=True,
                    env=variables,
                    stdin=stdin,
                    stderr=stderr,
                    cwd=cwd,
                )
            except OSError:
                self.control.close()
                raise

    def read_first_answer(self, seconds: float) -> dict[str, Any]:
        """The answer of a fork server that is ready; `failed` says why it is not."""
        self.control.settimeout(seconds)
        try:
            content = self.control.recv(1 << 16)
            if not content:
                return {"failed": "its module ends the process when it is imported"}
            answer: dict[str, Any] = json.loads(content)
            return answer
        except TimeoutError:
            return {"failed": f"its module takes more than {seconds:g} s to import"}
        except (OSError, ValueError) as error:
            return {"failed": f"{type(error).__name__}: {error}"}

    def hang_up(self) -> None:
        """End it. Threads that wait for it fail."""
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it. Its forks are killed when `control` closes, and die with it in any case.

        May be called twice.
        """
        self.hang_up()
        self.control.close()
        end_group(self.process, 5.0)

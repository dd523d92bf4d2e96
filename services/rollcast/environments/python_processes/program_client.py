"""The environment's side of the process that runs what the model wrote (`programs`)."""

import socket
import time
from collections.abc import Mapping
from typing import Any

from rollcast.environments.python_processes.answers import check_number, get_flag, get_text
from rollcast.processes.frames import MAX_ANSWER_BYTES, FrameError, pack_message, receive

GRACE_SECONDS = 1.0
"""After a deadline, a program has this long to be interrupted. The generator waits longer."""


class ProgramEndedError(Exception):
    """The process has ended, hangs, or sent an invalid answer: it can run nothing more."""

    def __init__(self, reason: str, *, is_overdue: bool = False) -> None:
        super().__init__(reason)
        self.is_overdue = is_overdue


class ProgramProcess:
    """Runs one program after another."""

    def __init__(self, connection: socket.socket, names: tuple[str, ...]) -> None:
        self.names = names
        """The tools whose calls it answers."""
        self.connection = connection
        self._num_requests = 0

    def call(self, tool: str, arguments: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a call. Raises ProgramEndedError."""
        self._num_requests += 1
        request = {
            "tool": tool,
            "arguments": dict(arguments),
            "seconds": seconds,
            "number": self._num_requests,
        }
        deadline = time.monotonic() + seconds + GRACE_SECONDS
        try:
            self.connection.settimeout(seconds + GRACE_SECONDS)
            self.connection.sendall(pack_message(request))
            return self._check_answer(self._receive(deadline))
        except TimeoutError:
            raise ProgramEndedError(
                f"call could not be interrupted after {seconds:g} s", is_overdue=True
            ) from None
        except OSError:
            raise ProgramEndedError("its process ended during call") from None
        except FrameError as error:
            raise ProgramEndedError(f"its process sent {error}") from None

    def _receive(self, deadline: float) -> dict[str, Any]:
        # Answers to earlier requests, which an interrupted program may have left on the connection
        for _ in range(100):
            answer = receive(self.connection, MAX_ANSWER_BYTES, deadline)
            if answer is None:
                raise ConnectionResetError
            if answer.get("number") == self._num_requests:
                return answer
        raise FrameError("answers to other requests")

    def _check_answer(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that a program may set."""
        check_number(answer, self._num_requests)
        if get_flag(answer, "overdue"):
            return {"overdue": True}
        return {
            "text": get_text(answer),
            "late": get_flag(answer, "late"),
            "cut": get_flag(answer, "cut"),
        }

"""A process that answers questions, one line of JSON each, over its standard input and output."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Sequence

from rollcast.cli.corpus.protocol import ForecasterAnswer, Question, read_answer
from rollcast.cli.corpus.single_thread import ONE_THREAD
from rollcast.config.errors import UserError
from rollcast.config.json_text import to_json
from rollcast.processes.tree import end_group, kill_group

ANSWER_SECONDS = 60.0
"""How long one answer may take, the start of the program included. Rollcast takes less than 0.1
s."""
MAX_ANSWER_BYTES = 2**20
"""Length of one answer. An answer of Rollcast has less than 1 kB."""
END_SECONDS = 5.0
"""How long a program may take to end after its standard input was closed; then it is killed."""


class ForecasterProgram:
    """One running program. Not thread-safe, except `kill`."""

    def __init__(self, command: Sequence[str], answer_seconds: float = ANSWER_SECONDS) -> None:
        """Raises UserError: the program cannot be started."""
        self._name = command[0]
        self._answer_seconds = answer_seconds
        self._num_asked = 0
        try:
            self._process = subprocess.Popen(  # noqa: S603  # the command of whoever called us
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                env=os.environ | ONE_THREAD,
            )
        except OSError as error:
            raise UserError(
                f"--forecaster {self._name}: cannot be started ({error.strerror}); give a program"
            ) from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)

    def ask(self, question: Question) -> ForecasterAnswer:
        """Send a question and wait for its answer, which may be a refusal.

        Raises:
            UserError: no answer in time, the end of the program, or a line that is not an answer.
        """
        self._num_asked += 1
        message = {"id": self._num_asked, **question.model_dump()}
        line = self._exchange(to_json(message).encode() + b"\n")
        try:
            return read_answer(line, self._num_asked, question)
        except ValueError as error:
            raise self._program_error(
                f"gave no valid answer ({error}); follow the protocol"
            ) from None

    def close(self) -> None:
        """Let the program end."""
        self._stdin.close()
        try:
            end_group(self._process, END_SECONDS)
        finally:
            self._stdout.close()

    def kill(self) -> None:
        """End the program and the processes that it started."""
        if self._process.poll() is None:
            kill_group(self._process.pid)

    def _exchange(self, message: bytes) -> bytes:
        """Write a message while the answer is read, so that the two sides never wait for each
        other.
        """
        deadline = time.monotonic() + self._answer_seconds
        unsent = message
        received = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            selector.register(self._stdin, selectors.EVENT_WRITE)
            while not received.endswith(b"\n"):
                seconds_left = deadline - time.monotonic()
                if seconds_left <= 0.0:
                    raise self._program_error(
                        f"gave no answer within {self._answer_seconds:g} s; make it faster"
                    )
                for key, _ in selector.select(seconds_left):
                    if key.fileobj is self._stdin:
                        unsent = self._send(unsent)
                        if not unsent:
                            selector.unregister(self._stdin)
                    else:
                        received += self._receive()
                if len(received) > MAX_ANSWER_BYTES:
                    raise self._program_error(
                        f"wrote more than {MAX_ANSWER_BYTES} bytes; write one line for each "
                        "question"
                    )
        if unsent or received.count(b"\n") > 1:
            raise self._program_error(
                "wrote more than one line; write nothing else to standard output"
            )
        return received

    def _send(self, unsent: bytes) -> bytes:
        """Send a part; returns the rest."""
        try:
            return unsent[os.write(self._stdin.fileno(), unsent) :]
        except BrokenPipeError:
            raise self._end_error() from None

    def _receive(self) -> bytes:
        # Bytes of one read
        chunk = os.read(self._stdout.fileno(), 2**16)
        if not chunk:
            raise self._end_error()
        return chunk

    def _end_error(self) -> UserError:
        try:
            ending = f"ended with exit code {self._process.wait(END_SECONDS)}"
        except subprocess.TimeoutExpired:
            ending = "closed its standard input or output"
        return self._program_error(
            f"{ending} before it answered; run it by hand with a question of the documentation"
        )

    def _program_error(self, problem: str) -> UserError:
        return UserError(
            f"--forecaster {self._name}: question {self._num_asked}: the program {problem}"
        )

"""Which failures a supervisor may try again (exit code 1), and which only a user can mend (2)."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from rollcast.config.errors import PassingError, UserError, refused_by_the_world


class HttpAnswerError(OSError):
    """As clients raise it: an OSError without number that holds the answer."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.response = SimpleNamespace(status_code=status)


def caused_by(cause: BaseException) -> BaseException:
    """What a library makes of it."""
    error = FileNotFoundError("not found, and not in the cache")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        *(
            OSError(number, os.strerror(number))
            for number in (errno.EIO, errno.ENOSPC, errno.ESTALE, errno.EDQUOT)
        ),
        OSError(errno.ETIMEDOUT, "timed out"),
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        ConnectionError("couldn't reach the hub"),
        TimeoutError(),
        socket.gaierror(socket.EAI_AGAIN, "try again"),
        HttpAnswerError(503),
        HttpAnswerError(429),
        caused_by(HttpAnswerError(502)),
        caused_by(caused_by(ConnectionResetError(errno.ECONNRESET, "reset"))),
    ],
    ids=repr,
)
def test_what_may_pass_is_tried_again(error: BaseException) -> None:
    told = refused_by_the_world(error, "a sentence")
    assert isinstance(told, PassingError)
    assert (told.exit_code, str(told)) == (1, "a sentence")


@pytest.mark.parametrize(
    "error",
    [
        *(
            OSError(number, os.strerror(number))
            for number in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)
        ),
        ValueError("no such split"),
        HttpAnswerError(404),
        HttpAnswerError(401),
        caused_by(HttpAnswerError(404)),
        caused_by(ValueError("broken")),
    ],
    ids=repr,
)
def test_what_the_user_must_mend_is_not(error: BaseException) -> None:
    told = refused_by_the_world(error, "a sentence")
    assert type(told) is UserError
    assert told.exit_code == 2


def test_the_file_systems_own_refusals(tmp_path: Path) -> None:
    """As the kernel gives them: a full device may be emptied, a path that is a folder stays one."""
    with pytest.raises(OSError, match="No space left") as full, Path("/dev/full").open("a") as file:
        file.write("x")
    assert refused_by_the_world(full.value, "").exit_code == 1
    with pytest.raises(IsADirectoryError) as folder:
        tmp_path.open("a")
    assert refused_by_the_world(folder.value, "").exit_code == 2

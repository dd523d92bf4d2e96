"""Errors that a user reads as one sentence instead of a traceback: mistakes to fix, and failures
that may pass.
"""

import errno
from collections.abc import Iterator
from typing import ClassVar

EXIT_FAILED = 1
EXIT_USER_ERROR = 2
EXIT_FAILED_AGAIN = 77
"""A trainer's: its numbers went wrong twice without a step in between. No supervisor should start
it again; a launcher on a cluster says EXIT_USER_ERROR instead, which fails the Job."""
EXIT_SUPERSEDED = 76
"""A trainer's: its release names another one. It has left in order, and its Job must not begin
again."""
_ABOUT_RIGHTS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_ABOUT_PATHS = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG}
)
FIXED_BY_THE_USER = _ABOUT_RIGHTS | _ABOUT_PATHS
"""Errors of a file system after which a second try would fail again."""
SERVER_ERROR = 500
PASSING_STATUS = frozenset({408, 425, 429})
"""HTTP answers below SERVER_ERROR that ask for a second try: too slow, too early, too many."""


class UserError(ValueError):
    """A mistake in what the user gave us. The message names the field, its value and the remedy."""

    exit_code: ClassVar[int] = EXIT_USER_ERROR
    """No supervisor should start the process again."""


class PassingError(UserError):
    """Nothing that the user gave is known to be wrong: storage, memory or a network failed, perhaps
    only for now.
    """

    exit_code: ClassVar[int] = EXIT_FAILED
    """A supervisor may start the process again."""


class WrongNumbersError(PassingError):
    """The trainer's numbers are wrong on some rank; a restart goes back to the newest checkpoint.

    Every rank knows of it.
    """


class FailedAgainError(UserError):
    """The restart after a WrongNumbersError made no step more than the trainer before it."""

    exit_code: ClassVar[int] = EXIT_FAILED_AGAIN


def refused_by_the_world(error: BaseException, sentence: str) -> UserError:
    """`sentence` as a UserError, or as a PassingError where `error` or one of its causes may pass
    by itself.
    """
    return PassingError(sentence) if may_pass(error) else UserError(sentence)


def may_pass(error: BaseException) -> bool:
    """Whether a second try may go well: an I/O error not about paths or rights, a network, a server
    in trouble.

    The status that a server answered decides first: 404 is a wrong name however the client wraps
    it.
    """
    chain = list(causes(error))
    for link in chain:
        status = getattr(getattr(link, "response", None), "status_code", None)
        if isinstance(status, int):
            return status >= SERVER_ERROR or status in PASSING_STATUS
    return any(_is_passing(link) for link in chain)


def _is_passing(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    return (
        isinstance(error, OSError)
        and error.errno is not None
        and error.errno not in FIXED_BY_THE_USER
    )


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, each once, with those that `from None` hides, as libraries do with
    an HTTP answer.
    """
    seen_ids: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen_ids:
        seen_ids.add(id(link))
        yield link
        link = link.__cause__ or link.__context__

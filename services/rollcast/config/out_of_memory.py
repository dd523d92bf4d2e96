"""Out of memory is one sentence, that names what did not fit and the setting; a second try would
find no more room.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from rollcast.config.errors import EXIT_FAILED, UserError

REFUSALS = ("can't allocate memory", "out of memory", "not enough memory")
"""Words of torch (host, device) and of CUDA's libraries when memory runs out; processes pass errors
on as text."""
DEVICES = ("CUDA", "HIP")
ASKED = re.compile(r"allocate (\d+ bytes|[\d.]+ [KMGT]?i?B)", re.IGNORECASE)


class OutOfMemory(UserError):  # noqa: N818  (its common name)
    """This process has not the memory that its part needs.

    The others know nothing of it: the process must end.
    """


class KilledForMemory(OutOfMemory):
    """The kernel ended a process: perhaps for what others took, so
    that a supervisor may try again.
    """

    exit_code: ClassVar[int] = EXIT_FAILED


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation was refused, on the host or on a device."""
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in REFUSALS)


def out_of_memory(action: str, remedy: str, error_message: str) -> OutOfMemory:
    """`error_message`: by whoever refused the memory."""
    size_match = ASKED.search(error_message)
    where = "GPU" if any(device in error_message for device in DEVICES) else "host"
    more = f" (it asked for {size_match[1]} more)" if size_match else ""
    return OutOfMemory(f"out of {where} memory: {action} does not fit{more}; {remedy}")


@contextmanager
def told_what_did_not_fit(action: str, remedy: str) -> Iterator[None]:
    """Raise OutOfMemory, with the action `action` and the `remedy`, if an allocation inside the
    block is refused.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(action, remedy, str(error)) from error

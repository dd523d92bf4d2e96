"""Out of memory is one sentence, that names what did not fit and the setting; a second try would find no more room."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rollcast.config.errors import UserError

REFUSALS = ("can't allocate memory", "out of memory", "not enough memory")
"""What torch says on a host, and what CUDA's libraries say, in errors of no class of their own."""
ASKED = re.compile(r"allocate ([\d.]+ [KMGT]?i?B|\d+ bytes)", re.IGNORECASE)


class OutOfMemory(UserError):  # noqa: N818  (the name that everybody knows it by)
    """This rank has not the memory that its part needs. The others know nothing of it: the process must end."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation was refused, on the host or on a device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error).lower() for text in REFUSALS)


@contextmanager
def told_what_did_not_fit(what: str, remedy: str) -> Iterator[None]:
    """Raise OutOfMemory, with `what` was being done and the `remedy`, where an allocation is refused within."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        asked = ASKED.search(str(error))
        where = "GPU" if isinstance(error, torch.OutOfMemoryError) or "CUDA" in str(error) else "host"
        more = f" (it asked for {asked[1]} more)" if asked else ""
        raise OutOfMemory(f"out of {where} memory: {what} does not fit{more}; {remedy}") from error

"""How a program can fail its tests without giving a wrong answer."""

from __future__ import annotations

from typing import Literal

Reason = Literal["time", "memory", "output", "exit", "crash", "forbidden", "garbled", "reference"]
"""What the sandbox stopped: too slow; out of memory; endless output; ended before it answered; crashed; made a system
call of another architecture; answered with something else than plain values; had a reference that is too much for the
parser."""


class ProgramError(Exception):
    """The program is wrong: whatever ended it, its own time limit included, is its own failure."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason

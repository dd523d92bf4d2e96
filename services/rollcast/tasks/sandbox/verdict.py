"""How a program can fail its tests without giving a wrong answer."""

from typing import Literal

Reason = Literal["time", "memory", "output", "exit", "crash", "forbidden", "garbled", "reference", "busy"]
"""What the sandbox stopped: too slow; out of memory; endless output; ended before it answered; crashed; made a system
call of another architecture; answered with something else than plain values; had a reference that is too much for the
parser. `busy` is the machine's doing, and no
verdict: the program only waited for a core."""

BUSY = (
    "its processes waited for a processor core until the time was over; give the grader more cores, or fewer gradings"
)


class ProgramError(Exception):
    """The program is wrong: whatever ended it, its own time limit included, is its own failure; `busy` excepted."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason

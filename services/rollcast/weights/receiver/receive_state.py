"""The state of a worker's receiver, in a form that any RPC between processes carries (strings and numbers)."""

from collections.abc import Sequence
from typing import NamedTuple

JOINING = "joining"
JOINED = "joined"
RECEIVING = "receiving"
STAGED = "staged"
FAILED = "failed"
IDLE = "idle"


class ReceiveState(NamedTuple):
    """`idle -> joining -> joined -> receiving -> staged -> joined` (after apply); `failed` from any of the busy ones.

    `ReceiveState(*values)` restores it from the list that an RPC made of it.
    """

    status: str = IDLE
    epoch: int = 0
    """Number of the group; 0 = none."""
    seconds: float = 0.0
    """How long the reception took, checksum included (staged only)."""
    reason: str = ""
    """Why it failed."""
    no_room: bool = False
    """It failed for lack of memory, so that another attempt would fail too."""
    path: str = ""
    """Where other processes find the staged version (staged only); empty = nowhere."""


_SLOWEST_FIRST = (FAILED, IDLE, JOINING, JOINED, RECEIVING, STAGED)


def merge_states(states: Sequence[ReceiveState]) -> ReceiveState:
    """One generator's state: that of its slowest worker; failed if any failed. `seconds` is the longest.

    Of several failures one for lack of memory wins: it may have caused the others, and it is not tried again.
    """
    assert states
    slowest = min(states, key=lambda state: (_SLOWEST_FIRST.index(state.status), not state.no_room))
    return slowest._replace(seconds=max(state.seconds for state in states))

"""What a worker's receiver is doing, in a form that any RPC between processes carries (strings and numbers)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

JOINING, JOINED, RECEIVING, STAGED, FAILED, IDLE = "joining", "joined", "receiving", "staged", "failed", "idle"


class ReceiveState(NamedTuple):
    """`idle -> joining -> joined -> receiving -> staged -> joined` (after apply); `failed` from any of the busy ones.

    `epoch`: the group's; 0 = none. `seconds`: how long the reception took, checksum included (staged only).
    `reason`: why it failed; `no_room`: for want of memory, so that coming back changes nothing.
    A list of the same values makes it again: `ReceiveState(*values)`.
    """

    status: str = IDLE
    epoch: int = 0
    seconds: float = 0.0
    reason: str = ""
    no_room: bool = False


_PROGRESS = (FAILED, IDLE, JOINING, JOINED, RECEIVING, STAGED)


def merge_states(states: Sequence[ReceiveState]) -> ReceiveState:
    """One generator's state: that of its slowest worker; failed if any failed. `seconds` is the longest.

    Of several failures one for want of memory counts: the others may be what came of it, and it is not tried again.
    """
    assert states
    slowest = min(states, key=lambda state: (_PROGRESS.index(state.status), not state.no_room))
    return slowest._replace(seconds=max(state.seconds for state in states))

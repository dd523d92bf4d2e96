"""The methods that weight sync calls on an engine, which the generator has over vLLM, and tests
over plain tensors.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion, Surviving

ReceiverVerb = Literal["join", "receive", "poll", "skip", "abandon"]
"""The methods of `Receiver` that an engine calls on its workers as they are. `apply`, the sixth,
needs the engine's pause."""

JOINING = "joining"
JOINED = "joined"
RECEIVING = "receiving"
STAGED = "staged"
FAILED = "failed"
IDLE = "idle"
_SLOWEST_FIRST = (FAILED, IDLE, JOINING, JOINED, RECEIVING, STAGED)


class ReceiveState(NamedTuple):
    """`idle -> joining -> joined -> receiving -> staged -> joined` (after apply); `failed` from any
    of the busy ones.

    Any RPC carries its strings and numbers; `ReceiveState(*values)` restores it from the list that
    an RPC made of it.
    """

    status: str = IDLE
    epoch: int = 0
    """Number of the group; 0 = none."""
    seconds: float = 0.0
    """How long the reception took, checksum included (staged only)."""
    reason: str = ""
    """Why it failed."""
    no_room: bool = False
    """Whether it failed for lack of memory, so that another attempt would fail too."""
    path: str = ""
    """Where other processes find the staged version (staged only); empty = nowhere."""
    num_bytes: int | None = None
    """Staged: bytes that were pulled from the store for it. Receiving: grows while a pull reads.
    None = no pull."""


def merge_states(states: Sequence[ReceiveState]) -> ReceiveState:
    """One generator's state: that of its slowest worker; failed if any failed.

    `seconds` is the longest.
    """
    assert states
    # Of several failures one for lack of memory wins: it may have caused the others, and it is not
    # tried again.
    slowest = min(states, key=lambda state: (_SLOWEST_FIRST.index(state.status), not state.no_room))
    return slowest._replace(seconds=max(state.seconds for state in states))


class WeightEngine(Protocol):
    """The engine for the member.

    Calls of `call_receivers` and `apply` never overlap; each must return in time.
    """

    async def call_receivers(self, verb: ReceiverVerb, *message: bytes) -> ReceiveState:
        """Call the method on every worker's receiver.

        `message`: the serialised Join or Publish for `join` and `receive`, else nothing. Returns
        `merge_states` of the receivers' states after the call.
        """
        ...

    async def apply(self, version: PolicyVersion) -> float:
        """Pause, `Receiver.apply` on every worker, resume; returns the pause in seconds.

        Every token sampled after it returned is of `version`. Never cancelled half-way.
        """
        ...

    async def heartbeat(self) -> weights_pb2.Heartbeat:
        """Ask the workers, never the front end, for its numbers; `applying` is left to the member.

        Without their answer no heartbeat is sent, and the trainer fences the generator.
        """
        ...

    async def incarnation_changed(self, incarnation: int, history: Sequence[Surviving]) -> None:
        """Abort rollouts that hold a token of a version that does not survive (`survives`), now and
        when claimed later.

        Called at the first welcome too: tasks handed back by other generators may hold such tokens.
        """

    async def hand_over(self, sequences: Sequence[int]) -> None:
        """Hand these tasks back with the rollouts so far; unknown ones are ignored. Returns
        immediately.

        May overlap with the calls above.
        """

    async def change_owner(self, reason: str) -> str:
        """The trainer gave this generator's tasks to others: abort all rollouts; returns the new
        owner name.

        Claim new tasks only under the new name.
        """
        ...

"""What weight sync needs of an engine: implemented over vLLM by the generator, over plain tensors by tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rollcast.weights.plan.survival import Surviving
from rollcast.weights.receiver.receive_state import ReceiveState
from rollcast.wire.version import PolicyVersion

ReceiverVerb = Literal["join", "receive", "poll", "skip", "abandon"]
"""The methods of `Receiver` that an engine calls on its workers as they are. `apply`, the sixth, needs the engine's
pause."""


@dataclass(frozen=True)
class EngineHeartbeat:
    """The workers' latest numbers. `engine_steps` must come from the workers, never from the front end."""

    engine_steps: int
    running_rollouts: int
    decode_tokens_per_second: float  # of one rollout, recent; 0 = unknown
    draining: bool


class WeightEngine(Protocol):
    """The engine for the member. Calls of `call_receivers` and `apply` never overlap; each must return in time."""

    async def call_receivers(self, verb: ReceiverVerb, *message: bytes) -> ReceiveState:
        """Call the method on every worker's receiver.

        `message`: the serialised Join or Publish for `join` and `receive`, else nothing. Returns `merge_states` of the
        receivers' states after the call.
        """
        ...

    async def apply(self, version: PolicyVersion) -> float:
        """Pause, `Receiver.apply` on every worker, resume; returns the pause in seconds.

        Every token sampled after it returned is of `version`. Never cancelled half-way.
        """
        ...

    async def heartbeat(self) -> EngineHeartbeat:
        """Ask the workers. Without their answer no heartbeat is sent, and the trainer fences the generator."""
        ...

    async def incarnation_changed(self, incarnation: int, history: Sequence[Surviving]) -> None:
        """Abort rollouts that hold a token of a version that does not survive (`survives`), now and when claimed later.

        Called at the first welcome too: tasks handed back by other generators may hold such tokens.
        """

    async def hand_over(self, sequences: Sequence[int]) -> None:
        """Hand these tasks back with the rollouts so far; unknown ones are ignored. Returns immediately.

        May overlap with the calls above.
        """

    async def fenced(self, reason: str) -> str:
        """The trainer gave this generator's tasks to others: abort all rollouts; returns the new owner name.

        Claim new tasks only under the new name.
        """
        ...

"""What weight sync needs of an engine: implemented over vLLM by the generator, over plain tensors by tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rollcast.weights.receiver.receive_state import ReceiveState
from rollcast.wire.version import PolicyVersion


class Surviving(NamedTuple):
    """Of incarnation `incarnation`, steps up to and including `last_step` belong to the surviving history."""

    incarnation: int
    last_step: int


def survives(version: PolicyVersion, incarnation: int, history: Iterable[Surviving]) -> bool:
    """Whether the weights of trainer `incarnation` descend from `version`; `history` names older incarnations only."""
    return version.incarnation == incarnation or any(
        version.incarnation == entry.incarnation and version.step <= entry.last_step for entry in history
    )


@dataclass(frozen=True)
class EngineHeartbeat:
    """What the workers answered just now. `engine_steps` must come from the workers, never from the front end."""

    engine_steps: int
    running_rollouts: int
    decode_tokens_per_second: float  # of one rollout, recent; 0 = unknown
    draining: bool


class WeightEngine(Protocol):
    """What WeightMember needs of an engine. Calls of begin_join ... abandon never overlap; each must return in time."""

    async def begin_join(self, join: bytes) -> None:
        """`Receiver.join(join, worker=its index)` on every worker."""

    async def begin_receive(self, publish: bytes) -> None:
        """`Receiver.receive(publish)` on every worker."""

    async def poll(self) -> ReceiveState:
        """`merge_states` of `Receiver.poll()` of every worker."""
        ...

    async def apply(self, version: PolicyVersion) -> float:
        """Pause, `Receiver.apply(load_weights)` on every worker, resume; returns the pause in seconds.

        Every token sampled after it returned is of `version`. Never cancelled half-way.
        """
        ...

    async def skip(self) -> None:
        """`Receiver.skip()` on every worker."""

    async def abandon(self) -> None:
        """`Receiver.abandon()` on every worker."""

    async def heartbeat(self) -> EngineHeartbeat:
        """Ask the workers. While they do not answer no heartbeat is sent, and the trainer fences the generator."""
        ...

    async def incarnation_changed(self, incarnation: int, history: Sequence[Surviving]) -> None:
        """Abort rollouts that hold a token of a version that does not survive (`survives`), now and when claimed later.

        Called at the first greeting too: tasks handed back by others may hold such tokens.
        """

    async def hand_over(self, sequences: Sequence[int]) -> None:
        """Hand these tasks back with the rollouts so far; those it does not work on are ignored. Returns at once.

        May overlap with the calls above.
        """

    async def fenced(self, reason: str) -> str:
        """The trainer gave this generator's tasks to others: abort all rollouts; returns the new owner name.

        Claim new tasks only under the new name.
        """
        ...

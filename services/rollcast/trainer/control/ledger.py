"""The ledger: every dispatched and not yet settled training task of the surviving history.

    draw a prompt -> dispatched --------------------------> settled: used | filtered | dead
                        |   ^                                  ^
                        v   |                                  |
              lost by a crash or by Redis -> dispatched again  given up (too old after a restart) -> owed -> dispatched

The number of outstanding tasks is never stored: this ledger (kept with the checkpoint) is compared with Redis. Used
groups whose tokens all survive a restart stay on the queue until the next checkpoint (`held`). The others are removed
immediately: after a restart they would be worthless.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from rollcast.rollouts.records import PromptTask
from rollcast.trainer.control.asked import Asked, AskedState, as_plain, from_plain

MAX_SEQUENCE_DIGITS = 15
"""Wire 1 takes no longer sequence for a task."""
Sequence = Annotated[str, Field(pattern=rf"^\d{{1,{MAX_SEQUENCE_DIGITS}}}$")]
"""A task's sequence as a JSON key."""
StreamId = Annotated[str, Field(pattern=r"^\d{1,20}-\d{1,20}$")]
"""A stream id as Redis writes it."""


class LedgerState(TypedDict):
    """The ledger in a checkpoint; plain JSON values. Older checkpoints lack some."""

    next_sequence: Annotated[int, Field(ge=0, lt=10**MAX_SEQUENCE_DIGITS)]
    outstanding: dict[Sequence, str]
    num_rollouts: NotRequired[dict[Sequence, int]]
    refused: NotRequired[dict[Sequence, int]]
    asked: NotRequired[dict[Sequence, list[AskedState]]]
    held: dict[Sequence, StreamId]
    owed: NotRequired[list[str]]


@dataclass(slots=True)
class Ledger:
    next_sequence: int = 0
    """Never goes back, so that a late answer can never be taken for another task's."""
    outstanding: dict[int, str] = field(default_factory=dict)
    """Task sequence -> prompt id."""
    num_rollouts: dict[int, int] = field(default_factory=dict)
    """Task sequence -> rollouts asked for, of every outstanding task."""
    refused: dict[int, int] = field(default_factory=dict)
    """Task sequence -> answers that could not be used, of the outstanding tasks that had any."""
    asked: dict[int, list[Asked]] = field(default_factory=dict)
    """Task sequence -> what each incarnation that dispatched it asked for, of every outstanding task."""
    held: dict[int, str] = field(default_factory=dict)
    """Used or filtered, on the queue until the next checkpoint: task sequence -> stream id."""
    owed: list[str] = field(default_factory=list)
    """Prompts of groups that were given up: dispatched before new ones are drawn."""

    def dispatch(self, prompt_id: str, num_rollouts: int) -> int:
        """Enter a new task; returns its sequence."""
        sequence = self.take_sequence()
        self.outstanding[sequence] = prompt_id
        self.num_rollouts[sequence] = num_rollouts
        return sequence

    def note_dispatch(self, task: PromptTask) -> None:
        """Note what an outstanding task asks for, before it is sent."""
        others = [item for item in self.asked.get(task.sequence, []) if item.incarnation != task.incarnation]
        self.asked[task.sequence] = [*others, Asked.of(task)]

    def take_sequence(self) -> int:
        """A sequence for a task that is not accounted here (evaluation)."""
        sequence = self.next_sequence
        self.next_sequence += 1
        return sequence

    def settle(self, sequence: int) -> str:
        """Return the task's credit and its prompt id."""
        self.num_rollouts.pop(sequence, None)
        self.refused.pop(sequence, None)
        self.asked.pop(sequence, None)
        return self.outstanding.pop(sequence)

    def refuse(self, sequence: int) -> int:
        """Note that an answer could not be used; returns how many of this task could not."""
        self.refused[sequence] = self.refused.get(sequence, 0) + 1
        return self.refused[sequence]

    def note_failures(self, sequence: int, count: int) -> None:
        """Note that the task has failed `count` times by now. To note it twice changes nothing."""
        self.refused[sequence] = max(count, self.refused.get(sequence, 0))

    def take_owed(self, count: int) -> list[str]:
        """Up to `count` prompts that are owed, oldest first."""
        taken = self.owed[:count]
        self.owed = self.owed[count:]
        return taken

    def missing(self, present: Iterable[int]) -> list[int]:
        """Outstanding tasks that are nowhere: not queued, not claimed, not delivered."""
        return sorted(self.outstanding.keys() - set(present))

    def state(self) -> LedgerState:
        """Plain JSON values for a checkpoint."""
        return {
            "next_sequence": self.next_sequence,
            "outstanding": {str(sequence): prompt_id for sequence, prompt_id in self.outstanding.items()},
            "num_rollouts": {str(sequence): number for sequence, number in self.num_rollouts.items()},
            "refused": {str(sequence): count for sequence, count in self.refused.items()},
            "asked": {str(sequence): [as_plain(item) for item in items] for sequence, items in self.asked.items()},
            "held": {str(sequence): stream_id for sequence, stream_id in self.held.items()},
            "owed": list(self.owed),
        }

    @classmethod
    def restore(cls, state: LedgerState, *, at_least: int) -> Ledger:
        """The ledger of a checkpoint; sequences start at `at_least`, the highest ever given out."""
        return cls(
            next_sequence=max(int(state["next_sequence"]), at_least),
            outstanding={int(sequence): prompt_id for sequence, prompt_id in state["outstanding"].items()},
            num_rollouts={int(sequence): int(number) for sequence, number in state.get("num_rollouts", {}).items()},
            refused={int(sequence): int(count) for sequence, count in state.get("refused", {}).items()},
            asked={int(key): [from_plain(item) for item in items] for key, items in state.get("asked", {}).items()},
            held={int(sequence): stream_id for sequence, stream_id in state["held"].items()},
            owed=list(state.get("owed", ())),
        )

"""The ledger: every dispatched and not yet settled training task of the surviving history.

    draw a prompt -> dispatched --------------------> settled: used | filtered | dead
                       |   ^                            ^
                       v   |                            |
          lost by a crash or by Redis                 given up (too old after a restart)
          -> dispatched again                         -> owed -> dispatched

The number of outstanding tasks is never stored: this ledger (kept with the checkpoint) is compared
with Redis. Used groups whose tokens all survive a restart stay on the queue until the next
checkpoint (`held`). The others are removed immediately: after a restart they would be worthless.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from rollcast.rollouts.records import (
    EpisodeTask,
    LengthBudget,
    PromptTask,
    RolloutGroup,
    Sampling,
    TokenIds,
)

MAX_SEQUENCE_DIGITS = 15
"""Wire 1 takes no longer sequence for a task."""
Sequence = Annotated[int, Field(ge=0, lt=10**MAX_SEQUENCE_DIGITS)]
StreamId = Annotated[str, Field(pattern=r"^\d{1,20}-\d{1,20}$")]
"""A stream id as Redis writes it."""


@dataclass(frozen=True, slots=True)
class DispatchRecord:
    """The request of one dispatch of a task, with which its answer is compared.

    Another incarnation of the trainer may dispatch the same task with other settings, and an answer
    to either may come.
    """

    incarnation: int
    """The incarnation of the trainer that dispatched it."""
    dataset: str
    prompt_digest: str
    sampling: Sampling
    length: LengthBudget
    environment: str = ""
    """Empty = one answer, without tools."""
    max_turns: int = 0
    """Budget of an episode; 0 without an environment."""

    def task_for(self, group: RolloutGroup, task: PromptTask) -> PromptTask:
        """`task` as this dispatch asked for it.

        The prompt is the group's own if it has the digest.
        """
        is_same_prompt = token_digest(group.prompt_token_ids) == self.prompt_digest
        # No answer is compared with messages and seconds, so those of a dispatch are not kept.
        episode = (
            EpisodeTask(self.environment, "", self.max_turns, math.inf)
            if self.environment
            else None
        )
        return replace(
            task,
            incarnation=self.incarnation,
            dataset=self.dataset,
            prompt_token_ids=group.prompt_token_ids if is_same_prompt else task.prompt_token_ids,
            sampling=self.sampling,
            length=self.length,
            episode=episode,
        )


@dataclass(slots=True)
class Ledger:
    """Part of the checkpoint: its JSON has these fields."""

    next_sequence: Sequence = 0
    """Never goes back, so that a late answer can never be taken for another task's."""
    outstanding: dict[Sequence, str] = field(default_factory=dict)
    """Task sequence -> prompt id."""
    num_rollouts: dict[Sequence, int] = field(default_factory=dict)
    """Task sequence -> rollouts asked for, of every outstanding task."""
    refused: dict[Sequence, int] = field(default_factory=dict)
    """Task sequence -> answers that could not be used, of the outstanding tasks that had any."""
    asked: dict[Sequence, list[DispatchRecord]] = field(default_factory=dict)
    """Task sequence -> what each incarnation that dispatched it asked for, of every outstanding
    task."""
    held: dict[Sequence, StreamId] = field(default_factory=dict)
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
        dispatch_record = DispatchRecord(
            task.incarnation,
            task.dataset,
            token_digest(task.prompt_token_ids),
            task.sampling,
            task.length,
            environment=task.episode.environment if task.episode else "",
            max_turns=task.episode.max_turns if task.episode else 0,
        )
        # One record for each incarnation: an answer names the one that asked.
        other_records = [
            item
            for item in self.asked.get(task.sequence, [])
            if item.incarnation != task.incarnation
        ]
        self.asked[task.sequence] = [*other_records, dispatch_record]

    def own_task(self, group: RolloutGroup, task: PromptTask) -> PromptTask:
        """The task that the group answers: as the incarnation that it names dispatched it.

        `task` as it would be dispatched now. It is returned if the group names an incarnation that
        never dispatched it.
        """
        for dispatch_record in self.asked.get(group.sequence, ()):
            if dispatch_record.incarnation == group.incarnation:
                return dispatch_record.task_for(group, task)
        return task

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
        owed_prompts = self.owed[:count]
        self.owed = self.owed[count:]
        return owed_prompts

    def missing(self, present: Iterable[int]) -> list[int]:
        """Outstanding tasks that are nowhere: not queued, not claimed, not delivered."""
        return sorted(self.outstanding.keys() - set(present))


def token_digest(token_ids: TokenIds) -> str:
    # Digest of a prompt's tokens: long enough to notice that a prompt was changed by mistake
    return hashlib.blake2b(np.asarray(token_ids, dtype="<i4").tobytes(), digest_size=8).hexdigest()

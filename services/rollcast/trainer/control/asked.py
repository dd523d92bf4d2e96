"""What a training task asked for, as it was dispatched: its answer is compared with that.

Another incarnation of the trainer may dispatch the same task with other settings, and an answer to either may come.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import cast

import numpy as np
from typing_extensions import TypedDict

from rollcast.rollouts.records import LengthBudget, PromptTask, RolloutGroup, Sampling, TokenIds

DIGEST_BYTES = 8
"""Digest of a prompt's tokens: long enough to notice that a prompt was changed by mistake."""


class SamplingState(TypedDict):
    """`Sampling` in a checkpoint."""

    temperature: float
    top_p: float
    top_k: int
    seed: int


class LengthState(TypedDict):
    """`LengthBudget` in a checkpoint."""

    max_tokens: int
    interrupt_from: int
    interrupt_to: int
    answer_tokens: int
    phrase: list[int]
    end_of_thinking: list[int]
    seed: int


class AskedState(TypedDict):
    """`Asked` in a checkpoint."""

    incarnation: int
    dataset: str
    prompt_digest: str
    sampling: SamplingState
    length: LengthState


@dataclass(frozen=True, slots=True)
class Asked:
    """One dispatch of a task."""

    incarnation: int
    """The incarnation of the trainer that dispatched it."""
    dataset: str
    prompt_digest: str
    """See `digest_of`."""
    sampling: Sampling
    length: LengthBudget

    @classmethod
    def of(cls, task: PromptTask) -> Asked:
        return cls(task.incarnation, task.dataset, digest_of(task.prompt_token_ids), task.sampling, task.length)

    def task_for(self, group: RolloutGroup, task: PromptTask) -> PromptTask:
        """`task` as this dispatch asked for it. The prompt is the group's own if it has the digest."""
        is_same_prompt = digest_of(group.prompt_token_ids) == self.prompt_digest
        return replace(
            task,
            incarnation=self.incarnation,
            dataset=self.dataset,
            prompt_token_ids=group.prompt_token_ids if is_same_prompt else task.prompt_token_ids,
            sampling=self.sampling,
            length=self.length,
        )


def own_task(group: RolloutGroup, task: PromptTask, dispatches: Sequence[Asked]) -> PromptTask:
    """The task that the group answers: as the incarnation that it names dispatched it.

    `task` as it would be dispatched now. It is returned if the group names an incarnation that never dispatched it.
    Without any known dispatch (the checkpoint of an older release) the group's settings are taken as they are.
    """
    for asked in dispatches:
        if asked.incarnation == group.incarnation:
            return asked.task_for(group, task)
    if not dispatches and 0 < group.incarnation < task.incarnation:
        return replace(
            task,
            incarnation=group.incarnation,
            dataset=group.dataset,
            sampling=group.sampling,
            length=group.length,
        )
    return task


def digest_of(token_ids: TokenIds) -> str:
    """A short hexadecimal digest of a prompt's tokens."""
    return hashlib.blake2b(np.asarray(token_ids, dtype="<i4").tobytes(), digest_size=DIGEST_BYTES).hexdigest()


def as_plain(asked: Asked) -> AskedState:
    """Plain JSON values, for a checkpoint."""
    return cast(AskedState, asdict(asked))


def from_plain(values: AskedState) -> Asked:
    """Inverse of `as_plain`."""
    length = values["length"]
    return Asked(
        incarnation=values["incarnation"],
        dataset=values["dataset"],
        prompt_digest=values["prompt_digest"],
        sampling=Sampling(**values["sampling"]),
        length=LengthBudget(
            max_tokens=length["max_tokens"],
            interrupt_from=length["interrupt_from"],
            interrupt_to=length["interrupt_to"],
            answer_tokens=length["answer_tokens"],
            phrase=tuple(length["phrase"]),
            end_of_thinking=tuple(length["end_of_thinking"]),
            seed=length["seed"],
        ),
    )

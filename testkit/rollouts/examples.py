"""Small tasks and groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rollcast.rollouts.base import Claimed
from rollcast.rollouts.records import (
    GradingStatus,
    LengthBudget,
    PromptTask,
    Purpose,
    Rollout,
    RolloutGroup,
    Sampling,
    StopReason,
    VersionSpan,
)
from rollcast.wire.version import PolicyVersion

VERSION = PolicyVersion(1, 7)


def make_task(sequence: int, purpose: Purpose = Purpose.TRAIN, **changes: Any) -> PromptTask:
    task = PromptTask(
        sequence=sequence,
        incarnation=1,
        purpose=purpose,
        dataset="sums",
        prompt_id=f"prompt-{sequence}",
        prompt_token_ids=np.array([1, 2, sequence % 1000], dtype=np.int32),
        num_rollouts=2,
        sampling=Sampling(),
        length=LengthBudget(max_tokens=64),
        verifier="arithmetic",
        reference='{"answer": 4}',
    )
    return replace(task, **changes)


def make_rollout(
    index: int,
    length: int,
    version: PolicyVersion = VERSION,
    *,
    partial: bool = False,
    **changes: Any,
) -> Rollout:
    rollout = Rollout(
        index=index,
        token_ids=np.arange(length, dtype=np.int32),
        logprobs=np.linspace(-2.0, -0.1, length, dtype=np.float32),
        version_spans=(VersionSpan(version, 0, length),) if length else (),
        partial=partial,
        stop_reason=StopReason.RUNNING if partial else StopReason.END,
        reward=0.0 if partial else 1.0,
        grading_status=GradingStatus.UNGRADED if partial else GradingStatus.OK,
    )
    return replace(rollout, **changes)


def make_graded_rollout(
    index: int, reward: float, version: PolicyVersion = VERSION, *, length: int = 3
) -> Rollout:
    """A whole rollout that was right where its reward is above 0."""
    status = GradingStatus.OK if reward > 0 else GradingStatus.WRONG
    return make_rollout(index, length, version, reward=reward, grading_status=status)


def make_group(
    claimed: Claimed, generator: str, *, length: int = 5, rollouts: list[Rollout] | None = None
) -> RolloutGroup:
    """The group that a generator hands in for a task. `rollouts`: None = as many as were asked for,
    all of one length."""
    version, count = claimed.first_version, claimed.task.num_rollouts
    if rollouts is None:
        rollouts = [make_rollout(index, length, version) for index in range(count)]
    return make_answer_group(claimed.task, rollouts, first_version=version, generator=generator)


def make_answer_group(task: PromptTask, rollouts: list[Rollout], **changes: Any) -> RolloutGroup:
    """The answer to a task, changed where `changes` says so."""
    group = RolloutGroup(
        sequence=task.sequence,
        attempt=task.attempt,
        incarnation=task.incarnation,
        purpose=task.purpose,
        dataset=task.dataset,
        prompt_id=task.prompt_id,
        prompt_token_ids=task.prompt_token_ids,
        sampling=task.sampling,
        length=task.length,
        rollouts=rollouts,
        first_version=VERSION,
        generator="g",
        eval_step=task.eval_step,
        hand_backs=task.hand_backs,
    )
    return replace(group, **changes)

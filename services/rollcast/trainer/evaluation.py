"""Held-out evaluation: mean@G over prompts that training never sees (arXiv 2510.13786, section 2.1).

    due(step) -> ask: one task per held-out prompt --> generators, preferred --> add(group) ... -> close -> Evaluation

An evaluation is closed when every group came back, or at its deadline with what came; the time without any generator or
without Redis does not count. Several may be open at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from rollcast.rollouts.records import GradingStatus, PromptTask, RolloutGroup


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One point of the curve."""

    run: str
    dataset: str
    incarnation: int
    step: int
    """The trainer's step when it was asked for."""
    pass_rate: float
    standard_error: float
    """Of the sampling, given these prompts: the prompts are the same every time."""
    compute_device_hours: float
    trained_tokens: int
    samples: int
    """Completions with a verdict."""
    num_prompts: int
    generated_tokens: int
    ungraded: int
    """Completions whose grader failed or ran out of time: they count as neither right nor wrong."""
    missing_prompts: int
    """Prompts that had not come back at the deadline."""
    version_min: str
    version_max: str
    at: float
    """Unix seconds when it was closed."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class OpenEvaluation:
    """An evaluation that is being answered."""

    step: int
    incarnation: int
    compute_device_hours: float
    trained_tokens: int
    tasks: dict[int, PromptTask]
    """By sequence: every prompt asked and not dead-lettered."""
    seconds_left: float
    """With a generator at work."""
    groups: dict[int, RolloutGroup] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Closed:
    """An evaluation that is over."""

    step: int
    evaluation: Evaluation | None
    """None where not one completion with a verdict came back."""
    unanswered: list[int]
    """Tasks that nobody waits for any more."""


class Evaluator:
    """Collects the answers to the held-out prompts."""

    def __init__(
        self, run: str, dataset: str, deadline_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run = run
        self._dataset = dataset
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._open: list[OpenEvaluation] = []
        self._looked_at = clock()
        self.asked_step = -1
        """Step of the newest evaluation asked for; -1 = none yet."""

    def unanswered(self) -> dict[int, PromptTask]:
        """Tasks whose answers are still wanted, by sequence."""
        return {
            sequence: task
            for item in self._open
            for sequence, task in item.tasks.items()
            if sequence not in item.groups
        }

    @property
    def pending(self) -> bool:
        return bool(self._open)

    def ask(
        self, *, step: int, incarnation: int, compute: float, trained_tokens: int, tasks: Sequence[PromptTask]
    ) -> None:
        """Open an evaluation whose tasks are about to be dispatched."""
        self.asked_step = step
        self._open.append(
            OpenEvaluation(
                step,
                incarnation,
                compute,
                trained_tokens,
                {task.sequence: task for task in tasks},
                self._deadline_seconds,
            )
        )

    def add(self, group: RolloutGroup) -> bool:
        """Take one answer; False if nobody waits for it (asked by a lost incarnation, or given twice)."""
        for item in self._open:
            if group.sequence in item.tasks and group.sequence not in item.groups:
                item.groups[group.sequence] = group
                return True
        return False

    def give_up(self, sequences: Sequence[int]) -> None:
        """Stop waiting for tasks that were dead-lettered."""
        for item in self._open:
            for sequence in sequences:
                if sequence not in item.groups:
                    item.tasks.pop(sequence, None)

    def close_finished(self, *, generators: bool, away_seconds: float = 0.0) -> list[Closed]:
        """Close the evaluations that are complete or out of time, oldest first.

        `generators`: whether any is at work; the time since the last call counts only then. `away_seconds`: of that
        time, how long Redis was away; it does not count either.
        """
        now = self._clock()
        elapsed, self._looked_at = max(0.0, now - self._looked_at - away_seconds), now
        for item in self._open:
            item.seconds_left -= elapsed if generators else 0.0
        closing = [item for item in self._open if len(item.groups) == len(item.tasks) or item.seconds_left < 0]
        self._open = [item for item in self._open if item not in closing]
        return [
            Closed(item.step, self._summarise(item), sorted(item.tasks.keys() - item.groups.keys())) for item in closing
        ]

    def _summarise(self, item: OpenEvaluation) -> Evaluation | None:
        groups = list(item.groups.values())
        rewards, ungraded = [], 0
        for group in groups:
            graded = [r.reward for r in group.rollouts if r.grading_status in (GradingStatus.OK, GradingStatus.WRONG)]
            ungraded += len(group.rollouts) - len(graded)
            if graded:
                rewards.append(np.array(graded))
        if not rewards:
            return None
        versions = [version for group in groups for version in group.versions]
        return Evaluation(
            run=self._run,
            dataset=self._dataset,
            incarnation=item.incarnation,
            step=item.step,
            pass_rate=float(np.mean([values.mean() for values in rewards])),
            standard_error=sampling_standard_error(rewards),
            compute_device_hours=item.compute_device_hours,
            trained_tokens=item.trained_tokens,
            samples=sum(len(values) for values in rewards),
            num_prompts=len(rewards),
            generated_tokens=sum(group.num_tokens for group in groups),
            ungraded=ungraded,
            missing_prompts=len(item.tasks) - len(groups),
            version_min=str(min(versions)) if versions else "",
            version_max=str(max(versions)) if versions else "",
            at=time.time(),
        )


def sampling_standard_error(rewards: Sequence[np.ndarray[Any, np.dtype[np.float64]]]) -> float:
    """Standard error of the mean of the prompts' mean rewards, the prompts held fixed.

    `rewards`: for each prompt its completions' rewards in [0, 1]. The variance within a prompt is estimated without
    bias from its completions; prompts with a single completion share the mean over prompts as their pass rate.
    """
    overall = float(np.mean([values.mean() for values in rewards]))
    variance = 0.0
    for values in rewards:
        count = len(values)
        within = float(values.var(ddof=1)) if count > 1 else overall * (1 - overall)
        variance += within / count
    return float(np.sqrt(variance)) / len(rewards)

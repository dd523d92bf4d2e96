"""Evaluations on the generators: the held-out prompts (arXiv 2510.13786, section 2.1), and
downstream sets.

    plan due --> ask: one task per prompt --> generators, preferred
             --> add(group) ... -> close -> EvaluationRecord(s)

An evaluation is closed when every group came back or was given up, or at its deadline with the
answers so far; time without any generator or without Redis does not count. Several may be open at
the same time. One of a mixture ends in a point of the whole, the weighted mean of its parts, and in
one of each part. Prompts of several environments also give one of each environment.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from rollcast.config.tasks import Tasks
from rollcast.rollouts.base import MAX_FAILURES
from rollcast.rollouts.records import GradingStatus, PromptTask, RolloutGroup
from rollcast.runfolder.records import EvaluationRecord
from rollcast.telemetry.evaluation_metrics import DOWNSTREAM_PREFIX, ENVIRONMENT_PREFIX, PART_PREFIX
from rollcast.trainer.control.environment_metrics import MetricMeans
from rollcast.trainer.control.pass_rate import truncated_matches, verdicts
from rollcast.trainer.control.standard_errors import (
    clustered_standard_error,
    sampling_standard_error,
    weighted_standard_error,
)


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """Prompts that are evaluated together, and when."""

    dataset: str
    """Label of the whole."""
    every_steps: int
    rollouts_per_prompt: int
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weights of a mixture's parts by their names; empty = one data set."""

    def is_due(self, step: int, *, at_start: bool, asked_step: int, evaluated_step: int) -> bool:
        """Due at every N-th step, and at the start also if a restart lost the answers to the last
        one.

        `asked_step`, `evaluated_step`: steps of the newest evaluation that was asked for and that
        was closed; -1 = none.
        """
        lost = at_start and evaluated_step < step - step % self.every_steps
        return (step % self.every_steps == 0 or lost) and max(asked_step, evaluated_step) < step


def evaluation_plans(tasks: Tasks, checkpoint_every_steps: int) -> tuple[EvaluationPlan, ...]:
    """The curve's plan first, then those of the downstream sets."""
    weights = {dataset_part.dataset.name: dataset_part.weight for dataset_part in tasks.parts}
    curve = EvaluationPlan(
        tasks.dataset.name,
        tasks.evaluation.every_steps,
        tasks.evaluation.rollouts_per_prompt,
        weights if len(tasks.parts) > 1 else {},
    )
    return curve, *(
        EvaluationPlan(
            DOWNSTREAM_PREFIX + item.dataset.name,
            item.every_steps or checkpoint_every_steps,
            item.rollouts_per_prompt,
        )
        for item in tasks.downstream
    )


@dataclass(frozen=True, slots=True)
class Moment:
    """State of the run when an evaluation was asked for; fields as in `EvaluationRecord`."""

    incarnation: int
    step: int
    compute_device_hours: float
    start_up_device_hours: float
    devices: int
    trained_tokens: int
    truncation_ratio: float | None
    started_from: int


@dataclass(slots=True)
class OpenEvaluation:
    """An evaluation that is being answered."""

    plan: EvaluationPlan
    moment: Moment
    tasks: dict[int, PromptTask]
    """By sequence: every prompt asked."""
    seconds_left: float
    """With a generator at work."""
    groups: dict[int, RolloutGroup] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)
    """Sequences of tasks that failed too often."""

    def waits_for(self, sequence: int) -> bool:
        return (
            sequence in self.tasks and sequence not in self.groups and sequence not in self.given_up
        )

    @property
    def unanswered(self) -> set[int]:
        return self.tasks.keys() - self.groups.keys() - self.given_up


@dataclass(frozen=True, slots=True)
class Closed:
    """An evaluation that is over."""

    dataset: str
    """Label of the whole."""
    step: int
    evaluation: EvaluationRecord | None
    """The point of the whole. None if no completion with a verdict came back, or none of some part
    of a mixture."""
    parts: tuple[EvaluationRecord, ...]
    """The points that have verdicts: of a mixture's parts, then of environments."""
    unanswered: list[int]
    """Sequences of tasks whose answers are no longer needed."""
    sampled: tuple[RolloutGroup, ...]
    """The answers to the first prompts asked."""


@dataclass(eq=False)
class OpenEvaluations:
    """Collects the answers to evaluation prompts."""

    run: str
    deadline_seconds: float
    reward_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Lowest and highest reward of each environment, by its name."""
    clock: Callable[[], float] = time.monotonic
    _metric_means: MetricMeans = field(default_factory=MetricMeans)
    _open: list[OpenEvaluation] = field(default_factory=list)
    _asked_steps: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._looked_at = self.clock()

    def asked_step(self, plan: EvaluationPlan) -> int:
        """Step of the newest evaluation asked for; -1 = none yet."""
        return self._asked_steps.get(plan.dataset, -1)

    def unanswered_tasks(self) -> dict[int, PromptTask]:
        return {
            sequence: item.tasks[sequence]
            for item in self._open
            for sequence in sorted(item.unanswered)
        }

    @property
    def pending(self) -> bool:
        return bool(self._open)

    def ask(self, plan: EvaluationPlan, moment: Moment, tasks: Sequence[PromptTask]) -> None:
        self._asked_steps[plan.dataset] = moment.step
        by_sequence = {task.sequence: task for task in tasks}
        self._open.append(OpenEvaluation(plan, moment, by_sequence, self.deadline_seconds))

    def find_wanted_task(self, sequence: int) -> PromptTask | None:
        """The task if its answer is still wanted; None if it has one, or if a lost incarnation
        asked for it.
        """
        item = self._waiting_for(sequence)
        return item.tasks[sequence] if item else None

    def _waiting_for(self, sequence: int) -> OpenEvaluation | None:
        return next((item for item in self._open if item.waits_for(sequence)), None)

    def add(self, group: RolloutGroup) -> bool:
        """Take one answer; False if no open evaluation waits for it."""
        item = self._waiting_for(group.sequence)
        if item is None:
            return False
        item.groups[group.sequence] = group
        return True

    def note_failures(self, sequence: int, count: int) -> bool:
        """Note that a wanted task has failed `count` times by now; False = that was one too many,
        it is given up.
        """
        item = self._waiting_for(sequence)
        assert item is not None, sequence
        task = item.tasks[sequence]
        task.attempt = max(count, task.attempt)
        if task.attempt < MAX_FAILURES:
            return True
        item.given_up.add(sequence)
        return False

    def close_finished(self, *, generators: bool, away_seconds: float = 0.0) -> list[Closed]:
        """Close the evaluations that are complete or out of time, oldest first.

        `generators`: whether any is at work; the time since the last call counts only then.
        `away_seconds`: of that time, how long Redis was away; it does not count either.
        """
        now_seconds = self.clock()
        elapsed = max(0.0, now_seconds - self._looked_at - away_seconds)
        self._looked_at = now_seconds
        for item in self._open:
            item.seconds_left -= elapsed if generators else 0.0
        closing = [item for item in self._open if not item.unanswered or item.seconds_left < 0]
        self._open = [item for item in self._open if item not in closing]
        return [self._close_evaluation(item) for item in closing]

    def _close_evaluation(self, item: OpenEvaluation) -> Closed:
        plan = item.plan
        overall_point = self._point(item, plan.dataset, item.tasks)
        parts = {}
        for name in plan.weights:
            sequences = [sequence for sequence, task in item.tasks.items() if task.dataset == name]
            if point := self._point(item, PART_PREFIX + name, sequences):
                parts[name] = point
        # A mean without one of its parts would be of another mixture.
        if overall_point is not None and plan.weights:
            overall_point = (
                _weighted_mean(overall_point, parts, plan.weights)
                if len(parts) == len(plan.weights)
                else None
            )
        of_environments = [
            self._point(item, ENVIRONMENT_PREFIX + name, sequences)
            for name, sequences in sequences_by_environment(item).items()
        ]
        points = (*parts.values(), *filter(None, of_environments))
        unanswered = sorted(item.unanswered)
        sampled = tuple(item.groups[task] for task in _sampled_tasks(item) if task in item.groups)
        return Closed(plan.dataset, item.moment.step, overall_point, points, unanswered, sampled)

    def _point(
        self, item: OpenEvaluation, dataset: str, sequences: Collection[int]
    ) -> EvaluationRecord | None:
        """The reading of some of the evaluation's tasks; None without a verdict."""
        groups = [item.groups[sequence] for sequence in sequences if sequence in item.groups]
        rewards = []
        statuses = Counter[GradingStatus]()
        for group in groups:
            statuses.update(rollout.grading_status for rollout in group.rollouts)
            # A prompt without a verdict is in no pass rate.
            if graded := verdicts(group.rollouts):
                rewards.append(np.array(graded))
        if not rewards:
            return None
        versions = [version for group in groups for version in group.versions]
        # All prompts weigh the same, however many of their completions have a verdict.
        pass_rate = float(np.mean([values.mean() for values in rewards]))
        return EvaluationRecord(
            run=self.run,
            dataset=dataset,
            **asdict(item.moment),
            pass_rate=pass_rate,
            environment_reward=self._environment_reward(
                pass_rate, [item.tasks[sequence] for sequence in sequences]
            ),
            environment_metrics=self._metric_means.mean(groups),
            standard_error=sampling_standard_error(rewards),
            standard_error_new_prompts=clustered_standard_error(rewards),
            samples=(samples := sum(len(values) for values in rewards)),
            num_prompts=len(rewards),
            asked_prompts=len(sequences),
            generated_tokens=sum(group.num_tokens for group in groups),
            timed_out=statuses[GradingStatus.TIMEOUT],
            ungraded=statuses.total() - samples,
            missing_prompts=len(sequences) - len(groups),
            given_up_prompts=len(item.given_up.intersection(sequences)),
            truncated_matches=sum(truncated_matches(group.rollouts) for group in groups),
            version_min=str(min(versions)) if versions else "",
            version_max=str(max(versions)) if versions else "",
            at=time.time(),
        )

    def _environment_reward(self, pass_rate: float, tasks: Sequence[PromptTask]) -> float | None:
        """The pass rate on the scale of the one environment that rewards all tasks; None if there
        is no such scale.
        """
        # A verifier's reward has no other scale.
        names = {
            None if task.episode is None or task.verifier else task.episode.environment
            for task in tasks
        }
        name = names.pop() if len(names) == 1 else None
        low, high = self.reward_ranges.get(name or "", (0.0, 1.0))
        return None if (low, high) == (0.0, 1.0) else low + (high - low) * pass_rate


def make_open_evaluations(run: str, tasks: Tasks) -> OpenEvaluations:
    ranges = {environment.name: environment.reward_range for environment in tasks.environments}
    return OpenEvaluations(run, tasks.evaluation.deadline_seconds, ranges)


def _sampled_tasks(item: OpenEvaluation) -> list[int]:
    """The first tasks asked, those of several environments in turn."""
    num_before: Counter[str | None] = Counter()
    places = []
    for sequence in sorted(item.tasks):
        episode = item.tasks[sequence].episode
        environment = None if episode is None else episode.environment
        # Sorted by the number within its environment, so that environments take turns.
        places.append((num_before[environment], sequence))
        num_before[environment] += 1
    # Prompts of which a completion is kept as text at every evaluation
    return [sequence for _, sequence in sorted(places)[:4]]


def sequences_by_environment(item: OpenEvaluation) -> dict[str, list[int]]:
    """The task sequences of each environment.

    Empty if all tasks have the same one, whose curve is that of the whole; and for a downstream
    set: it has one curve.
    """
    environment_sequences: defaultdict[str, list[int]] = defaultdict(list)
    for sequence, task in item.tasks.items():
        if task.episode is not None:
            environment_sequences[task.episode.environment].append(sequence)
    is_whole = any(
        len(sequences) == len(item.tasks) for sequences in environment_sequences.values()
    )
    if is_whole or item.plan.dataset.startswith(DOWNSTREAM_PREFIX):
        return {}
    return dict(sorted(environment_sequences.items()))


def _weighted_mean(
    overall_point: EvaluationRecord,
    parts: Mapping[str, EvaluationRecord],
    weights: Mapping[str, float],
) -> EvaluationRecord:
    """`overall_point` with the mean of the parts' pass rates and its standard error; the parts are
    sampled independently.
    """
    total = sum(weights.values())
    shares = {name: weight / total for name, weight in weights.items()}
    errors = {name: point.standard_error for name, point in parts.items()}
    errors_new_prompts = {name: point.standard_error_new_prompts for name, point in parts.items()}
    return replace(
        overall_point,
        environment_reward=None,
        pass_rate=sum(share * parts[name].pass_rate for name, share in shares.items()),
        standard_error=weighted_standard_error(shares, errors),
        standard_error_new_prompts=weighted_standard_error(shares, errors_new_prompts),
    )

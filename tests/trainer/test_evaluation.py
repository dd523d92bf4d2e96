"""The curve's points against plain arithmetic and repeated sampling."""

from __future__ import annotations

import numpy as np
import pytest

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
from rollcast.trainer.evaluation import Evaluation, Evaluator, sampling_standard_error
from rollcast.wire.version import PolicyVersion


def make_group(sequence: int, rewards: list[float], status: GradingStatus | None = None) -> RolloutGroup:
    version = PolicyVersion(1, sequence)
    rollouts = [
        Rollout(
            index=index,
            token_ids=np.zeros(3, np.int32),
            logprobs=np.zeros(3, np.float32),
            version_spans=(VersionSpan(version, 0, 3),),
            stop_reason=StopReason.END,
            reward=reward,
            grading_status=status or (GradingStatus.OK if reward else GradingStatus.WRONG),
        )
        for index, reward in enumerate(rewards)
    ]
    return RolloutGroup(
        sequence=sequence,
        attempt=0,
        incarnation=1,
        purpose=Purpose.EVAL,
        dataset="d",
        prompt_id=f"p{sequence}",
        prompt_token_ids=np.zeros(2, np.int32),
        sampling=Sampling(),
        length=LengthBudget(8),
        rollouts=rollouts,
        first_version=version,
        generator="g",
    )


def ask(evaluator: Evaluator, sequences: range) -> None:
    tasks = [
        PromptTask(
            sequence=sequence,
            incarnation=1,
            purpose=Purpose.EVAL,
            dataset="d",
            prompt_id=f"p{sequence}",
            prompt_token_ids=np.zeros(2, np.int32),
            num_rollouts=2,
            sampling=Sampling(),
            length=LengthBudget(8),
            verifier="exact",
            reference='""',
        )
        for sequence in sequences
    ]
    evaluator.ask(step=7, incarnation=1, compute=2.5, trained_tokens=99, tasks=tasks)


def points(evaluator: Evaluator) -> list[Evaluation]:
    return [closed.evaluation for closed in evaluator.close_finished(generators=True) if closed.evaluation]


def test_time_without_a_generator_does_not_count_and_an_empty_evaluation_is_told() -> None:
    now = [0.0]
    evaluator = Evaluator("run", "d", deadline_seconds=10, clock=lambda: now[0])
    ask(evaluator, range(3))
    now[0] = 1_000.0
    assert evaluator.close_finished(generators=False) == []
    now[0] = 1_009.0
    assert evaluator.close_finished(generators=True) == []
    now[0] = 1_011.0
    (closed,) = evaluator.close_finished(generators=True)
    assert (closed.step, closed.evaluation, closed.unanswered) == (7, None, [0, 1, 2])


def test_mean_of_prompt_means_and_version_span() -> None:
    evaluator = Evaluator("run", "d", deadline_seconds=60)
    ask(evaluator, range(2))
    assert evaluator.add(make_group(0, [1, 1, 0, 0]))
    assert evaluator.close_finished(generators=True) == []
    assert evaluator.unanswered().keys() == {1}
    assert evaluator.add(make_group(1, [1, 1, 1, 1]))
    assert not evaluator.add(make_group(1, [0, 0, 0, 0])), "an answer counts once"
    (point,) = points(evaluator)
    assert point.pass_rate == pytest.approx(0.75)
    assert (point.samples, point.num_prompts, point.missing_prompts, point.generated_tokens) == (8, 2, 0, 24)
    assert (point.version_min, point.version_max) == ("1.0", "1.1")
    assert not evaluator.pending


def test_grader_failures_are_neither_right_nor_wrong() -> None:
    evaluator = Evaluator("run", "d", deadline_seconds=60)
    ask(evaluator, range(2))
    evaluator.add(make_group(0, [1, 0]))
    evaluator.add(make_group(1, [0, 0], GradingStatus.TIMEOUT))
    (point,) = points(evaluator)
    assert point.pass_rate == pytest.approx(0.5)
    assert (point.samples, point.ungraded) == (2, 2)


def test_deadline_closes_with_what_came() -> None:
    now = [0.0]
    evaluator = Evaluator("run", "d", deadline_seconds=10, clock=lambda: now[0])
    ask(evaluator, range(3))
    evaluator.add(make_group(0, [1, 0]))
    now[0] = 11.0
    (point,) = points(evaluator)
    assert (point.num_prompts, point.missing_prompts) == (1, 2)


def test_dead_tasks_are_not_waited_for() -> None:
    evaluator = Evaluator("run", "d", deadline_seconds=1e9)
    ask(evaluator, range(2))
    evaluator.add(make_group(0, [1, 0]))
    evaluator.give_up([1])
    (point,) = points(evaluator)
    assert point.num_prompts == 1


def test_standard_error_is_the_spread_of_repeated_samplings() -> None:
    rng = np.random.default_rng(0)
    rates = rng.beta(1.0, 1.0, size=60)

    def sample() -> list[np.ndarray]:
        return [(rng.random(4) < rate).astype(np.float64) for rate in rates]

    means = [np.mean([values.mean() for values in sample()]) for _ in range(4_000)]
    claimed = np.sqrt(np.mean([sampling_standard_error(sample()) ** 2 for _ in range(400)]))
    assert claimed == pytest.approx(np.std(means), rel=0.05)

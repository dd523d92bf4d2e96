"""Evaluations that are asked for, answered and closed."""

from __future__ import annotations

import numpy as np

from rollcast.rollouts.records import (
    EpisodeTask,
    GradingStatus,
    LengthBudget,
    PromptTask,
    Purpose,
    RolloutGroup,
    Sampling,
)
from rollcast.runfolder.records import EvaluationRecord
from rollcast.trainer.control.evaluation import (
    EvaluationPlan,
    Moment,
    OpenEvaluations,
)
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import make_answer_group, make_graded_rollout, make_task

PLAN = EvaluationPlan("d", 10, 2)


def make_group(
    sequence: int, rewards: list[float], status: GradingStatus | None = None, dataset: str = "d"
) -> RolloutGroup:
    version = PolicyVersion(1, sequence)
    rollouts = [make_graded_rollout(index, reward, version) for index, reward in enumerate(rewards)]
    for rollout in rollouts:
        rollout.grading_status = status or rollout.grading_status
    task = make_task(sequence, Purpose.EVAL, dataset=dataset, prompt_id=f"p{sequence}")
    return make_answer_group(task, rollouts, first_version=version)


def ask(
    open_evaluations: OpenEvaluations,
    sequences: range,
    plan: EvaluationPlan = PLAN,
    datasets: str = "d",
    environment: str | None = None,
    verifier: str = "exact",
) -> None:
    """`datasets`: one letter for each task, repeated. `environment`: None = tasks of one turn."""
    episode = (
        None
        if environment is None
        else EpisodeTask(environment, "[]", max_turns=1, max_seconds=60.0)
    )
    tasks = [
        PromptTask(
            sequence=sequence,
            incarnation=1,
            purpose=Purpose.EVAL,
            dataset=datasets[place % len(datasets)],
            prompt_id=f"p{sequence}",
            prompt_token_ids=np.zeros(2, np.int32),
            num_rollouts=2,
            sampling=Sampling(),
            length=LengthBudget(8),
            verifier=verifier,
            reference='""',
            episode=episode,
        )
        for place, sequence in enumerate(sequences)
    ]
    open_evaluations.ask(plan, Moment(1, 7, 2.5, 0.5, 3, 99, 0.25, 0), tasks)


def points(open_evaluations: OpenEvaluations) -> list[EvaluationRecord]:
    return [
        closed.evaluation
        for closed in open_evaluations.close_finished(generators=True)
        if closed.evaluation
    ]

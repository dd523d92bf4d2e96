"""A whole run of episodes over the real queue, gate and ledger: nothing is lost, nothing is used
twice.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rollcast.config.run import RunConfig
from rollcast.rollouts.records import Purpose, RolloutGroup
from rollcast.trainer.control.progress import Progress
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import make_graded_rollout
from testkit.rollouts.memory import MemoryBroker
from testkit.system.audit import check_every_episode_ended, check_every_task_once
from testkit.trainer.quick_control import (
    AnsweringQueue,
    Answers,
    QuickLearners,
    lines,
    make_config,
    make_controller,
    read_group_count,
    run,
)


def episode_config(folder: Path, **budget: int) -> RunConfig:
    config = make_config(folder, **budget)
    return config.model_copy(
        update={"recipe": config.recipe.model_copy(update={"max_completion_tokens": 40})}
    )


def test_groups_of_episodes_are_trained_on_and_the_books_balance(tmp_path: Path) -> None:
    config, broker = episode_config(tmp_path, steps=8), MemoryBroker()
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(0))
    controller = make_controller(
        config, AnsweringQueue(broker, answers), answers, QuickLearners(), environment="world"
    )
    run(controller, answers)
    written = lines(config, "tasks.jsonl")
    outcomes = check_every_task_once(written)
    assert outcomes["used"] > 10, outcomes
    ends = check_every_episode_ended(written, config.recipe.rollouts_per_prompt)
    assert {"answered", "done", "failed"} <= set(ends), ends
    assert read_group_count(controller, "defective") == 0
    evaluations = lines(config, "evaluations.jsonl")
    assert {one["samples"] + one["ungraded"] for one in evaluations} == {6}
    assert any(one["ungraded"] for one in evaluations), "a failed environment is no wrong answer"


def test_a_restart_in_the_middle_uses_no_episode_twice(tmp_path: Path) -> None:
    config, broker = episode_config(tmp_path, steps=9), MemoryBroker()
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(1))
    learners = QuickLearners()
    queue = AnsweringQueue(broker, answers)
    first = make_controller(config, queue, answers, learners, environment="world")
    first._reporter.record_start()
    run(first, answers, limit=4)
    newest = max(learners.saved, key=lambda version: PolicyVersion.parse(version).step)
    second = make_controller(
        config,
        AnsweringQueue(broker, answers),
        answers,
        QuickLearners(),
        progress=Progress.from_json(learners.saved[newest]),
        environment="world",
    )
    second._reporter.record_start()
    run(second, answers)
    written = lines(config, "tasks.jsonl")
    assert check_every_task_once(written)["used"] > 10
    check_every_episode_ended(written, config.recipe.rollouts_per_prompt)
    assert any(line["what"] == "resumed" and line["version"] == newest for line in written)


@pytest.mark.parametrize("purpose", Purpose)
def test_answers_of_an_older_generator_are_refused_and_asked_again(
    tmp_path: Path, purpose: Purpose
) -> None:
    """It reads the task without the fields that it does not know, and answers the prompt once."""
    config, broker = episode_config(tmp_path, steps=3), MemoryBroker()
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(2))
    remaining = [4]

    def older(group: RolloutGroup) -> RolloutGroup:
        if group.purpose is purpose and remaining[0]:
            remaining[0] -= 1
            group.rollouts = [
                make_graded_rollout(one.index, 1.0, answers.version) for one in group.rollouts
            ]
        return group

    queue = AnsweringQueue(broker, answers)
    queue.spoil = older
    controller = make_controller(config, queue, answers, QuickLearners(), environment="world")
    run(controller, answers)
    assert remaining == [0]
    assert read_group_count(controller, "defective") == 4
    written = lines(config, "tasks.jsonl")
    check_every_episode_ended(written, config.recipe.rollouts_per_prompt)

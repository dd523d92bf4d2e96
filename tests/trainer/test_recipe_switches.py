"""Switches of the recipe that change what the controller dispatches, settles and reports."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rollcast.config.errors import UserError
from rollcast.config.recipe import DifficultyAllocation, PPOOffPolicySchedule
from rollcast.config.run import RunConfig
from rollcast.recipe.curriculum import CurriculumState
from rollcast.rollouts.records import PromptTask, Purpose
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.ending import TrainerEnding
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.memory import MemoryBroker
from testkit.system.audit import check_every_task_once
from testkit.trainer.quick_control import (
    AnsweringQueue,
    Answers,
    QuickLearners,
    lines,
    make_config,
    make_controller,
    run,
)


class RecordingQueue(AnsweringQueue):
    """Keeps what was dispatched, call by call."""

    def __init__(self, broker: MemoryBroker, answers: Answers) -> None:
        super().__init__(broker, answers)
        self.broker = broker
        self.calls: list[list[PromptTask]] = []

    def dispatch(self, tasks: Any) -> Any:
        done = super().dispatch(tasks)
        if tasks and tasks[0].purpose is Purpose.TRAIN:
            self.calls.append(list(tasks))
        return done


class RecordingLearners(QuickLearners):
    """Keeps the advantages and weights of every update."""

    def __init__(self) -> None:
        super().__init__()
        self.updates: list[list[Any]] = []

    def update(self, sequences: list[Any], between: Any) -> Any:
        self.updates.append(sequences)
        return super().update(sequences, between)


def make(
    folder: Path, *, seed: int, pass_rate: float = 0.4, steps: int = 8, **recipe: Any
) -> tuple[Any, ...]:
    config = make_config(folder, steps=steps)
    config = config.model_copy(update={"recipe": config.recipe.model_copy(update=recipe)})
    answers = Answers(pass_rate, PolicyVersion(1, 0), random.Random(seed))
    queue, learners = RecordingQueue(MemoryBroker(), answers), RecordingLearners()
    return config, answers, queue, learners, make_controller(config, queue, answers, learners)


def outcomes_by_step(config: RunConfig) -> list[Counter[str]]:
    """Groups settled between one step and the next.

    A batch is settled before its step is marked.
    """
    steps, current = [], Counter[str]()
    for line in lines(config, "tasks.jsonl"):
        if line["what"] in ("used", "filtered"):
            current[line["what"]] += len(line["tasks"])
        elif line["what"] == "step":
            steps.append(current)
            current = Counter()
    return steps


def gauge(controller: Any, name: str) -> float:
    families = text_string_to_metric_families(controller._reporter._exporter.render().decode())
    (value,) = [
        sample.value for family in families for sample in family.samples if sample.name == name
    ]
    return float(value)


@pytest.mark.parametrize("schedule", [None, PPOOffPolicySchedule(max_staleness=2)])
def test_refilled_batches_are_full(tmp_path: Path, schedule: Any) -> None:
    """Seven of ten groups of three at a pass rate of 0.1 have no variance; none counts, each is
    settled once.
    """
    switches = {"refill_filtered": True} | ({} if schedule is None else {"schedule": schedule})
    config, answers, _, learners, controller = make(tmp_path, seed=0, pass_rate=0.1, **switches)
    assert run(controller, answers) is TrainerEnding.FINISHED
    steps = outcomes_by_step(config)
    assert [step["used"] for step in steps] == [4] * 8
    assert sum(step["filtered"] for step in steps) > 30
    assert controller._pipeline._pacing._groups_taken() > 6.0, (
        "4 used and about as many filtered: what is dispatched reckons so"
    )
    outcomes = check_every_task_once(lines(config, "tasks.jsonl"))
    assert outcomes["used"] == 32
    marks = [line for line in lines(config, "tasks.jsonl") if line["what"] == "filtered"]
    assert {mark["reason"] for mark in marks} <= {"every answer right", "every answer wrong"}
    assert all(len({s.advantage for s in update}) > 1 for update in learners.updates)
    # The reward is that of all groups, not of those that happened to have variance.
    rewards = [line["reward_mean"] for line in lines(config, "steps.jsonl")]
    assert np.mean(rewards) < 0.25


def test_without_refilling_filtered_groups_count_towards_the_batch(tmp_path: Path) -> None:
    config, answers, _, _, controller = make(tmp_path, seed=0, pass_rate=0.1)
    assert run(controller, answers) is TrainerEnding.FINISHED
    steps = outcomes_by_step(config)
    assert all(sum(step.values()) % 4 == 0 for step in steps)
    assert sum(step["used"] for step in steps) < 32


def test_refilling_counts_the_history_of_filtered_prompts_and_survives_a_restart(
    tmp_path: Path,
) -> None:
    config, answers, queue, learners, first = make(
        tmp_path, seed=1, pass_rate=0.1, refill_filtered=True
    )
    assert run(first, answers, limit=4) is TrainerEnding.INTERRUPTED
    progress = Progress.from_json(learners.saved[str(first.state.version)])
    assert progress.curriculum is not None
    settled = sum(map(sum, (step.values() for step in outcomes_by_step(config))))
    history = cast(CurriculumState, progress.curriculum)["history"]
    assert sum(evaluations for _, _, evaluations, _ in history.values()) >= settled
    second = make_controller(
        config, RecordingQueue(queue.broker, answers), answers, learners, progress=progress
    )
    second._reporter.record_start()
    assert second.state.curriculum.state() == progress.curriculum
    assert run(second, answers) is TrainerEnding.FINISHED
    check_every_task_once(lines(config, "tasks.jsonl"))


def test_rollouts_by_difficulty_keep_the_budget_and_prompts_equal_weights(tmp_path: Path) -> None:
    allocation = DifficultyAllocation(least=2, most=12)
    config, answers, queue, learners, controller = make(
        tmp_path,
        seed=2,
        pass_rate=0.1,
        steps=20,
        rollouts_per_prompt=6,
        rollout_allocation=allocation,
    )
    assert run(controller, answers) is TrainerEnding.FINISHED
    numbers = Counter(task.num_rollouts for call in queue.calls for task in call)
    assert all(sum(task.num_rollouts for task in call) == 6 * len(call) for call in queue.calls)
    assert 2 <= min(numbers) < 6 < max(numbers) <= 12
    first_uses = {
        task.prompt_id: task.num_rollouts for call in reversed(queue.calls) for task in call
    }
    assert set(first_uses.values()) == {6}, "a new prompt has the mean"
    for update in learners.updates:  # prompt aggregation: 22 prompts have 22 different texts
        weights: Counter[bytes] = Counter()
        for sequence in update:
            weights[sequence.prompt_token_ids.tobytes()] += sequence.weight * int(
                sequence.loss_mask.sum()
            )
        assert list(weights.values()) == pytest.approx([1.0] * len(weights))
    check_every_task_once(lines(config, "tasks.jsonl"))


def test_a_task_that_redis_lost_is_asked_again_with_as_many_rollouts(tmp_path: Path) -> None:
    _, _, queue, _, controller = make(tmp_path, seed=3, rollouts_per_prompt=4)
    prompt_id = "p0"
    sequence = controller.state.ledger.dispatch(prompt_id, 6)
    controller._pipeline.intake.reconcile()
    ((task,),) = queue.calls
    assert (task.sequence, task.prompt_id, task.num_rollouts) == (sequence, prompt_id, 6)


def test_fewer_unique_prompts_are_used_more_often(tmp_path: Path) -> None:
    config, answers, queue, _, controller = make(tmp_path, seed=4, steps=12, unique_prompts=6)
    assert run(controller, answers) is TrainerEnding.FINISHED
    prompt_of = {task.sequence: task.prompt_id for call in queue.calls for task in call}
    assert len(set(prompt_of.values())) == 6
    uses = Counter(
        prompt_of[task]
        for line in lines(config, "tasks.jsonl")
        if line["what"] == "used"
        for task in line["tasks"]
    )
    assert len(uses) > 3
    assert gauge(controller, "rollcast_unique_prompts") == len(uses)
    assert gauge(controller, "rollcast_prompt_uses_mean") == pytest.approx(uses.total() / len(uses))
    last = lines(config, "steps.jsonl")[-1]
    assert (last["unique_prompts"], last["prompt_uses_mean"]) == (
        len(uses),
        uses.total() / len(uses),
    )


def test_a_run_whose_few_prompts_are_all_solved_ends(tmp_path: Path) -> None:
    _, answers, _, _, controller = make(tmp_path, seed=5, pass_rate=1.0, unique_prompts=5)
    assert run(controller, answers) is TrainerEnding.FINISHED


def test_another_number_of_unique_prompts_is_not_the_same_run(tmp_path: Path) -> None:
    config, answers, queue, learners, first = make(tmp_path, seed=6, unique_prompts=10)
    assert run(first, answers, limit=2) is TrainerEnding.INTERRUPTED
    progress = Progress.from_json(learners.saved[str(first.state.version)])
    other = config.model_copy(
        update={"recipe": config.recipe.model_copy(update={"unique_prompts": 9})}
    )
    with pytest.raises(UserError, match="differ from those of the checkpoint"):
        make_controller(other, queue, answers, learners, progress=progress)

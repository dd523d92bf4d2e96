"""The controller's loop, from its first step to the run's end."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rollcast.config.errors import UserError
from rollcast.config.run_end import StopWhen
from rollcast.rollouts.base import Claimed
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.records import GradingStatus, Purpose, RolloutGroup, StopReason
from rollcast.telemetry import evaluation_metrics, trainer_metrics
from rollcast.telemetry.prometheus_reader import parse_page
from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.step_sums import UpdateStats
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import VERSION, make_graded_rollout, make_group, make_task
from testkit.rollouts.memory import MemoryBroker
from testkit.system.audit import check_every_task_once
from testkit.trainer.quick_control import (
    AnsweringQueue,
    Answers,
    QuickLearners,
    answer_everything,
    follow_version,
    lines,
    make_config,
    make_controller,
    read_group_count,
    run,
)


def test_a_run_ends_at_its_budget_with_balanced_books(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path, steps=10), MemoryBroker()
    answers = Answers(0.4, PolicyVersion(1, 0), random.Random(0))
    learners = QuickLearners()
    controller = make_controller(config, AnsweringQueue(broker, answers), answers, learners)
    assert run(controller, answers) is TrainerEnding.FINISHED
    assert [line["step"] for line in lines(config, "steps.jsonl")] == list(range(1, 11))
    assert [line["step"] for line in lines(config, "evaluations.jsonl")] == [0, 2, 4, 6, 8, 10]
    outcomes = check_every_task_once(lines(config, "tasks.jsonl"))
    assert outcomes["used"] + outcomes["filtered"] >= 40
    assert (
        max(int(age) for line in lines(config, "steps.jsonl") for age in line["staleness_tokens"])
        <= 3
    )
    assert list(learners.saved)[-1] == "1.10"
    samples = parse_page(controller._reporter._exporter.render().decode())
    told = {(sample.name, sample.labels.get("role")): sample.value for sample in samples}
    generated = told[trainer_metrics.TOKENS.name, "generator"]
    waiting = sum(
        delivery.group.num_tokens for delivery in controller._pipeline.intake.ready.values()
    )
    assert told[trainer_metrics.CONSUMED_TOKENS.name, None] == generated - waiting > 0, (
        "what came was consumed or lies ready"
    )


def test_outages_cost_no_step_no_evaluation_and_no_task(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path, steps=12), MemoryBroker()
    answers = Answers(0.4, PolicyVersion(1, 0), random.Random(1))
    queue = AnsweringQueue(broker, answers)
    controller = make_controller(config, queue, answers, QuickLearners())
    queue.away_share = 0.2
    assert run(controller, answers) is TrainerEnding.FINISHED
    assert [line["step"] for line in lines(config, "steps.jsonl")] == list(range(1, 13))
    assert [line["step"] for line in lines(config, "evaluations.jsonl")] == [0, 2, 4, 6, 8, 10, 12]
    check_every_task_once(lines(config, "tasks.jsonl"))


def test_a_run_whose_prompts_are_all_solved_ends(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path), MemoryBroker()
    answers = Answers(1.0, PolicyVersion(1, 0), random.Random(0))
    controller = make_controller(config, AnsweringQueue(broker, answers), answers, QuickLearners())
    assert run(controller, answers) is TrainerEnding.FINISHED
    assert set(check_every_task_once(lines(config, "tasks.jsonl"))) <= {"filtered", "open"}


class ImperfectEvaluations(AnsweringQueue):
    """Of three held-out prompts the first is never graded, and the answers to the second match but
    are cut off.
    """

    def read(self, max_groups: int, block_seconds: float) -> Any:
        asyncio.run(answer_everything(self._generator, self._answers, spoil=self._spoilt))
        return super().read(max_groups, block_seconds)

    def _spoilt(self, group: RolloutGroup) -> RolloutGroup:
        if group.purpose is Purpose.EVAL and group.prompt_id == "p100":
            for rollout in group.rollouts:
                rollout.reward = 0.0
                rollout.grading_status = GradingStatus.TIMEOUT
        if group.purpose is Purpose.EVAL and group.prompt_id == "p101":
            most = group.length.max_tokens
            group.rollouts = [
                make_graded_rollout(index, 1.0, self._answers.version, length=most)
                for index in range(2)
            ]
            for rollout in group.rollouts:
                rollout.stop_reason = StopReason.LENGTH
        return group


def test_what_an_evaluation_lacks_is_recorded_exported_and_told(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path, steps=4), MemoryBroker()
    answers = Answers(0.4, PolicyVersion(1, 0), random.Random(0))
    controller = make_controller(
        config, ImperfectEvaluations(broker, answers), answers, QuickLearners()
    )
    with capture_logs() as logs:
        assert run(controller, answers) is TrainerEnding.FINISHED
    found = lines(config, "evaluations.jsonl")
    assert [line["step"] for line in found] == [0, 2, 4]
    counts = ("asked_prompts", "num_prompts", "missing_prompts", "samples", "truncated_matches")
    assert [[line[name] for name in counts] for line in found] == 3 * [[3, 2, 0, 4, 2]]
    page = parse_page(controller._reporter._exporter.render().decode())
    lost = {
        item.labels["reason"]: item.value
        for item in page
        if item.name == evaluation_metrics.EVAL_PROMPTS_LOST.name
    }
    assert lost == {"given_up": 0, "deadline": 0, "no_verdict": 3}
    matches = {
        item.labels["purpose"]: item.value
        for item in page
        if item.name == trainer_metrics.TRUNCATED_MATCHES.name
    }
    assert matches["eval"] == 6
    incomplete = [line for line in logs if line["event"].startswith("an evaluation is incomplete")]
    assert [(line["step"], line["prompts"], line["asked"]) for line in incomplete] == [
        (0, 2, 3),
        (2, 2, 3),
        (4, 2, 3),
    ]


def test_a_trainer_says_once_why_none_of_its_first_groups_is_used(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path), MemoryBroker()
    answers = Answers(0.0, PolicyVersion(1, 0), random.Random(0))
    controller = make_controller(config, AnsweringQueue(broker, answers), answers, QuickLearners())
    controller._stop_requested = lambda: read_group_count(controller, "filtered") >= 24
    with capture_logs() as logs:
        controller.run()
    said = [line["event"] for line in logs if "can be trained on" in line["event"]]
    assert len(said) == 1
    assert said[0].startswith(
        "none of the first 12 groups can be trained on: 12 with every answer wrong; `rollcast try`"
    )


class TwoOfThree:
    """Every group has two right rollouts of three."""

    def __init__(self) -> None:
        self._values = itertools.cycle([0.0, 0.0, 1.0])

    def random(self) -> float:
        return next(self._values)


class SteadyQueue(AnsweringQueue):
    """Redis never away."""

    def _maybe_away(self) -> None:
        pass


def test_no_batch_is_left_behind_while_weights_are_waited_for(tmp_path: Path) -> None:
    """Every prompt leaves training after its first group, and each step's acknowledgement comes
    some turns late.
    """
    config, broker = make_config(tmp_path), MemoryBroker()
    recipe = config.recipe.model_copy(update={"no_positive_resampling": 0.5})
    config = config.model_copy(update={"recipe": recipe})
    answers = Answers(0.5, PolicyVersion(1, 0), TwoOfThree())  # type: ignore[arg-type]
    controller = make_controller(config, SteadyQueue(broker, answers), answers, QuickLearners())
    asked: Counter[int] = Counter()

    def acknowledged() -> int:
        step = controller.state.version.step
        asked[step] += 1
        return step if asked[step] > 6 else step - 2

    controller._publisher.lowest_step = acknowledged  # type: ignore[method-assign]
    assert run(controller, answers) is TrainerEnding.FINISHED
    assert controller.state.curriculum.is_exhausted
    assert len(controller._pipeline.intake.ready) < recipe.prompts_per_step
    assert controller.state.version.step >= 22 // recipe.prompts_per_step
    check_every_task_once(lines(config, "tasks.jsonl"))


def test_a_few_right_answers_among_gradings_that_failed_remove_no_prompt(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path), MemoryBroker()
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(0))
    controller = make_controller(config, AnsweringQueue(broker, answers), answers, QuickLearners())
    tasks = [make_task(number, prompt_id=f"p{number}", num_rollouts=8) for number in (1, 2)]
    easy, stalling = (make_group(Claimed(task, "1-0", VERSION), "g") for task in tasks)
    for rollout in stalling.rollouts[3:]:
        rollout.reward, rollout.grading_status = 0.0, GradingStatus.TIMEOUT
    controller._pipeline.observe([stalling])
    assert controller.state.curriculum.num_removed == 0
    controller._pipeline.observe([easy])
    assert controller.state.curriculum.num_removed == 1


@pytest.mark.parametrize("second", ["wrong", "defective"])
def test_a_second_answer_to_a_group_in_training_ends_no_run(tmp_path: Path, second: str) -> None:
    """Redis loses everything during an update, and what is under way is asked and answered once
    more.
    """
    config, broker = make_config(tmp_path, steps=5), MemoryBroker()
    config = config.model_copy(
        update={"recipe": config.recipe.model_copy(update={"refill_filtered": True})}
    )
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(8))
    learners, queue = QuickLearners(), SteadyQueue(broker, answers)
    controller = make_controller(config, queue, answers, learners)

    def update(sequences: list[Any], between: Any) -> UpdateStats:
        broker.tasks.clear()
        tasks = [
            controller._pipeline._make_task(*item)
            for item in controller.state.ledger.outstanding.items()
        ]
        queue.dispatch(tasks)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(answers, "pass_rate", 0.0)
            if second == "defective":
                learners.vocab_size = 1  # no token fits
            between()
        learners.vocab_size = QuickLearners.vocab_size
        return QuickLearners.update(learners, sequences, between)

    learners.update = update  # type: ignore[method-assign]
    assert run(controller, answers) is TrainerEnding.FINISHED
    assert [line["step"] for line in lines(config, "steps.jsonl")] == list(range(1, 6))
    check_every_task_once(lines(config, "tasks.jsonl"))
    assert read_group_count(controller, "duplicate") >= 5 * config.recipe.prompts_per_step, (
        "each group in training, once a step"
    )


def test_an_update_does_not_wait_for_redis_twice(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path, steps=2), MemoryBroker()
    answers = Answers(0.4, PolicyVersion(1, 0), random.Random(6))
    queue = AnsweringQueue(broker, answers)
    controller = make_controller(config, queue, answers, QuickLearners())
    asked = 0

    def read(max_groups: int, block_seconds: float) -> Any:
        nonlocal asked
        asked += 1
        raise QueueAway("away")

    queue.read = read  # type: ignore[method-assign]
    meanwhile = controller._dispatcher_during_update()
    for _ in range(5):
        meanwhile()
    assert asked == 1


def test_stop_when_ends_a_saturated_run_with_checkpoint_export_and_the_reason(
    tmp_path: Path,
) -> None:
    config, broker = make_config(tmp_path, steps=100), MemoryBroker()
    config = config.model_copy(update={"stop_when": StopWhen()})
    answers = Answers(0.4, PolicyVersion(1, 0), random.Random(7))
    queue, learners = AnsweringQueue(broker, answers), QuickLearners()
    queue.held_out_solved = True
    controller = make_controller(config, queue, answers, learners)
    # Its steps take no time: a minute passes at each look instead, since the curve is over
    # device-hours.
    minutes = itertools.count(1)
    compute = controller.state.compute
    compute.clock = lambda: 60.0 * next(minutes)
    compute.start(trainer_devices=1, state=None, start_up=0.0)
    assert run(controller, answers) is TrainerEnding.FINISHED
    (stopped,) = [line for line in lines(config, "tasks.jsonl") if line["what"] == "stopped_early"]
    assert "saturated" in stopped["reason"]
    assert stopped["step"] < 50
    assert str(controller.state.version) in learners.saved
    assert lines(config, "evaluations.jsonl")[-1]["step"] == stopped["step"]
    assert (config.run_folder / "model").is_dir()


class SlowDisk(QuickLearners):
    """Its checkpoints are written when somebody says so."""

    def __init__(self) -> None:
        super().__init__()
        self.written: Future[Path] = Future()

    def save(self, version: PolicyVersion, state: dict[str, Any]) -> Future[Path]:
        super().save(version, state)
        self.written = Future()
        return self.written


def test_groups_are_held_until_the_next_checkpoint_is_on_the_disk(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path, steps=20), MemoryBroker()
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(6))
    learners = SlowDisk()
    controller = make_controller(config, AnsweringQueue(broker, answers), answers, learners)

    def train_to(step: int) -> None:
        while controller.state.version.step < step:
            controller._step_or_wait()
            answers.version = controller.state.version

    train_to(5)
    assert list(learners.saved) == ["1.3"], "training went on"
    told = [
        (line["what"], line.get("step"), line.get("version"))
        for line in lines(config, "tasks.jsonl")
    ]
    between = told[told.index(("step", 3, None)) : told.index(("step", 4, None))]
    assert ("checkpoint", None, "1.3") in between, (
        "the books are cut where the state was taken, not where it was written"
    )
    held = dict(controller.state.ledger.held)
    assert held, "the checkpoint that is being written could use them"
    learners.written.set_result(tmp_path)
    controller._step_or_wait()
    assert held.items() <= controller.state.ledger.held.items(), "they came after it"
    train_to(7)
    assert list(learners.saved) == ["1.3", "1.6"]
    assert held.items() <= controller.state.ledger.held.items()
    before = dict(controller.state.ledger.held)
    learners.written.set_result(tmp_path)
    controller._step_or_wait()
    assert not held.keys() & controller.state.ledger.held.keys()
    assert len(controller.state.ledger.held) < len(before)


def test_a_disk_that_refuses_a_checkpoint_ends_the_run(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path, steps=20), MemoryBroker()
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(7))
    learners = SlowDisk()
    controller = make_controller(config, AnsweringQueue(broker, answers), answers, learners)
    controller._stop_requested = follow_version(controller, answers, 4)
    while not learners.saved:
        controller._step_or_wait()
        answers.version = controller.state.version
    learners.written.set_exception(UserError("the disk is full"))
    with pytest.raises(UserError, match="the disk is full"):
        controller.run()

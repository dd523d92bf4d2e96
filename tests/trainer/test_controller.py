"""The controller's loop around the real queue, gate, ledger and books; learner and generator are quick stand-ins."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rollcast.cli.curve_source import read_curve
from rollcast.config.recipe import PipelineSchedule
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.config.services import StopWhen
from rollcast.curves.evaluations import EvaluationLog
from rollcast.curves.reading import interpret
from rollcast.curves.run_folder import RunFolder
from rollcast.curves.table import Columns
from rollcast.local.status import StatusReader
from rollcast.rollouts.base import Claimed, GeneratorQueue, TrainerQueue
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.records import GradingStatus, Purpose, Rollout, RolloutGroup, StopReason, VersionSpan
from rollcast.tasks.prompts import Prompt
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.prometheus_reader import parse_page
from rollcast.trainer.control.build import build_controller
from rollcast.trainer.control.controller import Controller
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.prompt_book import Books, PromptBook
from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.learner import UpdateStats
from rollcast.weights.manifest import TensorSpec
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import VERSION, make_group, make_task
from testkit.rollouts.memory import MemoryBroker, MemoryGeneratorQueue, MemoryTrainerQueue
from testkit.system.audit import check_every_task_once, read_lines


class CharTokenizer:
    chat_template = None
    eos_token_id: int | None = 0

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [1 + ord(character) % 50 for character in text]}

    def apply_chat_template(self, conversation: Any, **_: Any) -> Any:
        raise NotImplementedError("the model has no chat template")

    def decode(self, token_ids: Any, **_: Any) -> str:
        raise NotImplementedError("nothing reads completions")


class QuickLearners:
    """Counts updates and remembers checkpoints."""

    specs = (TensorSpec("w", "float32", (2,)),)
    vocab_size = 64

    def __init__(self) -> None:
        self.saved: dict[str, dict[str, Any]] = {}

    def update(self, sequences: list[Any], between: Any) -> UpdateStats:
        between()
        tokens = sum(len(sequence.token_ids) for sequence in sequences)
        return UpdateStats(True, 0.1, 1.0, 0.0, 0.0, 0.0, 1.0, tokens, tokens, 0.0, 1, 0.001)

    def gather(self, snapshot: Any) -> None:
        for _, tensor in snapshot.views():
            tensor.zero_()

    def save(self, version: PolicyVersion, state: dict[str, Any]) -> None:
        self.saved[str(version)] = json.loads(json.dumps(state))

    def export(self, folder: Path) -> None:
        folder.mkdir(parents=True)


@dataclass
class Answers:
    """How the stand-in generator answers."""

    pass_rate: float
    version: PolicyVersion
    rng: random.Random


async def answer_everything(
    generator: GeneratorQueue,
    answers: Answers,
    *,
    held_out_solved: bool = False,
    spoil: Callable[[RolloutGroup], RolloutGroup] = lambda group: group,
) -> None:
    version = answers.version
    for one in await generator.claim(train=99, evals=99, first_version=lambda: version, block_seconds=0.0):
        task = one.task
        rollouts = []
        for index in range(task.num_rollouts):
            solved = held_out_solved and task.purpose is Purpose.EVAL
            right = solved or answers.rng.random() < answers.pass_rate
            rollouts.append(
                Rollout(
                    index=index,
                    token_ids=np.ones(3, np.int32),
                    logprobs=np.zeros(3, np.float32),
                    version_spans=(VersionSpan(version, 0, 3),),
                    stop_reason=StopReason.END,
                    reward=float(right),
                    grading_status=GradingStatus.OK if right else GradingStatus.WRONG,
                )
            )
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
            first_version=version,
            generator=generator.owner,
        )
        await generator.publish(one, spoil(group))


class AnsweringQueue(MemoryTrainerQueue):
    """Before each read a generator answers everything that waits; some calls find Redis away."""

    def __init__(self, broker: MemoryBroker, answers: Answers) -> None:
        super().__init__(broker)
        self._generator = MemoryGeneratorQueue(broker, "g")
        self._answers = answers
        self.away_share = 0.0
        self.held_out_solved = False
        self.silent = False
        """The generator answers nothing more."""
        self.lost_evaluation: int | None = None
        """Evaluation tasks of this step are lost once, as by a Redis that dies right after it took them."""

    def read(self, max_groups: int, block_seconds: float) -> Any:
        if not self.silent:
            asyncio.run(answer_everything(self._generator, self._answers, held_out_solved=self.held_out_solved))
        self._maybe_away()
        return super().read(max_groups, 0.0)

    def remove(self, stream_ids: Any) -> None:
        self._maybe_away()
        super().remove(stream_ids)

    def dispatch(self, tasks: Any) -> Any:
        self._maybe_away()
        if tasks and tasks[0].purpose is Purpose.EVAL and tasks[0].eval_step == self.lost_evaluation:
            self.lost_evaluation = None
            return []
        return super().dispatch(tasks)

    def _maybe_away(self) -> None:
        if self._answers.rng.random() < self.away_share:
            raise QueueAway("away")


def make_config(folder: Path, **budget: int) -> RunConfig:
    return parse_run_config(
        {
            "run": "r",
            "folder": str(folder),
            "model": {"path": "none", "max_length": 64},
            "tasks": {"evaluation": {"num_prompts": 3, "rollouts_per_prompt": 2, "every_steps": 2}},
            "recipe": {
                "schedule": {"kind": "pipeline", "max_staleness": 3},
                "prompts_per_step": 4,
                "rollouts_per_prompt": 3,
                "max_prompt_tokens": 8,
                "max_completion_tokens": 8,
                "length_control": {"kind": "none"},
            },
            "trainer": {"checkpoint_every_steps": 3},
            "budget": budget,
            "rpc": {"port": 0},
        },
        source="test",
    )


def make_controller(
    config: RunConfig,
    queue: TrainerQueue,
    answers: Answers,
    learners: QuickLearners,
    *,
    progress: Progress | None = None,
    stop: Any = lambda: False,
) -> Controller:
    def book(start: int, count: int) -> PromptBook:
        prompts = [Prompt(f"p{i}", "d", f"q{i}", '""', "exact") for i in range(start, start + count)]
        return PromptBook(prompts, CharTokenizer(), max_prompt_tokens=8)

    config.run_folder.mkdir(parents=True, exist_ok=True)
    controller = build_controller(
        config,
        learners=learners,  # type: ignore[arg-type]
        ranks=SimpleNamespace(num_devices=1, device=torch.device("cpu")),  # type: ignore[arg-type]
        queue=queue,
        books=Books(train=book(0, 22), held_out=book(100, 3)),
        encode=lambda text: [],
        exporter=Exporter("r"),
        progress=progress,
        stop_requested=stop,
    )
    answers.version = controller.version
    return controller


def started_from(controller: Controller) -> dict[str, float]:
    """What its page tells of the steps that incarnations began with."""
    samples = parse_page(controller._exporter.render().decode())
    return {
        sample.labels["incarnation"]: sample.value for sample in samples if sample.name == names.INCARNATION_START.name
    }


def lines(config: RunConfig, name: str) -> list[dict[str, Any]]:
    return read_lines(config.run_folder / name)


def follow_version(controller: Controller, answers: Answers, limit: int = 10**9) -> Any:
    """A stop check that keeps the generator at the newest version, and stops after `limit` steps."""

    def check() -> bool:
        answers.version = controller.version
        return controller.version.step >= limit

    return check


def run(controller: Controller, answers: Answers, limit: int = 10**9) -> TrainerEnding:
    controller._stop_requested = follow_version(controller, answers, limit)
    return controller.run()


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
    assert max(int(age) for line in lines(config, "steps.jsonl") for age in line["staleness_tokens"]) <= 3
    assert list(learners.saved)[-1] == "1.10"
    samples = parse_page(controller._exporter.render().decode())
    told = {(sample.name, sample.labels.get("role")): sample.value for sample in samples}
    generated = told[names.TOKENS.name, "generator"]
    waiting = sum(delivery.group.num_tokens for delivery in controller._intake.ready.values())
    assert told[names.CONSUMED_TOKENS.name, None] == generated - waiting > 0, "what came was consumed or lies ready"


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
    """Every prompt leaves training after its first group, and each step's acknowledgement comes some turns late."""
    config, broker = make_config(tmp_path), MemoryBroker()
    recipe = config.recipe.model_copy(update={"no_positive_resampling": 0.5})
    config = config.model_copy(update={"recipe": recipe})
    answers = Answers(0.5, PolicyVersion(1, 0), TwoOfThree())  # type: ignore[arg-type]
    controller = make_controller(config, SteadyQueue(broker, answers), answers, QuickLearners())
    asked: Counter[int] = Counter()

    def acknowledged() -> int:
        step = controller.version.step
        asked[step] += 1
        return step if asked[step] > 6 else step - 2

    controller._publisher.lowest_step = acknowledged  # type: ignore[method-assign]
    assert run(controller, answers) is TrainerEnding.FINISHED
    assert controller._dispatcher.is_exhausted
    assert len(controller._intake.ready) < recipe.prompts_per_step
    assert controller.version.step >= 22 // recipe.prompts_per_step
    check_every_task_once(lines(config, "tasks.jsonl"))


def test_a_few_right_answers_among_gradings_that_failed_remove_no_prompt(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path), MemoryBroker()
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(0))
    controller = make_controller(config, AnsweringQueue(broker, answers), answers, QuickLearners())
    tasks = [make_task(number, prompt_id=f"p{number}", num_rollouts=8) for number in (1, 2)]
    easy, stalling = (make_group(Claimed(task, "1-0", VERSION), "g") for task in tasks)
    for rollout in stalling.rollouts[3:]:
        rollout.reward, rollout.grading_status = 0.0, GradingStatus.TIMEOUT
    controller._dispatcher.observe([stalling])
    assert controller._curriculum.num_removed == 0
    controller._dispatcher.observe([easy])
    assert controller._curriculum.num_removed == 1


@pytest.mark.parametrize("second", ["wrong", "defective"])
def test_a_second_answer_to_a_group_in_training_ends_no_run(tmp_path: Path, second: str) -> None:
    """Redis loses everything during an update, and what is under way is asked and answered once more."""
    config, broker = make_config(tmp_path, steps=5), MemoryBroker()
    config = config.model_copy(update={"recipe": config.recipe.model_copy(update={"refill_filtered": True})})
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(8))
    learners, queue = QuickLearners(), SteadyQueue(broker, answers)
    controller = make_controller(config, queue, answers, learners)

    def update(sequences: list[Any], between: Any) -> UpdateStats:
        broker.tasks.clear()
        tasks = [controller._dispatcher.train_task(*item) for item in controller._ledger.outstanding.items()]
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
    assert told(controller, "duplicate") >= 5 * config.recipe.prompts_per_step, "each group in training, once a step"


def told(controller: Controller, outcome: str) -> float:
    samples = parse_page(controller._exporter.render().decode())
    return sum(s.value for s in samples if s.name == names.GROUPS.name and s.labels.get("outcome") == outcome)


def test_an_owed_prompt_that_is_the_last_one_is_trained_on(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path), MemoryBroker()
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(0))
    controller = make_controller(config, AnsweringQueue(broker, answers), answers, QuickLearners())
    for number in range(22):
        controller._curriculum.observe(f"p{number}", reward=3, graded=3, sampled=3)
    controller._ledger.owed = ["p3"]
    controller._turn()
    assert list(controller._ledger.outstanding.values()) == ["p3"]
    assert not controller._budget_reached(), "it was dispatched a moment ago"


def killed_at_9_and_resumed_at_6(config: RunConfig) -> tuple[Controller, Controller]:
    """Both incarnations. The checkpoint of step 6 was written before the evaluation of step 6 was answered."""
    broker = MemoryBroker()
    answers = Answers(0.4, PolicyVersion(1, 0), random.Random(3))
    learners = QuickLearners()
    first = make_controller(config, AnsweringQueue(broker, answers), answers, learners)
    first._reporter.started(first._history, 0, 3)
    first._compute.start(1, None, start_up=0.0)
    killed = False

    def kill(*_: Any) -> Any:
        nonlocal killed
        killed = True
        raise KeyboardInterrupt

    learners.save = lambda version, state: (  # type: ignore[method-assign]
        kill() if version.step == 9 else QuickLearners.save(learners, version, state)
    )
    with contextlib.suppress(KeyboardInterrupt):
        run(first, answers)
    assert killed
    del learners.save
    progress = Progress.from_json(learners.saved["1.6"])
    second = make_controller(config, AnsweringQueue(broker, answers), answers, learners, progress=progress)
    second._reporter.started(second._history, 6, 3)
    assert started_from(first) == {"1": 0.0}
    assert started_from(second) == {"2": 6.0}
    second._compute.start(1, progress.compute_state, start_up=progress.start_up)
    assert second.version == PolicyVersion(2, 6)
    assert run(second, answers) is TrainerEnding.FINISHED
    return first, second


def test_a_restart_from_a_checkpoint_settles_every_task_once(tmp_path: Path) -> None:
    config = make_config(tmp_path, steps=14)
    killed_at_9_and_resumed_at_6(config)
    steps = [line["step"] for line in lines(config, "steps.jsonl")]
    assert steps == [*range(1, 10), *range(7, 15)]
    check_every_task_once(lines(config, "tasks.jsonl"))


def test_an_evaluation_that_was_made_twice_is_one_point_for_every_reader(tmp_path: Path) -> None:
    config = make_config(tmp_path, steps=14).model_copy(update={"stop_when": StopWhen()})
    first, second = killed_at_9_and_resumed_at_6(config)
    written = [(line["incarnation"], line["step"]) for line in lines(config, "evaluations.jsonl")]
    assert written == [(1, 0), (1, 2), (1, 4), (1, 6), *((2, step) for step in range(6, 15, 2))]
    expected = [(1, 0), (1, 2), (1, 4), *((2, step) for step in range(6, 15, 2))]

    pages = [interpret(parse_page(one._exporter.render().decode()), at=0.0) for one in (first, second)]
    folder = RunFolder(config.run_folder, config.run).read()
    for readings in (pages, [folder], [*pages, folder]):
        log = EvaluationLog()
        for reading in readings:
            log.starts |= reading.starts.get(config.run, {})
            for item in reading.evaluations:
                log.add(item)
        assert [(item.incarnation, item.step) for item in log.surviving()] == expected
    assert [(point.incarnation, point.step) for point in StatusReader(config).read().evaluations] == expected
    rates = {(line["incarnation"], line["step"]): line["pass_rate"] for line in lines(config, "evaluations.jsonl")}
    curve = read_curve(str(config.run_folder / "evaluations.jsonl"), Columns(), None)
    assert [curve.initial, *curve.pass_rate] == [rates[version] for version in expected]
    assert [(point[0], point[1]) for point in second._progress.curve] == [
        (version[1], rates[version]) for version in expected
    ]


def test_the_last_evaluation_is_asked_again_where_redis_lost_it(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path, steps=4), MemoryBroker()
    answers = Answers(0.4, PolicyVersion(1, 0), random.Random(4))
    queue = AnsweringQueue(broker, answers)
    queue.lost_evaluation = 4
    controller = make_controller(config, queue, answers, QuickLearners())
    assert run(controller, answers) is TrainerEnding.FINISHED
    assert queue.lost_evaluation is None
    assert lines(config, "evaluations.jsonl")[-1]["step"] == 4


def test_a_resume_with_a_smaller_window_gives_up_what_it_cannot_use_and_dispatches_it_in_time(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path, steps=16), MemoryBroker()
    answers = Answers(0.4, PolicyVersion(1, 0), random.Random(5))
    learners, queue = QuickLearners(), AnsweringQueue(broker, answers)
    first = make_controller(config, queue, answers, learners)

    def stop_with_many_under_way() -> bool:
        answers.version = first.version
        queue.silent = first.version.step >= 5
        return len(first._ledger.outstanding) > 4 and queue.silent

    first._stop_requested = stop_with_many_under_way
    assert first.run() is TrainerEnding.INTERRUPTED
    checkpoint, stopped = learners.saved[str(first.version)], first.version.step
    assert len(checkpoint["ledger"]["outstanding"]) > 4, "more than the window of k = 1 holds"

    recipe = config.recipe.model_copy(update={"schedule": PipelineSchedule(max_staleness=1)})
    narrow = config.model_copy(update={"recipe": recipe})
    progress = Progress.from_json(checkpoint)
    second = make_controller(narrow, queue, answers, learners, progress=progress)
    second._reporter.started(second._history, stopped, 1)

    def answer_after_the_first_look() -> bool:
        answers.version = second.version
        queue.silent = not second._ledger.owed and second.version.step == stopped
        return False

    second._stop_requested = answer_after_the_first_look
    assert second.run() is TrainerEnding.FINISHED
    outcomes = check_every_task_once(lines(config, "tasks.jsonl"))
    assert outcomes["stale"] == len(checkpoint["ledger"]["outstanding"]) - 4
    assert second._ledger.owed == [], "what was given up was dispatched again"
    resumed = [line for line in lines(config, "steps.jsonl") if line["step"] > stopped]
    assert max(int(age) for line in resumed for age in line["staleness_tokens"]) <= 1


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
    meanwhile = controller._meanwhile()
    for _ in range(5):
        meanwhile()
    assert asked == 1


def test_stop_when_ends_a_saturated_run_with_checkpoint_export_and_the_reason(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path, steps=100), MemoryBroker()
    config = config.model_copy(update={"stop_when": StopWhen()})
    answers = Answers(0.4, PolicyVersion(1, 0), random.Random(7))
    queue, learners = AnsweringQueue(broker, answers), QuickLearners()
    queue.held_out_solved = True
    controller = make_controller(config, queue, answers, learners)
    assert run(controller, answers) is TrainerEnding.FINISHED
    (stopped,) = [line for line in lines(config, "tasks.jsonl") if line["what"] == "stopped_early"]
    assert "saturated" in stopped["reason"]
    assert stopped["step"] < 50
    assert str(controller.version) in learners.saved
    assert lines(config, "evaluations.jsonl")[-1]["step"] == stopped["step"]
    assert (config.run_folder / "model").is_dir()

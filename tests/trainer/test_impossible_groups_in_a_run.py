"""The whole trainer on a real Redis, some of whose generators answer what no honest one does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollcast.config.connections import Redis
from rollcast.rollouts.base import MAX_FAILURES, Claimed
from rollcast.rollouts.codec import encode_group
from rollcast.rollouts.records import (
    Purpose,
    RolloutGroup,
)
from rollcast.rollouts.redis_generator_queue import RedisGeneratorQueue
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from rollcast.runfolder.records import EvaluationRecord
from rollcast.telemetry import evaluation_metrics, trainer_metrics
from rollcast.telemetry.prometheus_reader import parse_page
from rollcast.trainer.control.controller import Controller
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.ending import TrainerEnding
from rollcast.wire import rollout_pb2 as pb
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.servers import Server, find_server
from testkit.system.audit import check_every_task_once
from testkit.trainer.quick_control import (
    Answers,
    QuickLearners,
    answer_everything,
    lines,
    make_config,
    make_controller,
    run,
)

Message = pb.RolloutGroup
Spoil = Callable[[Message], None]


class SpoilingGenerator(RedisGeneratorQueue):
    """Speaks protobuf itself: no check of our own keeps it from anything."""

    def __init__(self, settings: Redis, is_spoilt: Callable[[Claimed], bool], spoil: Spoil) -> None:
        super().__init__(settings, "r", "g")
        self._is_spoilt = is_spoilt
        self._spoil = spoil

    async def publish(self, claimed: Claimed, group: RolloutGroup) -> bool:
        message = Message.FromString(encode_group(group))
        if self._is_spoilt(claimed):
            self._spoil(message)
        return await self._let_go_with(
            "publish", claimed, group.first_version, message.SerializeToString()
        )


class SpoiltQueue(RedisTrainerQueue):
    """Before each read a generator answers everything that waits."""

    def __init__(
        self,
        settings: Redis,
        answers: Answers,
        spoil: Spoil,
        is_spoilt: Callable[[Claimed], bool] | None = None,
    ) -> None:
        super().__init__(settings, "r")
        self._settings = settings
        self._answers = answers
        self._spoil = spoil
        self._is_spoilt = is_spoilt or self._usual
        self.silent_from = 10**9
        """Step from which nothing is answered."""
        self.spoilt: dict[Purpose, list[int]] = {Purpose.TRAIN: [], Purpose.EVAL: []}

    def _usual(self, claimed: Claimed) -> bool:
        """Of both purposes the first task always, the second at its first attempt."""
        seen = self.spoilt[claimed.task.purpose]
        if claimed.task.sequence not in seen and len(seen) < 2:
            seen.append(claimed.task.sequence)
        if claimed.task.sequence not in seen:
            return False
        return seen.index(claimed.task.sequence) == 0 or claimed.task.attempt == 0

    def read(self, max_groups: int, block_seconds: float) -> Any:
        if self._answers.version.step < self.silent_from:
            asyncio.run(self._answer())
        return super().read(max_groups, 0.0)

    async def _answer(self) -> None:
        generator = SpoilingGenerator(self._settings, self._is_spoilt, self._spoil)
        await answer_everything(generator, self._answers)
        await generator.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(find_server("6.2"), tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def empty(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames:
        with request.getfixturevalue("server").client() as raw:
            raw.flushall()


def every_rollout(**values: Any) -> Spoil:
    def spoil(message: Message) -> None:
        for rollout in message.rollouts:
            for name, value in values.items():
                setattr(rollout, name, value)

    return spoil


def set_to(**values: Any) -> Spoil:
    def spoil(message: Message) -> None:
        for name, value in values.items():
            setattr(message, name, value)

    return spoil


def other_purpose(message: Message) -> None:
    train = message.purpose == pb.PURPOSE_TRAIN
    message.purpose = pb.PURPOSE_EVAL if train else pb.PURPOSE_TRAIN


def hotter(message: Message) -> None:
    message.sampling.temperature = 1.5


def longer(message: Message) -> None:
    for rollout in message.rollouts:
        rollout.token_ids = np.ones(9, "<i4").tobytes()
        rollout.logprobs = np.zeros(9, "<f4").tobytes()
        rollout.version_spans[0].end = 9


LOW = np.array([-1.0, -1e30, -1.0], "<f4").tobytes()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(every_rollout(logprobs=LOW), id="log-probability"),
        pytest.param(set_to(incarnation=7), id="incarnation"),
        pytest.param(longer, id="longer than the budget"),
        pytest.param(hotter, id="sampling"),
        pytest.param(set_to(dataset="another"), id="data set"),
        pytest.param(
            every_rollout(grading_status=pb.GRADING_STATUS_WRONG, reward=0.9),
            id="wrong with a reward",
        ),
        pytest.param(
            every_rollout(grading_status=pb.GRADING_STATUS_UNSPECIFIED, reward=0.9), id="ungraded"
        ),
        pytest.param(
            every_rollout(grading_status=pb.GRADING_STATUS_UNSPECIFIED, reward=0.0), id="not graded"
        ),
        pytest.param(set_to(generator="g" * (1 << 20)), id="long name"),
        pytest.param(set_to(prompt_id="p" * (1 << 20)), id="long prompt"),
        pytest.param(other_purpose, id="purpose"),
        pytest.param(every_rollout(logprobs=np.full(3, np.nan, "<f4").tobytes()), id="unreadable"),
    ],
)
def test_an_impossible_group_costs_its_task_one_of_three_failures(
    tmp_path: Path, server: Server, spoil: Spoil
) -> None:
    config = make_config(tmp_path, steps=4)
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(5))
    queue = SpoiltQueue(server.settings, answers, spoil)
    controller = make_controller(config, queue, answers, QuickLearners())
    try:
        assert run(controller, answers) is TrainerEnding.FINISHED
        assert counted(controller, "defective") + queue.unreadable() == 2 * (1 + MAX_FAILURES)
        outcomes = check_every_task_once(lines(config, "tasks.jsonl"))
        assert outcomes["dead"] == 1, "the task that nobody answered well, and no other"
        marks = lines(config, "tasks.jsonl")
        used = {
            task for mark in marks if mark["what"] in ("used", "filtered") for task in mark["tasks"]
        }
        always, once = queue.spoilt[Purpose.TRAIN]
        assert once in used, "it was asked again"
        assert always not in used
        first = EvaluationRecord(**lines(config, "evaluations.jsonl")[0])
        assert (
            first.asked_prompts,
            first.num_prompts,
            first.missing_prompts,
            first.given_up_prompts,
        ) == (3, 2, 1, 1)
        assert counted(controller, "dead") == 2
        lost = [
            item.value
            for item in page(
                controller, evaluation_metrics.EVAL_PROMPTS_LOST.name, reason="given_up"
            )
        ]
        assert lost == [1.0]
    finally:
        controller.close()


def page(controller: Controller, name: str, **labels: str) -> list[Any]:
    samples = parse_page(controller._reporter._exporter.render().decode())
    return [
        item
        for item in samples
        if item.name == name and labels.items() <= dict(item.labels).items()
    ]


def counted(controller: Controller, outcome: str) -> float:
    return sum(
        item.value for item in page(controller, trainer_metrics.GROUPS.name, outcome=outcome)
    )


def test_a_record_with_another_purpose_takes_no_prompt(tmp_path: Path, server: Server) -> None:
    """What the queue says of a task is not believed: an unreadable answer published as one of an
    evaluation.
    """
    config = make_config(tmp_path, steps=3)
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(6))

    def swap(message: Message) -> None:
        other_purpose(message)
        with server.client() as raw:
            for key in raw.keys("*inflight*"):
                for sequence, text in raw.hgetall(key).items():
                    if text.startswith(b"dead"):
                        state, attempt, purpose, *rest = text.split(b" ")
                        other = b"eval" if purpose == b"train" else b"train"
                        raw.hset(key, sequence, b" ".join([state, attempt, other, *rest]))

    queue = SpoiltQueue(server.settings, answers, swap)
    controller = make_controller(config, queue, answers, QuickLearners())
    try:
        assert run(controller, answers) is TrainerEnding.FINISHED
        assert check_every_task_once(lines(config, "tasks.jsonl"))["dead"] == 1
    finally:
        controller.close()


def test_groups_of_before_a_resume_are_compared_with_their_own_tasks(
    tmp_path: Path, server: Server
) -> None:
    """The second incarnation asks for shorter and cooler answers; those to the first's tasks are
    not defective.
    """
    config = make_config(tmp_path, steps=12)
    answers, learners = Answers(0.5, PolicyVersion(1, 0), random.Random(7)), QuickLearners()

    def never(claimed: Claimed) -> bool:
        return False

    queue = SpoiltQueue(server.settings, answers, hotter, never)
    queue.silent_from = 4
    first = make_controller(config, queue, answers, learners)
    assert run(first, answers, limit=5) is TrainerEnding.INTERRUPTED
    first.close()
    progress = Progress.from_json(learners.saved["1.5"])
    assert progress.ledger is not None
    kept = set(progress.ledger.outstanding)
    assert kept, "tasks of the first incarnation are under way"
    changed = {"temperature": 0.6, "max_completion_tokens": 6}
    config = config.model_copy(update={"recipe": config.recipe.model_copy(update=changed)})
    own: set[int] = set()

    def first_of_each(claimed: Claimed) -> bool:
        """One task of each incarnation, at its first attempt."""
        key = claimed.task.incarnation
        if claimed.task.purpose is Purpose.TRAIN and claimed.task.attempt == 0 and key not in own:
            own.add(key)
            return True
        return False

    queue = SpoiltQueue(server.settings, answers, hotter, first_of_each)
    second = make_controller(config, queue, answers, learners, progress=progress)
    try:
        assert run(second, answers) is TrainerEnding.FINISHED
        assert own == {1, 2}
        assert counted(second, "defective") == 2, (
            "the two that were sampled otherwise than their own task says"
        )
        marks = lines(config, "tasks.jsonl")
        used = {
            task for mark in marks if mark["what"] in ("used", "filtered") for task in mark["tasks"]
        }
        assert kept & used
    finally:
        second.close()

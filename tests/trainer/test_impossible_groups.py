"""Groups that no honest generator produces: every field of a group is compared with its task, or has bounds."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.config.services import Redis
from rollcast.generator.completion import Completion
from rollcast.rollouts.base import MAX_FAILURES, Claimed
from rollcast.rollouts.codec import decode_group, encode_group
from rollcast.rollouts.records import (
    GradingStatus,
    KvMark,
    LengthBudget,
    PromptTask,
    Purpose,
    Rollout,
    RolloutGroup,
    Sampling,
    StopReason,
    VersionSpan,
)
from rollcast.rollouts.redis_streams import RedisGeneratorQueue, RedisTrainerQueue
from rollcast.runfolder.records import EvaluationRecord
from rollcast.telemetry import names
from rollcast.telemetry.prometheus_reader import parse_page
from rollcast.trainer.control.controller import Controller
from rollcast.trainer.control.defects import DefectFinder
from rollcast.trainer.control.history import SurvivingHistory
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.ending import TrainerEnding
from rollcast.wire import rollout_pb2 as pb
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import VERSION, group_of, make_rollout, make_task
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
from testkit.trainer.states import make_state

LENGTH, BUDGET, VOCAB = 6, 12, 16
COPIED = {
    "incarnation", "purpose", "dataset", "prompt_id", "prompt_token_ids", "sampling", "length", "eval_step",
}  # fmt: skip
"""Fields of a group that a generator copies from its task."""
FREE = {"sequence", "attempt", "rollouts", "first_version", "generator", "started_at", "finished_at", "hand_backs"}
"""Fields that it says itself. By its sequence the task is found, so that it cannot differ."""


def a_task(**changes: Any) -> PromptTask:
    return make_task(3, sampling=Sampling(temperature=0.7), length=LengthBudget(BUDGET), **changes)


def an_answer(task: PromptTask) -> RolloutGroup:
    return group_of(task, [make_rollout(index, LENGTH) for index in range(task.num_rollouts)])


def found(task: PromptTask, group: RolloutGroup) -> str | None:
    state = make_state(history=SurvivingHistory((), VERSION.incarnation), published=VERSION)
    return DefectFinder(state, VOCAB, max_length=64).find(group, task)


def with_rollout(group: RolloutGroup, **changes: Any) -> RolloutGroup:
    return dataclasses.replace(group, rollouts=[group.rollouts[0], dataclasses.replace(group.rollouts[1], **changes)])


def test_every_field_of_a_group_is_either_copied_or_said() -> None:
    assert {field.name for field in dataclasses.fields(RolloutGroup)} == COPIED | FREE


def test_a_good_group_passes_as_it_is_and_as_it_travels() -> None:
    """0.7 is another number once it was a float32."""
    task = a_task()
    assert found(task, an_answer(task)) is None
    assert found(task, decode_group(encode_group(an_answer(task)))) is None


numbers = st.floats(0, 2, width=32)
counts = st.integers(0, 2**31 - 1)
tokens = st.lists(st.integers(0, VOCAB - 1), max_size=3).map(tuple)
OTHERS: dict[str, Any] = {
    "incarnation": st.integers(0, 2**32 - 1),
    "purpose": st.just(Purpose.EVAL),
    "dataset": st.text(max_size=9) | st.just("d" * (1 << 20)),
    "prompt_id": st.text(max_size=9) | st.just("p" * (1 << 20)),
    "prompt_token_ids": tokens.map(lambda ids: np.array(ids, np.int32)),
    "sampling": st.builds(Sampling, numbers, numbers, counts, counts) | st.just(Sampling(temperature=float("nan"))),
    "length": st.builds(LengthBudget, counts, counts, counts, counts, tokens, tokens, counts),
    "eval_step": st.integers(1, 2**32 - 1),
}


@given(st.data(), st.sampled_from(sorted(COPIED)))
@settings(deadline=None)
def test_no_copied_field_can_be_another(data: st.DataObject, name: str) -> None:
    task = a_task()
    value: Any = data.draw(OTHERS[name])
    same = np.array_equal(value, task.prompt_token_ids) if name == "prompt_token_ids" else value == getattr(task, name)
    told = found(task, dataclasses.replace(an_answer(task), **dict[str, Any]({name: value})))
    assert (told is None) is same
    assert len(told or "") < 1000


@given(st.sampled_from(list(GradingStatus)), st.floats(width=32) | st.sampled_from([0.0, 0.5, 1.0, -1.0]))
def test_a_reward_is_that_of_its_verdict(status: GradingStatus, reward: float) -> None:
    task = a_task()
    right, none = status is GradingStatus.OK, status is not GradingStatus.UNGRADED
    possible = (right and 0 < reward <= 1) or (not right and none and reward == 0)
    told = found(task, with_rollout(an_answer(task), grading_status=status, reward=reward))
    assert (told is None) == possible


@given(st.lists(st.floats(-103.25, 0.0, width=32), min_size=LENGTH, max_size=LENGTH), st.integers(0, LENGTH - 1))
def test_a_log_probability_is_one_of_float32(values: list[float], place: int) -> None:
    task, logprobs = a_task(), np.array(values, np.float32)
    assert found(task, with_rollout(an_answer(task), logprobs=logprobs)) is None
    for wrong in (-1e30, -3.4e38, -105.0, -np.inf, np.inf, np.nan, 2e-4, 1e30):
        spoilt = logprobs.copy()
        spoilt[place] = wrong
        assert "rollout 1 has a log-prob" in str(found(task, with_rollout(an_answer(task), logprobs=spoilt)))


@given(st.integers(0, 40), st.sampled_from([StopReason.END, StopReason.LENGTH]))
def test_a_rollout_has_at_most_its_budget_and_is_truncated_only_there(length: int, stop_reason: StopReason) -> None:
    task = a_task()
    group = an_answer(task)
    group.rollouts[1] = make_rollout(1, length, stop_reason=stop_reason, token_ids=np.zeros(length, np.int32))
    possible = length == BUDGET if stop_reason is StopReason.LENGTH else 1 <= length <= BUDGET
    assert (found(task, group) is None) == possible


def interrupted(phrase_at: int, answer: int, **changes: Any) -> Rollout:
    """Thinking, a phrase of two tokens, and an answer."""
    length = phrase_at + 2 + answer
    token_ids = np.full(length, 3, np.int32)
    token_ids[phrase_at : phrase_at + 2] = (9, 8)
    given: dict[str, Any] = {
        "token_ids": token_ids,
        "interrupted": True,
        "loss_masked": ((phrase_at, phrase_at + 2),),
    } | changes
    return make_rollout(1, length, **given)


@pytest.mark.parametrize(
    ("rollout", "told"),
    [
        (interrupted(3, 2), None),
        (interrupted(4, 3), None),
        (interrupted(4, 3, stop_reason=StopReason.LENGTH), None),
        (interrupted(2, 2), "loss-mask range"),
        (interrupted(5, 2), "loss-mask range"),
        (interrupted(3, 4), "4 tokens of answer, at most 3"),
        (interrupted(3, 2, stop_reason=StopReason.LENGTH), "truncated after 7 of 8"),
        (interrupted(3, 2, interrupted=False), "was not interrupted"),
        (interrupted(3, 2, loss_masked=()), "loss-mask range"),
        (interrupted(3, 2, loss_masked=((3, 5), (6, 7))), "loss-mask range"),
        (interrupted(3, 2, loss_masked=((3, 7),)), "loss-mask range"),
        (interrupted(3, 2, token_ids=np.zeros(7, np.int32)), "another phrase"),
    ],
)
def test_only_the_phrase_of_an_interrupted_rollout_carries_no_loss(rollout: Rollout, told: str | None) -> None:
    task = a_task()
    task.length = LengthBudget(BUDGET, 3, 4, 3, phrase=(9, 8))
    group = an_answer(task)
    group.rollouts[1] = rollout
    assert str(told) in str(found(task, group))
    if rollout.interrupted:
        task.length = group.length = LengthBudget(BUDGET)
        assert "its task interrupts none" in str(found(task, group))


@given(st.randoms(use_true_random=False), st.integers(3, 6), st.integers(0, 3), st.integers(1, 4), st.booleans())
@settings(deadline=None)
def test_what_the_generator_makes_of_a_task_passes(
    rng: random.Random, low: int, more: int, answer: int, has_marker: bool
) -> None:
    """The generator's own rules of legs, cut and budget, with an engine that samples at random."""
    phrase, marker = (9, 8), (7,) if has_marker else ()
    most = low + more + len(phrase) + answer + rng.randint(0, 3)
    task = a_task()
    task.length = LengthBudget(most, low, low + more, answer, phrase=phrase, end_of_thinking=marker, seed=5)
    group = an_answer(task)
    for index in range(task.num_rollouts):
        completion = Completion(task, index, lambda token_ids: " ".join(map(str, token_ids)))
        while completion.stop_reason is StopReason.RUNNING:
            leg = completion.next_leg()
            if leg is None:
                completion.stop_reason = StopReason.LENGTH
                break
            if leg.force_phrase:
                completion.force_phrase(VERSION)
            is_end = rng.random() < 0.3
            count = rng.randint(1, leg.max_tokens) if is_end else leg.max_tokens
            token_ids = [rng.randrange(VOCAB) for _ in range(count)]
            completion.append(token_ids, [-rng.random()] * count, [VersionSpan(VERSION, 0, count)])
            if is_end:
                completion.stop_reason = StopReason.END
        rollout = completion.rollout()
        group.rollouts[index] = dataclasses.replace(rollout, grading_status=GradingStatus.WRONG, partial=False)
    assert found(task, decode_group(encode_group(group))) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"first_version": PolicyVersion(1, 3)}, "names 1.3 as its oldest version"),
        ({"first_version": PolicyVersion(0, 3)}, "names the version 0.3"),
        ({"attempt": MAX_FAILURES}, "attempt 3"),
    ],
)
def test_what_a_group_says_itself_has_bounds(change: dict[str, Any], told: str) -> None:
    task = a_task()
    assert told in str(found(task, dataclasses.replace(an_answer(task), **change)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"grading_seconds": -1.0}, "graded for -1 s"),
        ({"grading_seconds": 1e30}, "graded for 1e+30 s"),
        ({"grading_seconds": float("nan")}, "graded for nan s"),
        ({"kv_marks": (KvMark(0, 1, VERSION),)}, "KV mark at 0"),
        ({"kv_marks": (KvMark(LENGTH, 1, VERSION),)}, "KV mark at 6"),
        ({"kv_marks": (KvMark(2, 99, VERSION),)}, "keeps 99"),
        ({"kv_marks": (KvMark(2, 1, PolicyVersion(1, 6)),)}, "version 1.6, which sampled none"),
    ],
)
def test_what_a_rollout_says_has_bounds(change: dict[str, Any], told: str) -> None:
    task = a_task()
    assert told in str(found(task, with_rollout(an_answer(task), **change)))


# Asked by several incarnations


def test_a_group_is_compared_with_the_task_of_its_own_incarnation() -> None:
    """The temperature, the budget, the data set's name and the prompt's template were changed before the resume."""
    ledger = Ledger()
    before = a_task(incarnation=1, dataset="old", prompt_token_ids=np.array([4, 4], np.int32))
    now = dataclasses.replace(make_task(3), incarnation=2, length=LengthBudget(99))
    ledger.outstanding[3] = now.prompt_id
    ledger.note_dispatch(before)
    ledger.note_dispatch(now)
    restored = Progress.from_json(json.loads(json.dumps(Progress(ledger=ledger).as_json()))).ledger
    assert restored == ledger
    assert restored is not None
    for asked in (before, now):
        answer = decode_group(encode_group(an_answer(asked)))
        assert found(restored.own_task(answer, now), answer) is None
    mixed = dataclasses.replace(an_answer(before), length=now.length)
    assert "length budget" in str(found(restored.own_task(mixed, now), mixed))
    mixed = dataclasses.replace(an_answer(before), prompt_token_ids=np.array([4, 5], np.int32))
    assert "other tokens" in str(found(restored.own_task(mixed, now), mixed))
    never = dataclasses.replace(an_answer(now), incarnation=3)
    assert "never dispatched this task" in str(found(restored.own_task(never, now), never))
    restored.settle(3)
    assert restored.asked == {}


# The whole trainer on a real Redis

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
        return await self._let_go_with("publish", claimed, group.first_version, message.SerializeToString())


class SpoiltQueue(RedisTrainerQueue):
    """Before each read a generator answers everything that waits."""

    def __init__(
        self, settings: Redis, answers: Answers, spoil: Spoil, is_spoilt: Callable[[Claimed], bool] | None = None
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
        pytest.param(every_rollout(grading_status=pb.GRADING_STATUS_WRONG, reward=0.9), id="wrong with a reward"),
        pytest.param(every_rollout(grading_status=pb.GRADING_STATUS_UNSPECIFIED, reward=0.9), id="ungraded"),
        pytest.param(every_rollout(grading_status=pb.GRADING_STATUS_UNSPECIFIED, reward=0.0), id="not graded"),
        pytest.param(set_to(generator="g" * (1 << 20)), id="long name"),
        pytest.param(set_to(prompt_id="p" * (1 << 20)), id="long prompt"),
        pytest.param(other_purpose, id="purpose"),
        pytest.param(every_rollout(logprobs=np.full(3, np.nan, "<f4").tobytes()), id="unreadable"),
    ],
)
def test_an_impossible_group_costs_its_task_one_of_three_failures(tmp_path: Path, server: Server, spoil: Spoil) -> None:
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
        used = {task for mark in marks if mark["what"] in ("used", "filtered") for task in mark["tasks"]}
        always, once = queue.spoilt[Purpose.TRAIN]
        assert once in used, "it was asked again"
        assert always not in used
        first = EvaluationRecord(**lines(config, "evaluations.jsonl")[0])
        assert (first.asked_prompts, first.num_prompts, first.missing_prompts, first.given_up_prompts) == (3, 2, 1, 1)
        assert counted(controller, "dead") == 2
        lost = [item.value for item in page(controller, names.EVAL_PROMPTS_LOST.name, reason="given_up")]
        assert lost == [1.0]
    finally:
        controller.close()


def page(controller: Controller, name: str, **labels: str) -> list[Any]:
    samples = parse_page(controller._reporter._exporter.render().decode())
    return [item for item in samples if item.name == name and labels.items() <= dict(item.labels).items()]


def counted(controller: Controller, outcome: str) -> float:
    return sum(item.value for item in page(controller, names.GROUPS.name, outcome=outcome))


def test_a_record_with_another_purpose_takes_no_prompt(tmp_path: Path, server: Server) -> None:
    """What the queue says of a task is not believed: an unreadable answer published as one of an evaluation."""
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


def test_groups_of_before_a_resume_are_compared_with_their_own_tasks(tmp_path: Path, server: Server) -> None:
    """The second incarnation asks for shorter and cooler answers; those to the first's tasks are not defective."""
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
        assert counted(second, "defective") == 2, "the two that were sampled otherwise than their own task says"
        marks = lines(config, "tasks.jsonl")
        used = {task for mark in marks if mark["what"] in ("used", "filtered") for task in mark["tasks"]}
        assert kept & used
    finally:
        second.close()

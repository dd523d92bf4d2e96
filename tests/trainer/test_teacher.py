"""A teacher behind an endpoint: its answers, its failures, how a group waits for it, and what is
trained on then.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from rollcast.config.distillation import Distillation, EndpointTeacher
from rollcast.config.errors import EXIT_FAILED, EXIT_USER_ERROR, UserError
from rollcast.config.recipe import Recipe
from rollcast.local.ports import free_port
from rollcast.recipe.distillation import MIN_TEACHER_LOGPROB
from rollcast.recipe.schedule import Wait, WaitReason
from rollcast.rollouts.records import GradingStatus, Rollout, RolloutGroup, StopReason
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.prometheus_reader import parse_page
from rollcast.trainer.control import teacher as teacher_module
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.control.pipeline import GroupPipeline
from rollcast.trainer.control.teacher import (
    ANSWER_BYTES,
    ANSWER_BYTES_PER_TOKEN,
    SILENT_GROUPS,
    TeacherClient,
    TeacherLogprobs,
)
from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.episodes import make_episode
from testkit.rollouts.examples import (
    make_answer_group,
    make_graded_rollout,
    make_rollout,
    make_task,
)
from tests.trainer.intake_desk import Desk
from tests.trainer.teacher_server import (
    Answer,
    Behaviour,
    completion,
    logprob,
    teacher_server,
    working,
)

COEFFICIENT = 0.4
WAIT_SECONDS = 60.0
MAX_TOKENS = 64


def endpoint(url: str, **changes: Any) -> EndpointTeacher:
    settings: dict[str, Any] = {
        "url": url,
        "model": "teacher",
        "devices": 1,
        "deadline_seconds": 30.0,
    }
    return EndpointTeacher(**settings | changes)


def distilling(*, with_reward: bool, **changes: Any) -> Recipe:
    settings = Distillation(
        teacher=endpoint("http://none"), coefficient=COEFFICIENT, with_reward=with_reward
    )
    return Recipe(distillation=settings, **changes)


def group(sequence: int = 3, rollouts: list[Rollout] | None = None) -> RolloutGroup:
    made = rollouts or [
        make_graded_rollout(0, 1.0, length=4),
        make_graded_rollout(1, 0.0, length=9),
    ]
    return make_answer_group(make_task(sequence), made)


@contextmanager
def client(behaviour: Behaviour, **changes: Any) -> Iterator[tuple[TeacherClient, Exporter]]:
    with teacher_server(behaviour) as url:
        exporter = Exporter("r")
        made = TeacherClient(endpoint(url, **changes), exporter, max_tokens=MAX_TOKENS)
        try:
            yield made, exporter
        finally:
            made.close()


def wait_for(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def answers_of(teacher: TeacherClient, asked: RolloutGroup) -> TeacherLogprobs:
    teacher.ask(asked)
    wait_for(teacher.answered_sequences)
    found = teacher.take(asked.sequence)
    assert found is not None
    return found


def counted(exporter: Exporter) -> dict[str, float]:
    samples = parse_page(exporter.render().decode())
    return {
        s.labels["outcome"]: s.value
        for s in samples
        if s.name == trainer_metrics.TEACHER_ROLLOUTS.name and s.value
    }


def expected(asked: RolloutGroup, index: int) -> list[float]:
    num_prompt = len(asked.prompt_token_ids)
    return [
        logprob(num_prompt + i, token)
        for i, token in enumerate(asked.rollouts[index].token_ids.tolist())
    ]


def test_each_token_gets_the_teachers_log_prob_at_its_place() -> None:
    asked = group()
    with client(working) as (teacher, exporter):
        found = answers_of(teacher, asked)
        assert teacher.answered_sequences() == []
    for index, answer in enumerate(found):
        assert answer is not None
        (logprobs,) = answer
        assert logprobs.tolist() == pytest.approx(expected(asked, index), rel=1e-6)
    assert counted(exporter) == {"answered": 2.0}


def test_each_sequence_of_an_episode_is_asked_about_with_its_own_prompt() -> None:
    made = make_episode(np.random.default_rng(0), turns=(2, 1, 1))
    asked = make_answer_group(make_task(3, num_rollouts=1), [made])
    with client(working) as (teacher, exporter):
        (answer,) = answers_of(teacher, asked)
    assert answer is not None
    for sequence, logprobs in zip(made.sequences, answer, strict=True):
        num_prompt = len(made.sequence_prompt(sequence, asked.prompt_token_ids))
        wanted = [
            logprob(num_prompt + i, token) for i, token in enumerate(sequence.token_ids.tolist())
        ]
        assert logprobs.tolist() == pytest.approx(wanted, rel=1e-6)
    assert counted(exporter) == {"answered": 1.0}


def changed_completion(**changes: Any) -> Behaviour:
    """A teacher whose answer has something wrong in it."""

    def behaviour(path: str, body: dict[str, Any]) -> Answer:
        answer = completion(body, value=changes.get("value", logprob))
        rows = answer["choices"][0]["prompt_logprobs"]
        answer["choices"][0]["prompt_logprobs"] = changes.get("rows", lambda found: found)(rows)
        return 200, json.dumps(answer).encode()

    return behaviour


def answers_less(rows: list[Any]) -> list[Any]:
    return rows[:-1]


def answers_of_other_tokens(rows: list[Any]) -> list[Any]:
    return [None, *({"999": next(iter(row.values()))} for row in rows[1:])]


TOO_MUCH = ANSWER_BYTES + ANSWER_BYTES_PER_TOKEN * MAX_TOKENS
NONSENSE: dict[str, Behaviour] = {
    "10 MB": lambda *_: (200, b" " * 10_000_000),
    "one byte too many": lambda *_: (200, b" " * (TOO_MUCH + 1)),
    "no JSON": lambda *_: (200, b"<html>"),
    "no log-probs": changed_completion(rows=lambda _: None),
    "wrong number of tokens": changed_completion(rows=answers_less),
    "other tokens": changed_completion(rows=answers_of_other_tokens),
    "not a number": changed_completion(value=lambda *_: float("nan")),
    "a probability above 1": changed_completion(value=lambda *_: 0.5),
    "a text": changed_completion(value=lambda *_: "much"),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_counted_and_not_taken(name: str) -> None:
    with client(NONSENSE[name]) as (teacher, exporter):
        assert answers_of(teacher, group()) == (None, None)
    assert counted(exporter) == {"unreadable": 2.0}


def test_a_teacher_that_refuses_a_while_is_asked_again() -> None:
    refused: list[str] = []

    def behaviour(path: str, body: dict[str, Any]) -> Answer:
        if len(refused) < 3:
            refused.append(path)
            return 503, b""
        return working(path, body)

    with client(behaviour) as (teacher, exporter):
        assert all(one is not None for one in answers_of(teacher, group()))
    assert counted(exporter) == {"answered": 2.0}


def test_a_group_waits_for_one_deadline_whatever_others_do() -> None:
    """One request at a time, and the first hangs: the time that the second one waits for its turn
    counts too.
    """
    release = threading.Event()

    def behaviour(path: str, body: dict[str, Any]) -> Answer:
        if len(body["prompt"]) == 3 + 4:
            release.wait(WAIT_SECONDS)
        return working(path, body)

    with client(behaviour, requests=1, deadline_seconds=1.0) as (teacher, exporter):
        assert answers_of(teacher, group()) == (None, None)
        release.set()
    assert counted(exporter) == {"timeout": 2.0}


def test_a_teacher_that_refuses_for_a_name_is_asked_until_the_deadline() -> None:
    """Its owner may correct the token, or load the model, while it is asked."""
    refusals = [401, 403, 404, 422]

    def behaviour(path: str, body: dict[str, Any]) -> Answer:
        return (refusals.pop(), b"") if refusals else working(path, body)

    with client(behaviour) as (teacher, exporter):
        assert all(one is not None for one in answers_of(teacher, group()))
    assert counted(exporter) == {"answered": 2.0}


def last_word(behaviour: Behaviour, **changes: Any) -> tuple[UserError, str]:
    """The error after groups without any answer, and the address."""
    with client(behaviour, **changes) as (teacher, _):
        for sequence in range(SILENT_GROUPS - 1):
            teacher.ask(group(sequence))
        wait_for(lambda: len(teacher.answered_sequences()) == SILENT_GROUPS - 1)
        teacher.ask(group(SILENT_GROUPS))
        with pytest.raises(UserError) as caught:
            wait_for(lambda: len(teacher.answered_sequences()) == SILENT_GROUPS)
    return caught.value, teacher._settings.url


def test_a_teacher_that_answers_no_group_ends_the_run_with_its_reason() -> None:
    error, url = last_word(lambda *_: (401, b""), deadline_seconds=0.5, requests=1)
    assert error.exit_code == EXIT_USER_ERROR
    assert str(error) == (
        f"recipe.distillation.teacher.url = {url}: 8 groups in a row got no answer, without which "
        f"nothing can be trained on ({url} gave no answer within 0.5 s; the last try: {url} "
        "answers with status 401); correct the server, or recipe.distillation.teacher in the run "
        "file"
    )


@pytest.mark.parametrize(
    ("status", "changes", "code"),
    [
        (400, {}, EXIT_USER_ERROR),
        (200, {}, EXIT_USER_ERROR),
        (503, {"deadline_seconds": 0.3}, EXIT_FAILED),
    ],
)
def test_only_an_outage_lets_a_supervisor_try_again(
    status: int, changes: dict[str, Any], code: int
) -> None:
    error, _ = last_word(lambda *_: (status, b"<html>"), **changes)
    assert error.exit_code == code


def test_one_answer_is_enough_to_go_on() -> None:
    def behaviour(path: str, body: dict[str, Any]) -> Answer:
        sequence = body["prompt"][2]
        return working(path, body) if sequence == SILENT_GROUPS - 1 else (400, b"")

    with client(behaviour) as (teacher, _):
        found = [answers_of(teacher, group(sequence)) for sequence in range(2 * SILENT_GROUPS - 1)]
    assert [any(one is not None for one in answers) for answers in found].count(True) == 1


def test_every_outcome_is_counted_from_zero() -> None:
    with client(working) as (_, exporter):
        samples = parse_page(exporter.render().decode())
        found = {
            s.labels["outcome"] for s in samples if s.name == trainer_metrics.TEACHER_ROLLOUTS.name
        }
    assert found == {"answered", "unreachable", "refused", "unreadable", "timeout"}


def test_connections_that_cannot_be_closed_do_not_stop_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never() -> None:
        await asyncio.sleep(WAIT_SECONDS)

    with teacher_server(working) as url:
        teacher = TeacherClient(endpoint(url), Exporter("r"), max_tokens=MAX_TOKENS)
        monkeypatch.setattr(teacher_module, "STOP_SECONDS", 2.0)
        monkeypatch.setattr(teacher._asking, "close", never)
        teacher.close()
    assert not teacher._thread.is_alive()


@pytest.mark.parametrize(
    ("wait", "reason"),
    [
        (Wait(WaitReason.STRAGGLER, (1,)), WaitReason.TEACHER),
        (Wait(WaitReason.STRAGGLER, (1, 2)), WaitReason.STRAGGLER),
        (Wait(WaitReason.BATCH), WaitReason.TEACHER),
        (Wait(WaitReason.WEIGHTS), WaitReason.WEIGHTS),
    ],
)
def test_a_wait_for_the_teacher_alone_has_a_name_of_its_own(wait: Wait, reason: WaitReason) -> None:
    """Group 0 is ready, group 1 at the teacher, group 2 with a generator."""
    desk = Desk()
    place: Any = object()
    desk.intake.ready[0] = place
    desk.intake._at_teacher[1] = place
    assert pipeline_of(desk, prompts_per_step=2).reason(wait) is reason
    assert pipeline_of(desk, prompts_per_step=3).reason(Wait(WaitReason.BATCH)) is WaitReason.BATCH


def pipeline_of(desk: Desk, prompts_per_step: int) -> GroupPipeline:
    no: Any = None
    return GroupPipeline(
        no, no, no, no, desk.intake, no, no, Recipe(prompts_per_step=prompts_per_step), 1 << 20, no
    )


def test_a_teacher_that_is_not_there_is_counted_after_the_deadline() -> None:
    exporter = Exporter("r")
    settings = endpoint(f"http://127.0.0.1:{free_port('127.0.0.1')}/v1", deadline_seconds=0.5)
    teacher = TeacherClient(settings, exporter, max_tokens=MAX_TOKENS)
    try:
        assert answers_of(teacher, group()) == (None, None)
    finally:
        teacher.close()
    assert counted(exporter) == {"timeout": 2.0}


async def test_a_group_is_ready_only_once_the_teacher_has_answered() -> None:
    release = threading.Event()

    def behaviour(path: str, body: dict[str, Any]) -> Answer:
        release.wait(WAIT_SECONDS)
        return working(path, body)

    with client(behaviour) as (teacher, _):
        desk = Desk()
        desk.intake.teacher = teacher
        desk.dispatch("a", "b")
        await desk.answer(PolicyVersion(2, 6))
        desk.turn()
        desk.turn()
        assert [desk.intake.is_at_teacher(one) for one in (0, 1, 2)] == [True, True, False]
        assert [one.ready for one in desk.intake.groups()] == [False, False]
        assert desk.outcomes == {}, "a group at the teacher is not missing"
        desk.intake.give_up([1])
        release.set()
        wait_for(teacher.answered_sequences)
        desk.turn()
        assert [(one.sequence, one.ready) for one in desk.intake.groups()] == [(0, True)]
        desk.intake.take([0])
        answers = desk.intake.teacher_logprobs([0])
        assert answers is not None
        assert [len(one[0]) for one in answers[0] if one is not None] == [4, 4]
        assert teacher.answered_sequences() == []


async def test_a_group_of_which_nothing_can_be_trained_on_is_not_sent_to_the_teacher() -> None:
    asked = []

    def behaviour(path: str, body: dict[str, Any]) -> Answer:
        asked.append(path)
        return working(path, body)

    with client(behaviour) as (teacher, _):
        teacher.is_wanted = lambda _: False
        desk = Desk()
        desk.intake.teacher = teacher
        desk.dispatch("a")
        await desk.answer(PolicyVersion(2, 6))
        desk.turn()
        assert list(desk.intake.ready) == [0]
        assert desk.intake.teacher_logprobs([0]) == {}
    assert asked == []


def slow_advantage(
    sequence: TrainingSequence, position: int, teacher: float, verifier: float
) -> float:
    student = float(sequence.generator_logprobs[position])
    return verifier - COEFFICIENT * (student - teacher)


@pytest.mark.parametrize("with_reward", [False, True])
def test_advantages_equal_a_slow_loop(with_reward: bool) -> None:
    rng = np.random.default_rng(5)
    groups = []
    answers: dict[int, list[Any]] = {}
    for sequence in range(3):
        rollouts = [
            make_graded_rollout(i, float(rng.random() < 0.5), length=int(rng.integers(2, 12)))
            for i in range(6)
        ]
        groups.append(group(sequence, rollouts))
        answers[sequence] = [
            (rng.uniform(-5, 0, len(one.token_ids)).astype(np.float32),) for one in rollouts
        ]
    answers[1][2] = None
    groups[1].rollouts[3].loss_masked = ((0, 1),)
    answers[2][0][0][0] = -9999.0
    recipe = distilling(
        with_reward=with_reward, advantage_normalisation="none", zero_variance_filter=False
    )
    batch = assemble(groups, recipe, answers)
    rest = iter(batch.sequences)
    distances = []
    for sequence, one in enumerate(groups):
        kept = [i for i in range(6) if answers[sequence][i] is not None]
        mean = sum(one.rollouts[i].reward for i in kept) / len(kept)
        for i in kept:
            found = next(rest)
            verifier = one.rollouts[i].reward - mean if with_reward else 0.0
            for position in range(len(found.token_ids)):
                teacher = max(float(answers[sequence][i][0][position]), MIN_TEACHER_LOGPROB)
                assert found.token_advantages is not None
                wanted = slow_advantage(found, position, teacher, verifier)
                assert found.token_advantages[position] == pytest.approx(wanted, rel=1e-6, abs=1e-6)
                if found.loss_mask[position]:
                    distances.append(float(found.generator_logprobs[position]) - teacher)
    assert next(rest, None) is None
    assert batch.teacher_kl == pytest.approx(np.mean(distances), rel=1e-6)


def test_a_rollout_without_an_answer_is_left_out_and_never_trained_as_zero() -> None:
    asked = group()
    answers = {3: (None, (np.zeros(9, np.float32),))}
    batch = assemble([asked], distilling(with_reward=False), answers)
    assert [len(one.token_ids) for one in batch.sequences] == [9]
    assert assemble([asked], distilling(with_reward=False), {}).sequences == []
    assert assemble([asked], distilling(with_reward=False), {}).teacher_kl is None


def test_a_teacher_alone_needs_neither_verdicts_nor_different_rewards() -> None:
    rollouts = [
        make_graded_rollout(0, 1.0),
        make_rollout(1, 3, reward=0.0, grading_status=GradingStatus.ERROR),
        make_graded_rollout(2, 1.0),
    ]
    rollouts.append(make_rollout(3, 3, stop_reason=StopReason.LENGTH))
    asked = group(0, rollouts)
    alone = assemble([asked], distilling(with_reward=False))
    assert len(alone.sequences) == 3, "all but the truncated one"
    assert {one.advantage for one in alone.sequences} == {0.0}
    assert assemble([asked], distilling(with_reward=True)).sequences == []
    kept = assemble([asked], distilling(with_reward=True, zero_variance_filter=False)).sequences
    assert len(kept) == 2, "with rewards a missing verdict counts again"


def test_without_a_teacher_sequences_have_no_token_advantages() -> None:
    batch = assemble([group()], Recipe())
    assert {one.token_advantages is None for one in batch.sequences} == {True}
    assert batch.teacher_kl is None

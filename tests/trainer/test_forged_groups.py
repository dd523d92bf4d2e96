"""Groups whose counts and ends cannot be: a generator that sends them is broken, or is none."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rollcast.rollouts.records import (
    EpisodeEnd,
    KvMark,
    PromptTask,
    Purpose,
    RolloutGroup,
    Sampling,
    VersionSpan,
)
from rollcast.tasks.tokens import end_token_ids
from rollcast.trainer.control.defects import MIN_CERTAIN_TOKENS, DefectFinder
from rollcast.trainer.control.state import SurvivingHistory
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.episodes import EPISODE_TASK, make_episode
from testkit.rollouts.examples import VERSION, make_answer_group, make_rollout, make_task
from testkit.trainer.states import make_state

VOCAB = 512
MAX_LENGTH = 400
LENGTH = 200
END = frozenset({LENGTH - 1})
"""The last token of the rollouts that `make_rollout` makes."""
NEWEST = PolicyVersion(VERSION.incarnation, VERSION.step + 1)


def answered() -> tuple[PromptTask, RolloutGroup]:
    task = make_task(3)
    task.length = dataclasses.replace(task.length, max_tokens=300)
    return task, make_answer_group(task, [make_rollout(index, LENGTH) for index in range(2)])


def played() -> tuple[PromptTask, RolloutGroup]:
    task = make_task(3, episode=EPISODE_TASK)
    rng = np.random.default_rng(1)
    return task, make_answer_group(
        task, [make_episode(rng, index, turns=(3, 2), vocab=VOCAB) for index in range(2)]
    )


def found(task: PromptTask, group: RolloutGroup) -> str | None:
    state = make_state(history=SurvivingHistory((), VERSION.incarnation), published=NEWEST)
    return DefectFinder(state, VOCAB, MAX_LENGTH, end_token_ids=END).find(group, task)


def set_rollout(**changes: Any) -> Callable[[RolloutGroup], None]:
    def change(group: RolloutGroup) -> None:
        group.rollouts[1] = dataclasses.replace(group.rollouts[1], **changes)

    return change


def set_group(**changes: Any) -> Callable[[RolloutGroup], None]:
    def change(group: RolloutGroup) -> None:
        for name, value in changes.items():
            setattr(group, name, value)

    return change


def set_episode(**changes: Any) -> Callable[[RolloutGroup], None]:
    def change(group: RolloutGroup) -> None:
        episode = group.rollouts[1].episode
        assert episode is not None
        group.rollouts[1].episode = dataclasses.replace(episode, **changes)

    return change


def set_turn(**changes: Any) -> Callable[[RolloutGroup], None]:
    def change(group: RolloutGroup) -> None:
        episode = group.rollouts[1].episode
        assert episode is not None
        group.rollouts[1].episode = dataclasses.replace(
            episode, turns=(dataclasses.replace(episode.turns[0], **changes), *episode.turns[1:])
        )

    return change


def be_certain(group: RolloutGroup) -> None:
    for rollout in group.rollouts:
        rollout.logprobs = np.zeros_like(rollout.logprobs)


ONE_ANSWER: dict[str, tuple[Callable[[RolloutGroup], None], str]] = {
    "begun in the far future": (
        set_group(started_at=1e12, finished_at=1e12 + 1),
        "far in the future",
    ),
    "begun next week": (
        lambda group: set_group(started_at=time.time() + 6e5, finished_at=time.time() + 6e5)(group),
        "future",
    ),
    "handed back 2^31 times": (set_group(hand_backs=1 << 31), "handed back"),
    "handed back a hundred thousand times": (set_group(hand_backs=100_000), "handed back"),
    "preempted 2^31 times": (set_rollout(preemptions=1 << 31), "was preempted"),
    "preempted ten thousand times": (set_rollout(preemptions=10_000), "was preempted"),
    "a thousand KV marks": (
        set_rollout(kv_marks=(KvMark(3, 2, VERSION),) * 1_000),
        "1000 KV marks in 200 tokens",
    ),
    "certain of each token": (be_certain, "log-probability 0"),
    "ended without an end": (
        set_rollout(token_ids=np.full(LENGTH, 7, np.int32)),
        "which ends no text",
    ),
    "ended before its end": (
        set_rollout(
            token_ids=np.arange(50, dtype=np.int32),
            logprobs=np.full(50, -1.0, np.float32),
            version_spans=(VersionSpan(VERSION, 0, 50),),
        ),
        "with the token 49",
    ),
}
EPISODES: dict[str, tuple[Callable[[RolloutGroup], None], str]] = {
    "no turn": (set_episode(turns=()), "has no turn"),
    "no turn and done": (set_episode(turns=(), end=EpisodeEnd.DONE), "has no turn"),
    "restarted 2^31 times": (set_episode(restarts=1 << 31), "began again 2147483648 times"),
    "restarted eleven times": (set_episode(restarts=11), "began again 11 times"),
    "a turn that is worth a million": (set_turn(reward=1e6), "reward of 1e+06 for turn 0"),
    "a turn that costs a million": (set_turn(reward=-1e6), "reward of -1e+06 for turn 0"),
    "a turn without a reward": (set_turn(reward=float("nan")), "reward of nan for turn 0"),
    "a turn of 2^31 calls": (set_turn(tool_calls=1 << 31), "calls in turn 0"),
    "more malformed calls than calls": (
        set_turn(tool_calls=1, malformed_calls=2),
        "2 malformed of 1 calls",
    ),
    "an environment that took ages": (set_episode(environment_seconds=1e30), "took 1e+30 s"),
    "sampling that took ages": (set_episode(sampling_seconds=1e7), "took 1e+07 s"),
    "a turn that took ages": (set_turn(environment_seconds=1e30), "took 1e+30 s"),
    "an episode that began in the future": (set_group(started_at=1e15, finished_at=1e15), "future"),
    "an episode that was preempted": (set_rollout(preemptions=1 << 31), "was preempted"),
}


@pytest.mark.parametrize("what", ONE_ANSWER)
def test_a_forged_answer_has_a_defect(what: str) -> None:
    task, group = answered()
    assert found(task, group) is None
    change, sentence = ONE_ANSWER[what]
    change(group)
    assert sentence in str(found(task, group))


@pytest.mark.parametrize("what", EPISODES)
def test_a_forged_episode_has_a_defect(what: str) -> None:
    task, group = played()
    assert found(task, group) is None
    change, sentence = EPISODES[what]
    change(group)
    assert sentence in str(found(task, group))


RIGHT: dict[str, Callable[[RolloutGroup], None]] = {
    "a clock that goes ahead": lambda group: set_group(
        started_at=time.time() + 3_600, finished_at=time.time()
    )(group),
    "many hand-backs": set_group(hand_backs=100),
    "many preemptions": set_rollout(preemptions=900),
    "a mark at each token": set_rollout(
        kv_marks=tuple(KvMark(n, 2, VERSION) for n in range(1, LENGTH))
    ),
    "marks at one token": set_rollout(kv_marks=(KvMark(3, 2, VERSION), KvMark(3, 1, VERSION))),
    "certain of one rollout": set_rollout(logprobs=np.zeros(LENGTH, np.float32)),
}


@pytest.mark.parametrize("what", RIGHT)
def test_what_may_happen_is_no_defect(what: str) -> None:
    task, group = answered()
    RIGHT[what](group)
    assert found(task, group) is None


def test_certainty_is_right_where_it_is_asked_for_or_little() -> None:
    task, group = answered()
    be_certain(group)
    assert found(task, group)
    for sampling in (
        Sampling(top_k=1),
        Sampling(top_p=1e-6),
        Sampling(top_p=0.9),
        Sampling(temperature=0.01),
    ):
        sharp = (
            dataclasses.replace(task, sampling=sampling),
            dataclasses.replace(group, sampling=sampling),
        )
        assert found(*sharp) is None
    measured = (
        dataclasses.replace(task, purpose=Purpose.EVAL),
        dataclasses.replace(group, purpose=Purpose.EVAL),
    )
    assert found(*measured) is None
    few = MIN_CERTAIN_TOKENS // 2 - 1
    rollouts = [make_rollout(index, few, logprobs=np.zeros(few, np.float32)) for index in range(2)]
    state = make_state(history=SurvivingHistory((), VERSION.incarnation), published=NEWEST)
    assert (
        DefectFinder(state, VOCAB, MAX_LENGTH).find(make_answer_group(task, rollouts), task) is None
    )


def test_the_ends_of_a_text_are_those_of_tokenizer_and_model(tmp_path: Any) -> None:
    from transformers import AutoTokenizer, GenerationConfig

    from rollcast.config.model import Model
    from testkit.chat_tokenizers import make_tiny_chat_model

    make_tiny_chat_model(tmp_path, "qwen3")
    model = Model(path=str(tmp_path))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    ends = end_token_ids(model, tokenizer)
    assert tokenizer.eos_token_id in ends
    GenerationConfig(eos_token_id=[1, 2]).save_pretrained(tmp_path)
    assert end_token_ids(model, tokenizer) >= {1, 2, tokenizer.eos_token_id}
    (tmp_path / "config.json").write_text("{")
    assert end_token_ids(model, tokenizer) == frozenset()

"""A group is held against the task that it answers, and its numbers against what can be."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from rollcast.rollouts.base import Claimed
from rollcast.rollouts.records import PromptTask, Purpose, RolloutGroup, VersionSpan
from rollcast.trainer.control.defects import DefectFinder
from rollcast.trainer.control.state import SurvivingHistory
from rollcast.trainer.learner.batch import RouterShape
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import VERSION, make_group, make_task
from testkit.trainer.states import make_state

LENGTH, VOCAB = 5, 16


def answered() -> tuple[PromptTask, RolloutGroup]:
    task = make_task(3)
    return task, make_group(Claimed(task, "1-0", VERSION), "g", length=LENGTH)


def found(task: PromptTask, group: RolloutGroup) -> str | None:
    state = make_state(history=SurvivingHistory((), VERSION.incarnation), published=VERSION)
    return DefectFinder(state, VOCAB, max_length=32).find(group, task)


def test_a_good_group_has_none() -> None:
    task, group = answered()
    assert found(task, group) is None
    group.rollouts[0].logprobs[0] = 5e-5
    group.rollouts[1].reward = 0.1
    assert found(task, group) is None
    for seconds in (
        -3600.0,
        2 * 86_400.0,
    ):  # a clock that was set back; a weekend without a trainer
        assert (
            found(task, dataclasses.replace(group, started_at=1e9, finished_at=1e9 + seconds))
            is None
        )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"prompt_id": "prompt-4"}, "answers the prompt 'prompt-4'"),
        ({"prompt_id": "never heard of"}, "answers the prompt"),
        ({"purpose": Purpose.EVAL}, "of purpose eval"),
        ({"prompt_token_ids": np.array([1, 2, 4], np.int32)}, "other tokens"),
        ({"prompt_token_ids": np.array([1, 2], np.int32)}, "other tokens"),
        ({"prompt_token_ids": np.zeros(0, np.int32)}, "prompt is empty"),
        ({"rollouts": []}, "holds 0 rollouts; the task asked for 2"),
        ({"first_version": PolicyVersion(1, 8)}, "the newest published is 1.7"),
        ({"first_version": PolicyVersion(2, 0)}, "the newest published is 1.7"),
        ({"started_at": -1e308, "finished_at": 1e308}, "took inf s"),
        ({"started_at": 0.0, "finished_at": 1e9}, "took 1e+09 s"),
        ({"started_at": 1e9, "finished_at": 0.0}, "took -1e+09 s"),
    ],
)
def test_defects_of_a_group_are_named(change: dict[str, Any], told: str) -> None:
    task, group = answered()
    assert told in str(found(task, dataclasses.replace(group, **change)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"reward": 1e300}, "reward of 1e+300"),
        ({"reward": -0.1}, "not in [0, 1]"),
        ({"reward": float("nan")}, "reward of nan"),
        ({"logprobs": np.full(LENGTH, 80.0, np.float32)}, "log-probability of 80"),
        ({"logprobs": np.full(LENGTH, 2e-4, np.float32)}, "above 0"),
        ({"logprobs": np.full(LENGTH, np.nan, np.float32)}, "not finite"),
        ({"logprobs": np.full(LENGTH, -np.inf, np.float32)}, "not finite"),
        ({"logprobs": np.zeros(LENGTH + 1, np.float32)}, "5 tokens and 6 log-probabilities"),
        ({"version_spans": (VersionSpan(PolicyVersion(1, 8), 0, LENGTH),)}, "version 1.8"),
        ({"version_spans": (VersionSpan(PolicyVersion(2, 0), 0, LENGTH),)}, "version 2.0"),
        ({"loss_masked": ((0, LENGTH + 1),)}, "loss-mask"),
        ({"token_ids": np.full(LENGTH, VOCAB, np.int32)}, "outside the vocabulary"),
        ({"token_ids": np.full(LENGTH, -1, np.int32)}, "outside the vocabulary"),
        ({"token_ids": np.zeros(30, np.int32), "logprobs": np.zeros(30, np.float32)}, "at most 29"),
    ],
)
def test_defects_of_a_rollout_are_named(change: dict[str, Any], told: str) -> None:
    task, group = answered()
    group.rollouts[1] = dataclasses.replace(group.rollouts[1], **change)
    assert told in str(found(task, group))


def test_a_thousand_rollouts_are_not_what_was_asked_for() -> None:
    task, group = answered()
    group.rollouts = [dataclasses.replace(group.rollouts[0], index=index) for index in range(1000)]
    assert "holds 1000 rollouts; the task asked for 2" in str(found(task, group))


@pytest.mark.parametrize(
    ("experts", "told"),
    [
        (None, "rollout 1 does not say which experts it used, and recipe.router_replay is true"),
        (np.zeros((7, 2, 2), np.uint8), "2 experts in each of 2 layers, the model 2 in 3"),
        (np.zeros((7, 3, 1), np.uint8), "1 experts in each of 3 layers, the model 2 in 3"),
        (np.full((7, 3, 2), 8, np.uint8), "sent to expert 8, and a layer has 8"),
    ],
)
def test_experts_that_cannot_be_replayed_are_named(experts: Any, told: str) -> None:
    task, group = answered()
    finder = DefectFinder(make_state(published=VERSION), VOCAB, 32, RouterShape(3, 8, 2))
    for rollout in group.rollouts:
        rollout.routed_experts = np.full((7, 3, 2), 7, np.uint8)
    assert finder.find(group, task) is None
    group.rollouts[1].routed_experts = experts
    assert told in str(finder.find(group, task))
    task, group = (
        dataclasses.replace(task, purpose=Purpose.EVAL),
        dataclasses.replace(group, purpose=Purpose.EVAL),
    )
    assert finder.find(group, task) is None, "nothing is trained on an evaluation"

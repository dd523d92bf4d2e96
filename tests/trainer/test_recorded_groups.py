"""What real generators answered, hand-overs and restarts included, no check refuses; and each check
bites.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rollcast.rollouts.codec import decode_group, decode_task, encode_group, encode_task
from rollcast.rollouts.records import Purpose, Rollout, RolloutGroup
from rollcast.rollouts.redis_streams import told_by
from rollcast.trainer.control.defects import DefectFinder
from rollcast.trainer.control.state import SurvivingHistory
from rollcast.wire.version import PolicyVersion
from testkit.system.recorder import RecordedGroup
from testkit.trainer.states import make_state
from tests.system.recording import read

VOCAB, MAX_LENGTH = 32, 96
HISTORY = SurvivingHistory(((1, 371),), 2)
"""Of the recorded run after the trainer was killed: the oldest version of its second incarnation is
2.371."""


@pytest.fixture(scope="module")
def recorded() -> list[RecordedGroup]:
    return read(Path(__file__).parent / "recorded_groups.xz")


def found(item: RecordedGroup, group: RolloutGroup) -> str | None:
    history = HISTORY if item.newest.incarnation == 2 else SurvivingHistory((), 1)
    state = make_state(history=history, published=item.newest)
    return DefectFinder(state, VOCAB, MAX_LENGTH).find(group, decode_task(item.task))


def test_a_thousand_recorded_groups_are_all_taken(recorded: list[RecordedGroup]) -> None:
    assert len(recorded) >= 1000
    groups = [decode_group(item.group) for item in recorded]
    purposes = Counter(group.purpose for group in groups)
    assert min(purposes.values()) > 100, purposes
    assert sum(group.hand_backs > 0 for group in groups) > 5, "handed over"
    assert sum(group.attempt > 0 for group in groups) > 5, (
        "asked again after a generator was killed"
    )
    assert {group.incarnation for group in groups} == {1, 2}, "the trainer was killed"
    assert sum(len(group.versions) > 1 for group in groups) > 50, "sampled by several versions"
    assert [found(item, group) for item, group in zip(recorded, groups, strict=True)] == [
        None
    ] * len(groups)
    for item, group in zip(recorded, groups, strict=True):
        told = {name.decode(): value for name, value in told_by(group).items()}
        assert told.items() <= item.fields.items()


def test_what_is_read_and_written_again_has_the_bytes_that_were_recorded(
    recorded: list[RecordedGroup],
) -> None:
    """Older generators and trainers wrote them: the format on the wire is what it was."""
    assert [encode_group(decode_group(item.group)) for item in recorded] == [
        item.group for item in recorded
    ]
    assert [encode_task(decode_task(item.task)) for item in recorded] == [
        item.task for item in recorded
    ]


def of_each_rollout(change: Callable[[Rollout], Rollout]) -> Callable[[RolloutGroup], RolloutGroup]:
    return lambda group: dataclasses.replace(
        group, rollouts=[change(rollout) for rollout in group.rollouts]
    )


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda group: dataclasses.replace(group, prompt_id="another"), id="prompt"),
        pytest.param(
            lambda group: dataclasses.replace(group, prompt_token_ids=group.prompt_token_ids[1:]),
            id="tokens",
        ),
        pytest.param(
            lambda group: dataclasses.replace(group, rollouts=group.rollouts[1:]), id="fewer"
        ),
        pytest.param(
            lambda group: dataclasses.replace(group, rollouts=group.rollouts * 500), id="more"
        ),
        pytest.param(
            lambda group: dataclasses.replace(group, first_version=PolicyVersion(9, 0)), id="future"
        ),
        pytest.param(
            lambda group: dataclasses.replace(group, first_version=PolicyVersion(2, 0)),
            id="never was",
        ),
        pytest.param(
            lambda group: dataclasses.replace(
                group, purpose=Purpose.EVAL if group.purpose is Purpose.TRAIN else Purpose.TRAIN
            ),
            id="purpose",
        ),
        pytest.param(
            of_each_rollout(lambda r: dataclasses.replace(r, reward=r.reward + 1.01)), id="reward"
        ),
        pytest.param(
            of_each_rollout(
                lambda r: dataclasses.replace(r, logprobs=np.abs(r.logprobs) + np.float32(2e-4))
            ),
            id="log-probabilities",
        ),
        pytest.param(
            of_each_rollout(lambda r: dataclasses.replace(r, token_ids=r.token_ids + VOCAB)),
            id="vocabulary",
        ),
    ],
)
def test_each_check_refuses_every_one_of_them_when_spoilt(
    recorded: list[RecordedGroup], spoil: Callable[[RolloutGroup], RolloutGroup]
) -> None:
    taken = [item for item in recorded if found(item, spoil(decode_group(item.group))) is None]
    assert taken == []

"""Episodes on the wire: they come back as they were sent, cost nothing to others, and hostile ones
are refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from rollcast.rollouts.codec import decode_group, decode_task, encode_group, encode_task
from rollcast.rollouts.errors import CodecError
from rollcast.rollouts.records import Episode, EpisodeEnd, Rollout, RolloutGroup, StopReason, Turn
from rollcast.wire import rollout_pb2 as pb
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.episodes import EPISODE_TASK, make_episode
from testkit.rollouts.examples import VERSION, make_answer_group, make_rollout, make_task

SHAPES = [(1,), (4,), (2, 1), (1, 1, 3)]


def episodes(*, has_trailing: bool = False) -> RolloutGroup:
    rng = np.random.default_rng(0)
    rollouts = [
        make_episode(rng, index, turns=shape, has_trailing=has_trailing)
        for index, shape in enumerate(SHAPES)
    ]
    return make_answer_group(
        make_task(3, num_rollouts=len(rollouts), episode=EPISODE_TASK), rollouts
    )


def as_plain(value: Any) -> Any:
    """Records as dicts and arrays as lists with their types, to compare by."""
    if dataclasses.is_dataclass(value):
        return {
            item.name: as_plain(getattr(value, item.name)) for item in dataclasses.fields(value)
        }
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return value


@pytest.mark.parametrize("has_trailing", [False, True])
def test_episodes_survive_the_wire(has_trailing: bool) -> None:
    group = episodes(has_trailing=has_trailing)
    assert as_plain(decode_group(encode_group(group))) == as_plain(group)


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_task_and_its_half_finished_episodes_survive_the_wire(is_begun: bool) -> None:
    task = make_task(3, episode=EPISODE_TASK)
    if is_begun:
        partial = make_episode(
            np.random.default_rng(1), 1, turns=(2, 2), has_trailing=True, end=EpisodeEnd.RUNNING
        )
        partial = dataclasses.replace(partial, partial=True, stop_reason=StopReason.RUNNING)
        task = dataclasses.replace(task, rollouts=[partial], first_version=VERSION)
    assert as_plain(decode_task(encode_task(task))) == as_plain(task)


def test_the_own_prompt_of_an_episode_may_be_that_of_its_task() -> None:
    group = episodes()
    for rollout in group.rollouts:
        assert rollout.episode is not None
        rollout.episode.prompt_token_ids = None
    decoded = decode_group(encode_group(group))
    for rollout in decoded.rollouts:
        np.testing.assert_array_equal(
            rollout.sequence_prompt(rollout, group.prompt_token_ids), group.prompt_token_ids
        )


def test_a_rollout_without_an_episode_has_no_byte_of_one() -> None:
    task = make_task(1)
    payload = encode_group(make_answer_group(task, [make_rollout(0, 9), make_rollout(1, 4)]))
    message = pb.RolloutGroup.FromString(payload)
    assert not any(rollout.HasField("episode") for rollout in message.rollouts)
    assert not pb.PromptTask.FromString(encode_task(task)).HasField("episode")


def test_a_turn_costs_at_most_32_bytes_besides_its_tokens() -> None:
    rollout = make_rollout(0, 1000)
    plain = len(encode_group(make_answer_group(make_task(1, num_rollouts=1), [rollout])))
    turns = tuple(Turn(0, 10 * n, 10 * n + 9, 0.5, 1, 1, 0.25) for n in range(100))
    rollout.episode = Episode("world", turns=turns, end=EpisodeEnd.DONE)
    whole = len(encode_group(make_answer_group(make_task(1, num_rollouts=1), [rollout])))
    assert 0 < whole - plain <= 32 * len(turns)


def test_spans_tokens_and_versions_cover_the_branches() -> None:
    group = episodes(has_trailing=True)
    for rollout in group.rollouts:
        assert rollout.episode is not None
        sampled = sum(turn.end - turn.start for turn in rollout.episode.turns)
        assert (
            rollout.num_tokens
            == sampled
            < sum(len(sequence.token_ids) for sequence in rollout.sequences)
        )
    last = group.rollouts[2]
    old = PolicyVersion(1, 2)
    assert last.episode is not None
    branch = last.episode.branches[0]
    branch.version_spans = tuple(
        dataclasses.replace(span, version=old) for span in branch.version_spans
    )
    assert old in last.versions
    assert old in group.versions
    assert last.oldest_version == old
    with pytest.raises(CodecError, match="older than the group's first version"):
        encode_group(group)


def give_loss(rollout: Rollout) -> None:
    rollout.loss_masked = rollout.loss_masked[1:]


def give_logprobs(rollout: Rollout) -> None:
    start, _ = rollout.loss_masked[0]
    rollout.logprobs = rollout.logprobs.copy()
    rollout.logprobs[start] = -1.0


def of_episode(change: Callable[[Episode], None]) -> Callable[[Rollout], None]:
    def changed(rollout: Rollout) -> None:
        assert rollout.episode is not None
        change(rollout.episode)

    return changed


def name_a_sequence_too_many(episode: Episode) -> None:
    episode.turns = (*episode.turns, Turn(2, 0, 1))


def overlap(episode: Episode) -> None:
    episode.turns = (*episode.turns, episode.turns[-1])


def leave_the_sequence(episode: Episode) -> None:
    episode.turns = (*episode.turns, Turn(0, 1_000, 1_001))


def swap_turns(episode: Episode) -> None:
    episode.turns = episode.turns[::-1]


def poison_a_turn(episode: Episode) -> None:
    episode.turns = (dataclasses.replace(episode.turns[0], reward=float("inf")), *episode.turns[1:])


def poison_the_time(episode: Episode) -> None:
    episode.environment_seconds = float("nan")


def turn_back_the_time(episode: Episode) -> None:
    episode.sampling_seconds = -1.0


def cut_a_branch(episode: Episode) -> None:
    episode.branches[0].logprobs = episode.branches[0].logprobs[:-1]


def lose_the_prompt(episode: Episode) -> None:
    episode.branches[0].prompt_token_ids = np.zeros(0, dtype=np.int32)


def lose_a_span(episode: Episode) -> None:
    episode.branches[0].version_spans = ()


def give_a_branch_loss(episode: Episode) -> None:
    episode.branches[0].loss_masked = ()


def go_on(episode: Episode) -> None:
    episode.end = EpisodeEnd.RUNNING


def fail(episode: Episode) -> None:
    episode.end = EpisodeEnd.FAILED


def change_the_world(episode: Episode) -> None:
    episode.environment = "another"


def talk(episode: Episode) -> None:
    episode.reason = "x" * (2 << 20)


def have_endless_turns(episode: Episode) -> None:
    episode.turns = (Turn(0, 0, 0),) * 70_000


def have_endless_branches(episode: Episode) -> None:
    episode.branches = episode.branches * 70_000


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (give_loss, "given tokens .* carry loss"),
        (give_logprobs, "given tokens .* have log-probabilities"),
        (of_episode(name_a_sequence_too_many), "turn 4 is of sequence 2, of 2"),
        (of_episode(overlap), "turn 4, .*, overlaps another"),
        (of_episode(leave_the_sequence), "leaves"),
        (of_episode(swap_turns), "overlaps another"),
        (of_episode(poison_a_turn), "turn 0: the reward is not finite"),
        (of_episode(poison_the_time), "the environment's time is nan s"),
        (of_episode(turn_back_the_time), "the sampling's time is -1 s"),
        (of_episode(cut_a_branch), "branch 1: .* log-probabilities"),
        (of_episode(lose_the_prompt), "a branch has no prompt"),
        (of_episode(lose_a_span), "branch 1: version spans cover 0"),
        (of_episode(give_a_branch_loss), "branch 1: given tokens .* carry loss"),
        (of_episode(go_on), "has not ended"),
        (of_episode(fail), "its environment failed, and it has a verdict"),
        (of_episode(change_the_world), "not of one environment"),
        (of_episode(talk), "reason: 2097152 characters"),
        (of_episode(have_endless_turns), "70000 turns"),
        (of_episode(have_endless_branches), "70000 branches"),
    ],
)
def test_an_episode_that_contradicts_itself_is_refused(
    spoil: Callable[[Rollout], None], sentence: str
) -> None:
    rng = np.random.default_rng(2)
    rollouts = [make_episode(rng, index, turns=(2, 2), has_trailing=True) for index in range(2)]
    group = make_answer_group(make_task(3, episode=EPISODE_TASK), rollouts)
    encode_group(group)
    spoil(rollouts[1])
    with pytest.raises(CodecError, match=sentence):
        encode_group(group)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"environment": ""}, "has no name"),
        ({"environment": "x" * (2 << 20)}, "environment: 2097152 characters"),
        ({"messages": "x" * (17 << 20)}, "messages: 17825792 characters"),
        ({"max_turns": 0}, "max_turns = 0"),
        ({"max_turns": 1 << 20}, "max_turns = 1048576"),
        ({"max_seconds": 0.0}, "max_seconds = 0.0"),
        ({"max_seconds": float("inf")}, "max_seconds = inf"),
    ],
)
def test_a_task_without_sound_budgets_is_refused(changes: dict[str, Any], sentence: str) -> None:
    task = make_task(1, episode=dataclasses.replace(EPISODE_TASK, **changes))
    with pytest.raises(CodecError, match=sentence):
        encode_task(task)


def test_a_single_answer_is_not_handed_back_to_an_episode() -> None:
    task = make_task(1, episode=EPISODE_TASK, rollouts=[make_rollout(0, 3)], first_version=VERSION)
    with pytest.raises(CodecError, match="of rollout 0 and its task only one is an episode"):
        encode_task(task)


def test_damaged_episodes_decode_to_sound_ones_or_are_refused() -> None:
    payload = encode_group(episodes(has_trailing=True))
    rng = np.random.default_rng(3)
    for _ in range(500):
        damaged = bytearray(payload)
        for place in rng.integers(0, len(payload), int(rng.integers(1, 4))):
            damaged[place] = int(rng.integers(0, 256))
        with suppress(CodecError):
            group = decode_group(bytes(damaged))
            for rollout in group.rollouts:
                for sequence in rollout.sequences:
                    assert len(sequence.logprobs) == len(sequence.token_ids)
                    assert sum(span.end - span.start for span in sequence.version_spans) == len(
                        sequence.token_ids
                    )

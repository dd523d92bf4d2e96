"""An episode is held against the budgets of its task, and an older generator's single answer is not
taken for one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import numpy as np
import pytest

from rollcast.config.recipe import Recipe
from rollcast.rollouts.codec import decode_group, encode_group
from rollcast.rollouts.records import (
    EpisodeEnd,
    LegKind,
    LengthBudget,
    PromptTask,
    Rollout,
    RolloutGroup,
    StopReason,
)
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.control.defects import DefectFinder
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.state import SurvivingHistory
from rollcast.trainer.learner.batch import RouterShape
from rollcast.wire import rollout_pb2 as pb
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.episodes import EPISODE_TASK, make_episode
from testkit.rollouts.examples import VERSION, make_answer_group, make_rollout, make_task
from testkit.trainer.states import make_state

VOCAB, MAX_LENGTH = 100, 64
NEWEST = PolicyVersion(VERSION.incarnation, VERSION.step + 1)


def answered(seed: int = 0) -> tuple[PromptTask, RolloutGroup]:
    task = make_task(3, episode=EPISODE_TASK)
    rng = np.random.default_rng(seed)
    rollouts = [
        make_episode(rng, index, turns=(3, 2), vocab=VOCAB, reward=float(index))
        for index in range(2)
    ]
    return task, make_answer_group(task, rollouts)


def found(task: PromptTask, group: RolloutGroup) -> str | None:
    state = make_state(history=SurvivingHistory((), VERSION.incarnation), published=NEWEST)
    return DefectFinder(state, VOCAB, MAX_LENGTH).find(group, task)


@pytest.mark.parametrize("seed", range(5))
def test_a_good_group_of_episodes_has_none(seed: int) -> None:
    task, group = answered(seed)
    assert found(task, decode_group(encode_group(group))) is None


def test_an_older_generators_single_answer_is_not_taken_for_an_episode() -> None:
    """It knows no field of an episode: it reads the task without it, and answers with none."""
    task, _ = answered()
    group = make_answer_group(task, [make_rollout(0, 3), make_rollout(1, 3)])
    said = "rollout 0 is one answer; the task asked for an episode in the environment 'world'"
    assert found(task, group) == said


def test_an_episode_is_not_taken_for_a_single_answer() -> None:
    task, group = answered()
    assert "is an episode in the environment 'world'" in str(
        found(dataclasses.replace(task, episode=None), group)
    )
    other = dataclasses.replace(EPISODE_TASK, environment="other")
    assert "is of the environment 'world'; the task asked for 'other'" in str(
        found(dataclasses.replace(task, episode=other), group)
    )


@pytest.mark.parametrize("end", [EpisodeEnd.FAILED, EpisodeEnd.SECONDS])
def test_an_episode_that_ends_before_its_first_token_is_no_defect(end: EpisodeEnd) -> None:
    task, group = answered()
    failed = make_episode(np.random.default_rng(1), 1, turns=(1,), end=end)
    assert failed.episode is not None
    failed.episode = dataclasses.replace(failed.episode, turns=())
    nothing = np.zeros(0, np.int32)
    failed = dataclasses.replace(
        failed,
        token_ids=nothing,
        logprobs=np.zeros(0, np.float32),
        version_spans=(),
        legs=(),
        kv_marks=(),
    )
    group.rollouts[1] = failed
    assert found(task, decode_group(encode_group(group))) is None
    group.rollouts = [dataclasses.replace(failed, index=index) for index in range(2)]
    assert found(task, group) is None, "no rollout has a token"
    assert assemble([group], Recipe(exclude_truncated=False)).sequences == []


def spoil_vocabulary(rollout: Rollout) -> None:
    assert rollout.episode is not None
    rollout.episode.branches[0].token_ids = rollout.episode.branches[0].token_ids + VOCAB


def spoil_own_prompt(rollout: Rollout) -> None:
    assert rollout.episode is not None
    rollout.episode.branches[0].prompt_token_ids = np.array([VOCAB], np.int32)


def spoil_logprobs(rollout: Rollout) -> None:
    assert rollout.episode is not None
    rollout.episode.branches[0].logprobs = rollout.episode.branches[0].logprobs + 80


def lengthen_prompt(rollout: Rollout) -> None:
    assert rollout.episode is not None
    rollout.episode.branches[0].prompt_token_ids = np.zeros(MAX_LENGTH, np.int32)


def mask_sampled(rollout: Rollout) -> None:
    assert rollout.episode is not None
    rollout.episode.branches[0].loss_masked = ((0, 1),)


def mask_one_sampled_more(rollout: Rollout) -> None:
    assert rollout.episode is not None
    branch = rollout.episode.branches[0]
    sampled = next(leg for leg in branch.legs if leg.kind is LegKind.ANSWER)
    branch.loss_masked = tuple(sorted([*branch.loss_masked, (sampled.start, sampled.start + 1)]))


def end_otherwise(rollout: Rollout) -> None:
    assert rollout.episode is not None
    rollout.episode.end = EpisodeEnd.TURNS


def truncate(rollout: Rollout) -> None:
    rollout.stop_reason = StopReason.LENGTH


def reward_a_turn(rollout: Rollout) -> None:
    assert rollout.episode is not None
    turns = rollout.episode.turns
    rollout.episode.turns = (dataclasses.replace(turns[0], reward=-1e9), *turns[1:])


def name_a_later_version(rollout: Rollout) -> None:
    assert rollout.episode is not None
    branch = rollout.episode.branches[0]
    later = PolicyVersion(VERSION.incarnation, VERSION.step + 9)
    branch.version_spans = tuple(
        dataclasses.replace(span, version=later) for span in branch.version_spans
    )


def misplace_a_mark(rollout: Rollout) -> None:
    assert rollout.episode is not None
    branch = rollout.episode.branches[0]
    branch.kv_marks = tuple(dataclasses.replace(mark, num_kept=10_000) for mark in branch.kv_marks)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (spoil_vocabulary, "outside the vocabulary"),
        (spoil_own_prompt, "outside the vocabulary"),
        (spoil_logprobs, "log-probability of"),
        (lengthen_prompt, "has a sequence of 64 + "),
        (mask_sampled, "other tokens were not sampled"),
        (mask_one_sampled_more, "other tokens were not sampled"),
        (end_otherwise, "stopped for end, and its episode ended for turns"),
        (truncate, "stopped for length, and its episode ended for answered"),
        (reward_a_turn, "has a reward of -1e+09 for turn 0"),
        (name_a_later_version, "the newest published is"),
        (misplace_a_mark, "has a KV mark at"),
    ],
)
def test_defects_of_an_episode_are_named(spoil: Callable[[Rollout], None], told: str) -> None:
    task, group = answered()
    spoil(group.rollouts[1])
    assert told in str(found(task, group))


def test_only_an_environment_with_masks_of_its_own_takes_the_loss_from_sampled_tokens() -> None:
    state = make_state(history=SurvivingHistory((), VERSION.incarnation), published=NEWEST)
    finder = DefectFinder(
        state, VOCAB, MAX_LENGTH, masking_environments=frozenset({EPISODE_TASK.environment})
    )
    task, group = answered()
    mask_one_sampled_more(group.rollouts[1])
    assert finder.find(group, task) is None
    mask_sampled(group.rollouts[1])
    assert "other tokens were not sampled" in str(finder.find(group, task))


def test_the_budgets_of_the_task_bound_an_episode() -> None:
    task, group = answered()
    total = max(sum(len(one.token_ids) for one in rollout.sequences) for rollout in group.rollouts)
    for budget, said in (
        (total, "None"),
        (total - 1, f"has {total} tokens, at most {total - 1} are allowed"),
    ):
        length = LengthBudget(budget)
        asked = dataclasses.replace(task, length=length)
        assert said in str(found(asked, dataclasses.replace(group, length=length)))
    few = dataclasses.replace(EPISODE_TASK, max_turns=4)
    assert "has 5 turns, at most 4" in str(found(dataclasses.replace(task, episode=few), group))


def test_every_sequence_says_which_experts_it_used() -> None:
    task, group = answered()
    for rollout in group.rollouts:
        for sequence in rollout.sequences:
            inputs = (
                len(rollout.sequence_prompt(sequence, task.prompt_token_ids))
                + len(sequence.token_ids)
                - 1
            )
            sequence.routed_experts = np.zeros((inputs, 3, 2), np.uint8)
    finder = DefectFinder(make_state(published=NEWEST), VOCAB, MAX_LENGTH, RouterShape(3, 8, 2))
    assert finder.find(group, task) is None
    episode = group.rollouts[1].episode
    assert episode is not None
    episode.branches[0].routed_experts = None
    assert "rollout 1 does not say which experts it used" in str(finder.find(group, task))


def test_an_answer_is_compared_with_the_budgets_of_its_own_dispatch() -> None:
    """A restart with other settings does not make the answers of the trainer before useless."""
    task, group = answered()
    ledger = Ledger()
    sequence = ledger.dispatch(task.prompt_id, 2)
    task = dataclasses.replace(task, sequence=sequence)
    group = dataclasses.replace(group, sequence=sequence)
    ledger.note_dispatch(task)
    restored = Progress.from_json(json.loads(json.dumps(Progress(ledger=ledger).as_json()))).ledger
    assert restored is not None
    now = dataclasses.replace(task, episode=dataclasses.replace(EPISODE_TASK, max_turns=1))
    for present in (now, dataclasses.replace(task, episode=None)):
        assert found(present, group) is not None
        assert found(restored.own_task(group, present), group) is None


def test_an_older_program_reads_the_rest_of_an_episode() -> None:
    """Fields 16 and 17 are new: to older programs they are unknown, and the rest stands where it
    stood.
    """
    numbers = {field.name: field.number for field in pb.Rollout.DESCRIPTOR.fields}
    assert numbers["episode"] == max(numbers.values()) == 16
    assert pb.PromptTask.DESCRIPTOR.fields_by_name["episode"].number == 17

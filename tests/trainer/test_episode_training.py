"""Episodes in a batch: their sequences, weights and advantages, against loops over every token."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollcast.config.custom_function import CustomFunction
from rollcast.config.distillation import Distillation, EndpointTeacher
from rollcast.config.episodes import Episodes, TurnCredit
from rollcast.config.recipe import LengthPenalty, Recipe
from rollcast.recipe.advantages import STD_EPSILON
from rollcast.recipe.group_signal import GroupSignal
from rollcast.rollouts.records import EpisodeEnd, Rollout, RolloutGroup, loss_mask
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.assembly import assemble, can_be_trained_on, shaped_reward
from rollcast.trainer.control.group_filter import GroupFilter
from rollcast.trainer.control.telemetry import GroupSignals, count_staleness
from rollcast.trainer.learner.batch import denominator
from testkit.rollouts.episodes import EPISODE_TASK, make_episode
from testkit.rollouts.examples import VERSION, make_answer_group, make_graded_rollout, make_task

SHAPES = [(1,), (3,), (2, 1), (1, 1, 2)]


def make_groups(seed: int = 0, num_groups: int = 3, **changes: Any) -> list[RolloutGroup]:
    """Groups of four episodes of different shapes, some right and some wrong."""
    rng = np.random.default_rng(seed)
    groups = []
    for sequence in range(num_groups):
        rollouts = [
            make_episode(rng, index, turns=shape, reward=float((index + sequence) % 2), **changes)
            for index, shape in enumerate(SHAPES)
        ]
        groups.append(
            make_answer_group(
                make_task(sequence, num_rollouts=len(SHAPES), episode=EPISODE_TASK), rollouts
            )
        )
    return groups


def turn_recipe(discount: float = 0.5, **changes: Any) -> Recipe:
    return Recipe(episodes=Episodes(credit=TurnCredit(discount=discount)), **changes)


def loss_tokens(rollout: Rollout) -> int:
    return sum(int(loss_mask(sequence).sum()) for sequence in rollout.sequences)


@pytest.mark.parametrize("has_trailing", [False, True])
def test_an_episode_is_a_sequence_for_each_of_its_prompts(has_trailing: bool) -> None:
    groups = make_groups(has_trailing=has_trailing)
    found = iter(assemble(groups, Recipe()).sequences)
    for group in groups:
        for rollout in group.rollouts:
            for sequence in rollout.sequences:
                one = next(found)
                prompt = rollout.sequence_prompt(sequence, group.prompt_token_ids)
                np.testing.assert_array_equal(one.prompt_token_ids, prompt)
                mask = loss_mask(sequence)
                length = int(np.flatnonzero(mask)[-1]) + 1
                assert length < len(mask) if has_trailing else length == len(mask)
                np.testing.assert_array_equal(one.token_ids, sequence.token_ids[:length])
                np.testing.assert_array_equal(one.generator_logprobs, sequence.logprobs[:length])
                np.testing.assert_array_equal(one.loss_mask, mask[:length])
                assert not one.generator_logprobs[~one.loss_mask].any(), "given"
    assert next(found, None) is None


def test_a_branch_without_sampled_tokens_is_left_out() -> None:
    groups = make_groups()
    rollout = groups[0].rollouts[2]
    assert rollout.episode is not None
    branch = rollout.episode.branches[0]
    branch.loss_masked = ((0, len(branch.token_ids)),)
    assert (
        len(assemble(groups, Recipe()).sequences)
        == len(assemble(make_groups(), Recipe()).sequences) - 1
    )


def test_a_branch_brings_its_own_experts_and_loses_those_of_trailing_tokens() -> None:
    groups = make_groups(has_trailing=True)
    for group in groups:
        for rollout in group.rollouts:
            for sequence in rollout.sequences:
                inputs = (
                    len(rollout.sequence_prompt(sequence, group.prompt_token_ids))
                    + len(sequence.token_ids)
                    - 1
                )
                sequence.routed_experts = np.full((inputs, 2, 2), inputs % 250, dtype=np.uint8)
    for one in assemble(groups, Recipe()).sequences:
        assert one.routed_experts is not None
        assert len(one.routed_experts) == one.num_tokens - 1


@pytest.mark.parametrize("aggregation", ["prompt", "sample", "token"])
def test_aggregation_counts_an_episode_once(aggregation: Any) -> None:
    """The weights of an episode's tokens, over all its sequences, add up to what the docstring
    says.
    """
    groups = make_groups()
    sequences = assemble(groups, Recipe(aggregation=aggregation)).sequences
    found = iter(sequences)
    of_prompts = []
    for group in groups:
        of_prompt = 0.0
        for rollout in group.rollouts:
            of_rollout = 0.0
            for _ in rollout.sequences:
                one = next(found)
                for has_loss in one.loss_mask:
                    of_rollout += one.weight if has_loss else 0.0
            if aggregation == "sample":
                assert of_rollout == pytest.approx(1.0)
            of_prompt += of_rollout
        of_prompts.append(of_prompt)
    num_rollouts = sum(len(group.rollouts) for group in groups)
    num_tokens = sum(loss_tokens(rollout) for group in groups for rollout in group.rollouts)
    wanted = {"prompt": len(groups), "sample": num_rollouts, "token": num_tokens}[aggregation]
    assert denominator(sequences) == pytest.approx(wanted)
    if aggregation == "prompt":
        assert of_prompts == pytest.approx([1.0] * len(groups))


def test_by_default_all_sampled_tokens_have_the_episodes_advantage() -> None:
    groups = make_groups()
    found = iter(assemble(groups, Recipe(advantage_normalisation="none")).sequences)
    for group in groups:
        mean = sum(rollout.reward for rollout in group.rollouts) / len(group.rollouts)
        for rollout in group.rollouts:
            for _ in rollout.sequences:
                one = next(found)
                assert one.token_advantages is None
                assert one.advantage == pytest.approx(rollout.reward - mean)


def slow_turn_advantages(
    groups: list[RolloutGroup], discount: float
) -> dict[tuple[int, int, int], float]:
    """By group, rollout and turn: the return less the mean over the group's episodes of their mean
    returns, over the batch's deviation, in which each episode counts once."""
    returns: dict[tuple[int, int], list[float]] = {}
    for g, group in enumerate(groups):
        for rollout in group.rollouts:
            assert rollout.episode is not None
            turns = rollout.episode.turns
            last = len(turns) - 1
            returns[g, rollout.index] = [
                sum(discount ** (n - m) * turns[n].reward for n in range(m, last + 1))
                + discount ** (last - m) * rollout.reward
                for m in range(last + 1)
            ]
    centred = {}
    for (g, index), values in returns.items():
        means = [sum(other) / len(other) for (h, _), other in returns.items() if h == g]
        centred[g, index] = [value - sum(means) / len(means) for value in values]
    squares = [sum(value**2 for value in values) / len(values) for values in centred.values()]
    deviation = (sum(squares) / len(squares)) ** 0.5 + STD_EPSILON
    return {
        (g, i, m): value / deviation
        for (g, i), values in centred.items()
        for m, value in enumerate(values)
    }


@pytest.mark.parametrize("discount", [1.0, 0.5])
def test_turn_credit_equals_a_loop_over_every_token(discount: float) -> None:
    groups = make_groups()
    wanted = slow_turn_advantages(groups, discount)
    found = iter(assemble(groups, turn_recipe(discount)).sequences)
    for g, group in enumerate(groups):
        for rollout in group.rollouts:
            assert rollout.episode is not None
            for number, _ in enumerate(rollout.sequences):
                one = next(found)
                assert one.token_advantages is not None
                for position in np.flatnonzero(one.loss_mask):
                    (turn,) = [
                        m
                        for m, turn in enumerate(rollout.episode.turns)
                        if turn.sequence == number and turn.start <= position < turn.end
                    ]
                    assert one.token_advantages[position] == pytest.approx(
                        wanted[g, rollout.index, turn], rel=1e-5
                    )


def test_single_answers_are_episodes_of_one_turn_under_turn_credit() -> None:
    group = make_answer_group(
        make_task(0),
        [make_graded_rollout(0, 1.0), make_graded_rollout(1, 0.0), make_graded_rollout(2, 0.0)],
    )
    whole = assemble([group], Recipe()).sequences
    for one, other in zip(assemble([group], turn_recipe()).sequences, whole, strict=True):
        assert one.token_advantages is not None
        np.testing.assert_allclose(one.token_advantages, other.advantage, rtol=1e-6)


@pytest.mark.parametrize("recipe", [Recipe(), turn_recipe()], ids=["episode", "turn"])
def test_a_failed_environment_enters_neither_mean_nor_deviation(recipe: Recipe) -> None:
    groups = make_groups()
    with_failed = [
        dataclasses.replace(
            group,
            rollouts=[
                *group.rollouts,
                make_episode(np.random.default_rng(9), 4, turns=(2,), end=EpisodeEnd.FAILED),
            ],
        )
        for group in groups
    ]
    for one, other in zip(
        assemble(with_failed, recipe).sequences, assemble(groups, recipe).sequences, strict=True
    ):
        assert one.advantage == other.advantage
        np.testing.assert_array_equal(one.token_advantages, other.token_advantages)
        assert one.weight == other.weight


def test_rewards_of_turns_alone_make_a_group_usable_if_they_are_credited() -> None:
    """All episodes are wrong, and their turns earned different rewards."""
    (group,) = make_groups(num_groups=1)
    for rollout in group.rollouts:
        rollout.reward = 0.0
    for recipe, is_usable in ((Recipe(), False), (turn_recipe(), True)):
        assert can_be_trained_on(group, recipe, GroupFilter(recipe)) is is_usable
        assert bool(assemble([group], recipe).sequences) is is_usable
        exporter = Exporter("r")
        signals = GroupSignals(recipe, exporter)
        signals.note(group)
        signal = GroupSignal.USABLE if is_usable else GroupSignal.WRONG
        assert signals._counts == {str(signal): 1}


TURN_REWARDS = [
    # Rewards of the turns of each episode, their own rewards -> whether the group can be trained on
    ([(1.0, 0.0), (0.0, 1.0)], (0.0, 0.0), True),
    ([(0.25, 0.5), (0.5, 0.25)], (1.0, 1.0), True),
    ([(-1.0, 1.0), (1.0, -1.0), (0.0, 0.0)], (0.0, 0.0, 0.0), True),
    ([(1.0, 0.0), (0.0, 0.0)], (0.0, 1.0), True),
    ([(0.5, 0.5, 0.0), (1.0, 0.0)], (0.0, 0.0), True),
    ([(0.0, 0.0), (0.0, 0.0)], (0.0, 1.0), True),
    ([(0.5, 0.5), (0.5, 0.5)], (0.0, 0.0), False),
    ([(1.0, 0.0), (1.0, 0.0)], (1.0, 1.0), False),
    ([(0.0, 0.0), (0.0,)], (1.0, 1.0), False),
    ([(0.5, 0.0), (0.5,)], (0.0, 0.0), False),
    ([(0.0, 0.0), (0.0, 0.0)], (0.0, 0.0), False),
]


@pytest.mark.parametrize(("of_turns", "rewards", "is_usable"), TURN_REWARDS)
def test_turns_with_equal_sums_differ_where_their_rewards_do(
    of_turns: list[tuple[float, ...]], rewards: tuple[float, ...], is_usable: bool
) -> None:
    rng = np.random.default_rng(0)
    rollouts = []
    for index, (turns, reward) in enumerate(zip(of_turns, rewards, strict=True)):
        made = make_episode(rng, index, turns=(len(turns),), reward=reward)
        assert made.episode is not None
        credited = tuple(
            dataclasses.replace(t, reward=r) for t, r in zip(made.episode.turns, turns, strict=True)
        )
        rollouts.append(
            dataclasses.replace(made, episode=dataclasses.replace(made.episode, turns=credited))
        )
    group = make_answer_group(
        make_task(0, num_rollouts=len(rollouts), episode=EPISODE_TASK), rollouts
    )
    recipe = turn_recipe(1.0)
    assert can_be_trained_on(group, recipe, GroupFilter(recipe)) is is_usable
    assert bool(assemble([group], recipe).sequences) is is_usable
    signals = GroupSignals(recipe, Exporter("r"))
    signals.note(group)
    assert (GroupSignal.USABLE in signals._counts) is is_usable


def test_a_length_penalty_counts_sampled_tokens_of_all_sequences_and_no_given_ones() -> None:
    rollout = make_episode(np.random.default_rng(0), turns=(3, 2), has_trailing=True)
    most = rollout.num_tokens
    recipe = Recipe(length_control=LengthPenalty(max_tokens=most, cache_tokens=1))
    assert shaped_reward(rollout, recipe) == 0.5, "as long as may be"
    recipe = Recipe(length_control=LengthPenalty(max_tokens=most + 1, cache_tokens=1))
    assert shaped_reward(rollout, recipe) == 1.0


def test_a_teacher_adds_its_part_to_the_credit_of_turns() -> None:
    groups = make_groups(num_groups=2)
    rng = np.random.default_rng(4)
    answers: dict[int, list[Any]] = {}
    for group in groups:
        answers[group.sequence] = [
            tuple(
                rng.uniform(-5, 0, len(s.token_ids)).astype(np.float32) for s in rollout.sequences
            )
            for rollout in group.rollouts
        ]
    teacher = EndpointTeacher(url="http://none", model="t", devices=1)
    recipe = turn_recipe(
        distillation=Distillation(teacher=teacher, coefficient=0.4, with_reward=True)
    )
    batch = assemble(groups, recipe, answers)
    found = iter(batch.sequences)
    of_turns = iter(assemble(groups, turn_recipe()).sequences)
    distances = []
    for group in groups:
        for rollout in group.rollouts:
            for number, _ in enumerate(rollout.sequences):
                one, plain = next(found), next(of_turns)
                assert one.token_advantages is not None
                assert plain.token_advantages is not None
                for position in np.flatnonzero(one.loss_mask):
                    theirs = float(answers[group.sequence][rollout.index][number][position])
                    distance = float(one.generator_logprobs[position]) - theirs
                    wanted = plain.token_advantages[position] - 0.4 * distance
                    assert one.token_advantages[position] == pytest.approx(
                        wanted, rel=1e-5, abs=1e-6
                    )
                    distances.append(distance)
    assert batch.teacher_kl == pytest.approx(np.mean(distances), rel=1e-6)


def test_staleness_counts_the_tokens_of_branches() -> None:
    groups = make_groups(has_trailing=True)
    counts = count_staleness(groups, VERSION.step + 3)
    tokens = [
        len(s.token_ids)
        for group in groups
        for rollout in group.rollouts
        for s in rollout.sequences
    ]
    assert sum(counts.values()) == sum(tokens)
    assert set(counts) <= {2, 3}


def test_parts_of_ones_own_see_an_episode_as_one_rollout(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def tokens(batch):\n    return batch.loss_tokens.astype(float)\n"
        "def long(group):\n    return bool(group.loss_tokens.sum() > LEAST)\n"
        "def short(completion):\n    return -completion.num_tokens / 100\n"
        "LEAST = 0\n"
    )
    groups = make_groups(has_trailing=True)
    parts = {
        name: CustomFunction(kind="python", function=f"{file}:{name}")
        for name in ("tokens", "long", "short")
    }
    recipe = Recipe(advantage=parts["tokens"], filter=parts["long"], length_control=parts["short"])
    found = iter(assemble(groups, recipe).sequences)
    for group in groups:
        for rollout in group.rollouts:
            for _ in rollout.sequences:
                assert next(found).advantage == loss_tokens(rollout)
            assert shaped_reward(rollout, recipe) == pytest.approx(
                rollout.reward - rollout.num_tokens / 100
            )
    assert next(found, None) is None

"""The advantages of the tokens of a batch whose episodes are credited turn by turn
(`recipe.episodes.credit`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rollcast.config.episodes import TurnCredit
from rollcast.config.recipe import Recipe
from rollcast.recipe.credit import credited_turns, turn_advantages, turn_returns
from rollcast.rollouts.records import Rollout
from rollcast.trainer.control.pass_rate import counted_reward
from rollcast.trainer.learner.batch import TokenAdvantages

ComparedReward = tuple[float, ...]
SequenceAdvantages = list[TokenAdvantages]
"""[L] of each token sequence of a rollout."""


def uses_turn_credit(recipe: Recipe) -> bool:
    return recipe.uses_reward and isinstance(recipe.episodes.credit, TurnCredit)


def compared_reward(rollout: Rollout, recipe: Recipe) -> ComparedReward:
    """The rewards that the zero-variance filter compares: the episode's, and each turn's if turns
    are credited.

    Turns without a reward at the end do not count, as a longer answer is no other reward.
    """
    reward = counted_reward(rollout)
    if rollout.episode is None or not uses_turn_credit(recipe):
        return (reward,)
    of_turns = [turn.reward for turn in rollout.episode.turns]
    while of_turns and not of_turns[-1]:
        of_turns.pop()
    return (reward, *of_turns)


def turn_credited(
    rollouts: Sequence[Rollout],
    shaped: NDArray[np.float64],
    group: NDArray[np.int64],
    is_kept: NDArray[np.bool_],
    recipe: Recipe,
) -> dict[int, SequenceAdvantages]:
    """Return the token advantages of the kept rollouts by index; nothing if the recipe credits
    whole episodes.

    `shaped` [R] is the reward with a length penalty, `group` [R] the index of the prompt. A rollout
    of one answer is an episode of one turn.
    """
    credit = recipe.episodes.credit
    if not isinstance(credit, TurnCredit) or not uses_turn_credit(recipe):
        return {}
    kept_indices = np.flatnonzero(is_kept)
    returns = [
        turn_returns(_turn_rewards(rollouts[index]), float(shaped[index]), credit.discount)
        for index in kept_indices
    ]
    advantages = turn_advantages(recipe.advantage_normalisation, returns, group[kept_indices])
    return {
        int(rollout_index): _spread_over_tokens(rollouts[rollout_index], values)
        for rollout_index, values in zip(kept_indices, advantages, strict=True)
    }


def _turn_rewards(rollout: Rollout) -> NDArray[np.float64]:
    """[T] of the turns, in the order in which they were taken; of a rollout without turns one 0."""
    turns = rollout.episode.turns if rollout.episode is not None else ()
    return np.array([turn.reward for turn in turns] or [0.0])


def _spread_over_tokens(rollout: Rollout, advantages: NDArray[np.float64]) -> SequenceAdvantages:
    """[L] of each sequence from [T] of the turns."""
    lengths = [len(sequence.token_ids) for sequence in rollout.sequences]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    turns = rollout.episode.turns if rollout.episode is not None else ()
    starts = np.array([offsets[turn.sequence] + turn.start for turn in turns] or [0])
    # Turns by their place among the tokens, in which one sequence follows the other.
    order = np.argsort(starts, kind="stable")
    turn_by_token = order[credited_turns(starts[order], int(offsets[-1]))]
    return np.split(advantages[turn_by_token].astype(np.float32), offsets[1:-1])

"""Credit of episodes: which reward each sampled token of a rollout of several turns is credited
with.

    episode   A_(i,t) = A_i, the advantage of the episode's reward R_i
              (`rollcast.recipe.advantages`), for each t
    turn      G_(i,m) = sum_(n >= m) d^(n - m) r_(i,n) + d^(T_i - m) R_i   return of turn m of T_i
              b_i     = (1 / T_i) sum_m G_(i,m)                            the episode's mean return
              A_(i,t) = (G_(i,m) - mean_j b_j) / normaliser                t in turn m

r_(i,n) is the environment's reward for turn n alone, R_i the reward of the whole episode, which
counts at its last turn, d the discount. The last reward of an OpenEnv server is R_i and no turn's:
no reward counts twice. j runs over the kept rollouts of the prompt; the normaliser is that of
`advantages`, with the episode's mean of the turns' squares in place of a rollout's square:

    batch           sqrt(mean_i (1 / T_i) sum_m (G_(i,m) - mean_j b_j)^2) + eps,
                    i over the kept rollouts of the batch
    prompt          the same with i over those of the prompt
    none            1
    leave_one_out   1, and the mean of b_j leaves out j = i

So an episode counts once in mean and deviation, however many turns it has. Denominators are numbers
of rollouts and of turns, never of tokens. With one turn, or d = 1 and no rewards of turns, both
kinds are the same. An episode whose environment failed has no reward: it is not among the kept
rollouts, and enters neither.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rollcast.recipe.advantages import STD_EPSILON, Normalisation


def turn_returns(
    rewards: NDArray[np.float64], episode_reward: float, discount: float
) -> NDArray[np.float64]:
    """Return G [T] of an episode with `rewards` [T] of its turns, T >= 1, and the reward of the
    whole.
    """
    returns = np.empty(len(rewards))
    return_after = episode_reward
    for turn in reversed(range(len(rewards))):
        returns[turn] = rewards[turn] + return_after
        # G_m = r_m + d G_(m + 1), and the episode's reward is added to the last turn's.
        return_after = discount * returns[turn]
    return returns


def turn_advantages(
    normalisation: Normalisation, returns: Sequence[NDArray[np.float64]], group: NDArray[np.int64]
) -> list[NDArray[np.float64]]:
    """Return A of each turn, [T_i] for each of the R kept rollouts.

    Args:
        returns: of each rollout its turns' G [T_i], T_i >= 1.
        group: [R] index of the rollout's prompt (any non-negative integers).
    """
    if not returns:
        return []
    num_turns = np.array([len(values) for values in returns])
    owner = np.repeat(np.arange(len(returns)), num_turns)
    flat = np.concatenate(returns)
    _, position = np.unique(group, return_inverse=True)
    size = np.bincount(position)[position]
    means = np.bincount(owner, weights=flat) / num_turns
    sums = np.bincount(position, weights=means)[position]
    if normalisation == "leave_one_out":
        baselines = np.where(size > 1, (sums - means) / np.maximum(size - 1, 1), means)
        centred = flat - baselines[owner]
        # A single episode has no other to be compared with.
        centred[size[owner] == 1] = 0.0
    else:
        centred = flat - (sums / size)[owner]
    squares = np.bincount(owner, weights=centred**2) / num_turns
    if normalisation == "prompt":
        deviations = np.sqrt(np.bincount(position, weights=squares)[position] / size)
        centred = centred / (deviations[owner] + STD_EPSILON)
    elif normalisation == "batch":
        centred = centred / (float(np.sqrt(squares.mean())) + STD_EPSILON)
    return np.split(centred, np.cumsum(num_turns)[:-1])


def credited_turns(turn_starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return [length] for each token the place in `turn_starts` of the turn that it belongs to: the
    last that began.

    `turn_starts` [T] is in ascending order, T >= 1. Tokens before the first turn belong to it.
    """
    return np.maximum(np.searchsorted(turn_starts, np.arange(length), side="right") - 1, 0)

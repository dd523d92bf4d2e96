"""The one definition of a pass rate, in training and in evaluation: the mean reward of the rollouts
with a verdict.

A reward is the verifier's own, in [0, 1], before the recipe shapes it: a verifier that rewards
every answer with 0.1 finds a pass rate of 0.1. A program that runs into its time limit has failed,
and counts 0 as any wrong answer does.

A truncated answer counts as wrong, whatever the verifier found in it: a number that happens to
match is the last one that the model wrote, not an answer. Where such rollouts are trained on
(`exclude_truncated: false`) their reward is 0 too. The number of such matches is counted.

A rollout without a verdict, because its grader hung or was lost, is in no pass rate and in no
batch: the answer was not looked at, and a failing grader must move neither the curve nor the
curriculum. It is counted.
"""

from collections.abc import Iterable

from rollcast.rollouts.records import Rollout


def counted_reward(rollout: Rollout) -> float:
    """The verifier's reward, 0 for a truncated answer."""
    return 0.0 if rollout.truncated else rollout.reward


def verdicts(rollouts: Iterable[Rollout]) -> list[float]:
    """Return the rewards of the rollouts with a verdict. Their mean is the pass rate."""
    return [counted_reward(rollout) for rollout in rollouts if rollout.has_verdict]


def truncated_matches(rollouts: Iterable[Rollout]) -> int:
    """Return how many truncated rollouts the verifier found right, at least in part."""
    return sum(
        rollout.truncated and rollout.has_verdict and rollout.reward > 0 for rollout in rollouts
    )

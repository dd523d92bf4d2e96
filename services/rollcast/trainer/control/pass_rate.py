"""The one definition of a pass rate, in training and in evaluation: the mean reward of the rollouts with a verdict.

A reward is the verifier's own, in [0, 1], before the recipe shapes it: a verifier that gives everybody 0.1 finds a pass
rate of 0.1. A program that runs into its time limit has failed, and counts 0 as any wrong answer does.

A rollout without a verdict, because its grader hung or was lost, is in no pass rate, as it is in no batch: nobody has
looked at the answer, and what the grader does must move neither the curve nor the curriculum. It is counted.
"""

from __future__ import annotations

from collections.abc import Iterable

from rollcast.rollouts.records import Rollout


def verdicts(rollouts: Iterable[Rollout]) -> list[float]:
    """Return the rewards of those that have a verdict. Their mean is the pass rate; of no verdict there is none."""
    return [rollout.reward for rollout in rollouts if rollout.has_verdict]

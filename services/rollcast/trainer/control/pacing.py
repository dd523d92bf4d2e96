"""How long steps and groups take: the longest group in steps, how many groups are enough, when one
counts as lost.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from rollcast.config.episodes import Episodes
from rollcast.config.recipe import Recipe
from rollcast.config.tasks import Tasks
from rollcast.config.verifiers import Remote
from rollcast.recipe.staleness import drop_timeout_seconds, enough_groups, longest_group_ratio
from rollcast.rollouts.records import Claim, RolloutGroup
from rollcast.tasks.grading import Verifiers
from rollcast.tasks.mappings import verifier_names
from rollcast.tasks.verifiers import answers_at_once
from rollcast.trainer.control.hand_over import GroupOutlook


def longest_verdict_seconds(tasks: Tasks, *, num_slots: int, grading_seconds: float) -> float:
    """The longest wait for a verdict: all slots of a generator end together, and each grading takes
    all its time.

    Verifiers that answer immediately take no time; services have a deadline that includes the wait
    for them. `grading_seconds`: the longest that one grading may take.
    """
    verifiers = Verifiers.from_tasks(tasks)
    longest_seconds = 0.0
    for name in verifier_names(tasks):
        declared = verifiers.declared.get(name)
        if isinstance(declared, Remote):
            longest_seconds = max(longest_seconds, declared.deadline_seconds)
        elif not answers_at_once(name):
            rounds = math.ceil(num_slots / tasks.grading.processes)
            longest_seconds = max(longest_seconds, rounds * grading_seconds)
    return longest_seconds


def longest_episode_seconds(tasks: Tasks, episodes: Episodes) -> float:
    """The most time that an episode takes in addition to its sampling; 0 without environments.

    One try waits for an environment to be free and to be ready, as long as an episode may last and
    once more for slots of the engine, for a last call and the reward. An environment that fails
    begins the whole episode again.
    """
    return max(
        (
            (1 + item.restarts)
            * 2
            * (item.reset_seconds + episodes.max_seconds + item.call_seconds)
            for item in tasks.environments
        ),
        default=0.0,
    )


def longest_other_seconds(
    tasks: Tasks, recipe: Recipe, num_slots: int, grading_seconds: float
) -> float:
    """The most time that a group takes besides its sampling.

    Arguments as for `longest_verdict_seconds`.
    """
    verdict = longest_verdict_seconds(tasks, num_slots=num_slots, grading_seconds=grading_seconds)
    return verdict + longest_episode_seconds(tasks, recipe.episodes)


class Pacing:
    """Recent step and group durations, in seconds."""

    def __init__(self, recipe: Recipe, max_staleness: int, other_seconds: float = 0.0) -> None:
        """`other_seconds`: the longest that a group takes besides its sampling: in environments,
        and at its grading.
        """
        self._max_staleness = max_staleness
        self._groups_per_step = recipe.prompts_per_step
        self._token_budget = recipe.max_completion_tokens
        self._other_seconds = other_seconds
        # Steps whose durations count.
        num_recent_steps = 16
        self._step_seconds: deque[float] = deque(maxlen=num_recent_steps)
        self._group_seconds: deque[list[float]] = deque(maxlen=num_recent_steps)
        """Lifetimes of each recent step's groups, with those filtered and replaced since the step
        before."""
        self._longest_tokens: deque[int] = deque(maxlen=num_recent_steps)
        """Length of each recent step's longest rollout."""
        self._slowest_rate: float | None = None

    def step_made(self, seconds: float, groups: Sequence[RolloutGroup]) -> None:
        """`seconds`: from the step before to this one, waits for stragglers excluded. `groups`: all
        that it took, with those that were filtered and that others took the place of."""
        self._step_seconds.append(seconds)
        # A clock may have been set back.
        self._group_seconds.append(
            [max(0.0, group.finished_at - group.started_at) for group in groups]
        )
        self._longest_tokens.append(
            max(rollout.num_tokens for group in groups for rollout in group.rollouts)
        )

    def _typical_step(self) -> float:
        # Above 0, because lifetimes are divided by it.
        return max(median(self._step_seconds), 1e-6)

    def _lifetimes(self) -> list[float]:
        """Recent groups' lifetimes in undisturbed steps."""
        if not self._step_seconds:
            return []
        step = self._typical_step()
        return [seconds / step for groups in self._group_seconds for seconds in groups]

    def _groups_taken(self) -> float:
        """Groups that a recent step took on average: more than P where filtered ones do not count
        towards a batch.
        """
        return sum(map(len, self._group_seconds)) / len(self._group_seconds)

    def longest_ratio(self) -> float:
        """Steps the longest recent group lasted over k - l."""
        return longest_group_ratio(self._lifetimes(), self._max_staleness)

    def enough(self) -> int | None:
        """Groups that keep the trainer fed; None = the window alone counts."""
        if not self._group_seconds:
            return None
        return enough_groups(
            self._lifetimes(),
            max_staleness=self._max_staleness,
            groups_per_step=self._groups_per_step,
            taken_per_step=self._groups_taken(),
        )

    def outlook(self, waiting: int) -> GroupOutlook | None:
        """Expectations for a group under way; None = nothing is known yet.

        `waiting`: number of unclaimed training tasks. They are claimed as fast as steps take
        groups.
        """
        if not self._step_seconds or not self._longest_tokens:
            return None
        step = self._typical_step()
        return GroupOutlook(
            step_seconds=step,
            longest_tokens=max(self._longest_tokens),
            token_budget=self._token_budget,
            queue_seconds=waiting / self._groups_taken() * step,
        )

    def observe_rates(self, tokens_per_second: Iterable[float]) -> None:
        """Decode rates of one rollout, as the present generators report them; 0 = unknown."""
        self._slowest_rate = min((rate for rate in tokens_per_second if rate > 0), default=None)

    def overdue(
        self, claims: Mapping[int, Claim], now_seconds: float, *, redis_back_at: float
    ) -> list[int]:
        """Tasks that take longer than a working generator needs: 3 x (token budget / slowest rate),
        at least a minute, plus the time that environments and grading may take.

        `redis_back_at`: end of the last outage of Redis; no group could be handed in before.
        """
        if self._slowest_rate is None:
            return []
        deadline = drop_timeout_seconds(self._token_budget, self._slowest_rate)
        # No task is overdue earlier: on a busy machine an engine's start or a grader takes longer
        # than a small budget
        allowed = max(60.0, deadline) + self._other_seconds
        return [
            sequence
            for sequence, claim in claims.items()
            if now_seconds - max(claim.claimed_at, redis_back_at) > allowed
        ]

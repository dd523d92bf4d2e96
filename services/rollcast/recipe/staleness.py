"""The staleness gate: no token older than k = `max_staleness` steps is trained on, no group is
dropped for being slow.

A batch used at step t (making t + 1) may hold no token older than t - k, so a group whose first
token was sampled by step f has to be used at a step <= f + k, its deadline. Three rules, in this
order:

    pace   dispatched and not yet settled groups never exceed W(t) = P (floor(t) + k - t + 1)
    wait   a step at t with batch S is allowed only if for every j >= 0 at most j P groups outside S
           have a deadline <= t + j; otherwise the trainer waits. The oldest ready groups are taken
           first.
    drop   only a group that was lost, or that took longer than a deadline in seconds that no
           working generator reaches

P is the number of groups of one step. floor(t) is the oldest step that can still start a group
while the trainer is at step t: t - min(1, k) when every step is published, because step t is not
complete before every generator acknowledged floor(t). A dispatched group whose start the trainer
has not seen may already have been started by floor(t), so it counts as if it had been. W(t) is P
times the number of steps that can still use a group started now: (k + 1 - l) P.

Why no token is ever too old. Let Inv(t) say: for every j >= 0 at most (j + 1) P unsettled groups
have a deadline <= t + j. While the trainer is at t, groups start with f >= floor(t), hence a
deadline >= t + j* with j* = floor(t) + k - t, and a dispatch leaves at most W(t) = (j* + 1) P
unsettled: it cannot break Inv(t). A step with batch S leaves at most j P groups with a deadline <=
t + j by the wait rule; groups started meanwhile are due at t + j* or later, and with them at most
W(t) - P = j* P are left. Put j = i + 1: this is Inv(t + 1). In particular Inv(t) allows no deadline
below t, so every batch is fresh. The batch stays counted until t + 1 is complete: credit returned
earlier would let P groups start at floor(t) on top of those that remain. A batch without an update
(all filtered) keeps t, and returning its credit keeps Inv(t). After a restart the survivors may
break Inv(t); `unusable` says which to give up.

Why it never deadlocks. W(t) >= P, so dispatch keeps at least P groups unsettled; each becomes ready
or is settled as lost within the drop deadline. Once all unsettled groups are ready, take S = the P
with the earliest deadlines: by Inv(t) at most (j + 1) P have a deadline <= t + j, S contains P of
them or all of them, so at most j P remain: the step is allowed. And if any P ready groups make an
allowed batch then the P oldest ready ones do, for every other choice leaves at least as many groups
below each deadline. Waiting only for what is due at t is not strict: 2 P slow groups of one
deadline cannot all be used by one step.

What the caller owes:
- a generator records the step of the weights it samples with before the group's first token, and
  acknowledges a step only after every earlier such record was written and the weights are in use;
  whoever continues a group that was handed back records the older of the two steps (the new owner
  may be one step behind the former: like a start at floor(t))
- the outstanding groups are read after every member acknowledged floor(t), and a group in training
  stays among them;
- settled = used (when its step is complete), filtered (with its batch, or on arrival if batches are
  refilled), given up, or noticed as lost; a lost task that is dispatched again is a new outstanding
  group. Each only takes groups away from Inv(t), and the groups dispatched in their place are due
  at t + j* or later, like any other.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LONGEST_GROUP_WARNING = 0.8
"""Above this `longest_group_ratio` the trainer is about to wait for stragglers."""


@dataclass(frozen=True, slots=True)
class Group:
    """One dispatched rollout group that is not yet settled."""

    sequence: int
    """Dispatch sequence number of its task."""
    first_step: int | None
    """The oldest step that sampled one of its tokens; None while no generator has recorded a
    start."""
    ready: bool
    """All its rollouts are finished and graded and the trainer can read them."""


def sampling_lag(max_staleness: int) -> int:
    """Return l = min(1, k): how many steps behind the trainer a generator may be when it starts a
    group.
    """
    return min(1, max_staleness)


def window(*, floor: int, max_staleness: int, step: int, groups_per_step: int) -> int:
    """Return W(t), the most groups that may be dispatched and not settled while the trainer is at
    `step`.
    """
    return (floor + max_staleness - step + 1) * groups_per_step


def deadline(group: Group, *, floor: int, max_staleness: int) -> int:
    """Return the last step that may train on `group`; an unseen start counts as a start
    by `floor`.
    """
    return (floor if group.first_step is None else group.first_step) + max_staleness


def _by_deadline(
    groups: Iterable[Group], floor: int, max_staleness: int
) -> list[tuple[int, Group]]:
    """Each group after its deadline, the earliest first; ties go to the earlier dispatch."""
    dated = [(deadline(group, floor=floor, max_staleness=max_staleness), group) for group in groups]
    return sorted(dated, key=lambda item: (item[0], item[1].sequence))


def oldest_ready(
    groups: Iterable[Group], *, floor: int, max_staleness: int, count: int
) -> tuple[Group, ...]:
    """Return the `count` ready groups (or fewer) with the earliest deadlines; ties go to the
    earlier dispatch.
    """
    ready = [group for group in groups if group.ready]
    return tuple(group for _, group in _by_deadline(ready, floor, max_staleness)[:count])


def stragglers(
    remaining: Iterable[Group], *, floor: int, max_staleness: int, step: int, groups_per_step: int
) -> tuple[Group, ...]:
    """Return the unready groups that forbid a step at `step` which would leave `remaining`; empty
    if it is allowed.

    They are those due by t + j for the smallest j at which more than j P groups would be left.
    Inv(step) must hold.
    """
    dated = _by_deadline(remaining, floor, max_staleness)
    for num_remaining, (due, _) in enumerate(dated, start=1):
        # The wait rule: at most j P groups outside the batch may be due by step + j.
        if num_remaining > (due - step) * groups_per_step:
            late_groups = tuple(
                group
                for other_deadline, group in dated
                if other_deadline <= due and not group.ready
            )
            assert late_groups, (
                f"groups due at step {due} can no longer be used; give up what `unusable` returns "
                "first"
            )
            return late_groups
    return ()


def unusable(
    groups: Iterable[Group], *, floor: int, max_staleness: int, step: int, groups_per_step: int
) -> tuple[Group, ...]:
    """Return the fewest groups to give up so that Inv(step) holds for the others; () in an
    undisturbed run.

    Needed after a restart, when the surviving groups come from another history, or another k or P.
    Among groups of one deadline the latest dispatched go, ready or not, so that the choice does not
    favour short answers.
    """
    given_up = []
    num_kept = 0
    for due, group in _by_deadline(groups, floor, max_staleness):
        # Inv(step): at most (j + 1) P unsettled groups may be due by step + j.
        if num_kept + 1 > (due - step + 1) * groups_per_step:
            given_up.append(group)
        else:
            num_kept += 1
    return tuple(given_up)


def enough_groups(
    lifetimes: Sequence[float],
    *,
    max_staleness: int,
    groups_per_step: int,
    taken_per_step: float | None = None,
) -> int | None:
    """Return how many dispatched groups keep the trainer busy: one batch in training, one ready,
    the rest in progress.

    More groups would only wait and grow stale: a window that is always full makes every token about
    k steps old. By Little's law n groups a step that live m steps on average are m n in progress. n
    is `taken_per_step`; None: P. It is more than P if filtered groups do not count towards a batch;
    these never wait, so the two batches stay P each.

    The answer is None, so that the window alone counts, before the first group, and if the longest
    groups outlast the slack: then the trainer waits for stragglers and needs every overlap. The
    answer can only narrow the window, so the proof above still holds.

    `lifetimes`: of recent groups, filtered ones too, in undisturbed trainer steps.
    """
    if not lifetimes or longest_group_ratio(lifetimes, max_staleness) > 1.0:
        return None
    consumed_per_step = groups_per_step if taken_per_step is None else taken_per_step
    return math.ceil(2.0 * groups_per_step + sum(lifetimes) / len(lifetimes) * consumed_per_step)


def drop_timeout_seconds(token_budget: int, slowest_decode_rate: float) -> float:
    """Return after how many seconds a group counts as lost: three times the time of its longest
    rollout.

    `token_budget` is in tokens per rollout, `slowest_decode_rate` the slowest measured rate of one
    rollout of any generator in tokens per second.
    """
    assert token_budget > 0, token_budget
    assert slowest_decode_rate > 0, slowest_decode_rate
    return 3.0 * token_budget / slowest_decode_rate


def longest_group_ratio(lifetimes: Sequence[float], max_staleness: int) -> float:
    """Return the longest of `lifetimes` over k - l, the steps a group may last before the trainer
    waits for it.

    A lifetime is the time from a group's first token to its arrival in units of undisturbed trainer
    steps (seconds over seconds per step, so that it is not capped by the waiting it causes). 0
    without groups, and for k <= 1, since every step then waits for its groups by definition.
    """
    slack = max_staleness - sampling_lag(max_staleness)
    return max(lifetimes, default=0.0) / slack if slack else 0.0

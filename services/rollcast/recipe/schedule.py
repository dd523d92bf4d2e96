"""Schedules: how many groups to dispatch, which groups form the next step, which steps to publish.

A schedule is a pure function of the state, which the caller builds for every call; nothing is kept
between calls, so a restarted trainer resumes by deriving the state again. The caller's loop:

    schedule = PipelineRL(max_staleness=8, groups_per_step=48)
    while state.step < last_step:
        give up schedule.unusable(state)           # () except after a restart; dispatched again
        dispatch schedule.dispatch(state) tasks    # lost tasks first, then new prompts
        match schedule.next_batch(state):
            case Wait(reason):
                wait for a change, read the state again; count the seconds under `reason`
            case Batch(sequences):
                if every group is filtered: settle them; the step stays
                else:
                    train; step t + 1 exists       # the batch stays in state.groups until here
                    if schedule.publishes(t + 1): publish t + 1 in the background
                    settle the batch; state.step = t + 1, state.steps_since_start += 1

Acknowledgements gate the rest: until every member holds `schedule.floor(step)` nothing is
dispatched and no batch is formed (Wait "weights"), so step t + 1 is complete exactly when its floor
is acknowledged. A member that does not acknowledge in time is fenced by the caller. See
`rollcast.recipe.staleness` for the rules and their proof.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from rollcast.recipe import staleness
from rollcast.recipe.staleness import Group

if TYPE_CHECKING:
    from rollcast.config import recipe as config


@dataclass(frozen=True, slots=True)
class PipelineState:
    """The state that a schedule decides on."""

    step: int
    """t: optimizer steps in the surviving history; the next batch makes t + 1."""
    steps_since_start: int
    """Optimizer steps of this incarnation; 0 after a restart, so that the window opens at P
    again."""
    acknowledged: int | None
    """The oldest step that any member (a generator that may claim tasks) samples with; None without
    members."""
    groups: tuple[Group, ...]
    """Every dispatched group that is not settled, those in training included, in any order."""
    enough: int | None = None
    """Groups that keep the trainer busy, see `staleness.enough_groups`; None = not measured yet:
    the window alone."""


class WaitReason(StrEnum):
    """Why the trainer waits. Only `batch` asks for more generators."""

    BATCH = "batch"
    """Too few groups are ready."""
    STRAGGLER = "straggler"
    """A batch is ready, but using it now would make groups that are still sampled too old to be
    used."""
    TEACHER = "teacher"
    """All that is missing is at the teacher's endpoint."""
    WEIGHTS = "weights"
    """A generator has not yet acknowledged the weights."""


@dataclass(frozen=True, slots=True)
class Wait:
    """No step yet."""

    reason: WaitReason
    groups: tuple[int, ...] = ()
    """Sequences of the unready groups that the trainer waits for, if the reason is `straggler`."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The groups of the next step, oldest first."""

    sequences: tuple[int, ...]


class Schedule(Protocol):
    """When to generate, train and publish.

    Its implementations derive from it: they share the rules of the gate.
    """

    @property
    def max_staleness(self) -> int:
        """k, the greatest staleness of a trained token, in steps."""

    @property
    def groups_per_step(self) -> int:
        """P."""

    def floor(self, step: int) -> int:
        """Return the step that every member must have acknowledged before `step` is complete."""

    def publishes(self, step: int) -> bool:
        """Return whether the weights of `step` go to the generators.

        Those of an incarnation's start always do.
        """

    def dispatch(self, state: PipelineState) -> int:
        """Return how many tasks to dispatch now."""

    def window(self, step: int) -> int:
        """Return W(t), the most groups that may be dispatched and not settled while the trainer is
        at `step`.
        """
        return staleness.window(
            floor=self.floor(step),
            max_staleness=self.max_staleness,
            step=step,
            groups_per_step=self.groups_per_step,
        )

    def next_batch(self, state: PipelineState) -> Batch | Wait:
        """Return the groups to train on now, or the reason to wait. Not to be called while a batch
        is in training.

        These are the P oldest ready groups if the staleness gate lets them go.
        """
        if self._weights_are_late(state):
            return Wait(WaitReason.WEIGHTS)
        floor = self.floor(state.step)
        groups_per_step = self.groups_per_step
        batch = staleness.oldest_ready(
            state.groups, floor=floor, max_staleness=self.max_staleness, count=groups_per_step
        )
        if len(batch) < groups_per_step:
            return Wait(WaitReason.BATCH)
        oldest = staleness.deadline(batch[0], floor=floor, max_staleness=self.max_staleness)
        assert oldest >= state.step, (
            f"group {batch[0].sequence} was due at step {oldest}; give up `unusable` first"
        )
        chosen = {group.sequence for group in batch}
        remaining = [group for group in state.groups if group.sequence not in chosen]
        late = staleness.stragglers(
            remaining,
            floor=floor,
            max_staleness=self.max_staleness,
            step=state.step,
            groups_per_step=groups_per_step,
        )
        if late:
            return Wait(WaitReason.STRAGGLER, tuple(group.sequence for group in late))
        return Batch(tuple(group.sequence for group in batch))

    def unusable(self, state: PipelineState) -> tuple[int, ...]:
        """Return the sequences to give up because no order of steps can use them in time; () except
        after a restart.
        """
        given_up = staleness.unusable(
            state.groups,
            floor=self.floor(state.step),
            max_staleness=self.max_staleness,
            step=state.step,
            groups_per_step=self.groups_per_step,
        )
        return tuple(group.sequence for group in given_up)

    def _weights_are_late(self, state: PipelineState) -> bool:
        return state.acknowledged is not None and state.acknowledged < self.floor(state.step)


@dataclass(frozen=True, slots=True)
class PipelineRL(Schedule):
    """pipeline-k (PipelineRL-k), k = `max_staleness`: generators stream, every step is published,
    the trainer is at most k ahead.

    The window opens at P and grows by P per step, else the first batches would be made of the
    shortest groups. For k > 3 the last P groups of a full window are held back until every member
    samples with the newest weights: started a moment earlier they would be one step older all their
    life and the trainer would wait for them one step sooner. k = 0 is on-policy: generate P groups
    with the newest weights, make one step, publish, wait for every member.
    """

    # `field()`, else a dataclass would take the inherited property for the default.
    max_staleness: int = field()
    groups_per_step: int = field()

    def __post_init__(self) -> None:
        assert self.max_staleness >= 0, self.max_staleness
        assert self.groups_per_step >= 1, self.groups_per_step

    def floor(self, step: int) -> int:
        return step - staleness.sampling_lag(self.max_staleness)

    def publishes(self, step: int) -> bool:
        return True

    def dispatch(self, state: PipelineState) -> int:
        if self._weights_are_late(state):
            return 0
        widest = self.window(state.step)
        if (
            self.max_staleness > 3
            and state.acknowledged is not None
            and state.acknowledged < state.step
        ):
            widest -= self.groups_per_step
        opened = (1 + state.steps_since_start) * self.groups_per_step
        # At least one batch in training and one ready.
        enough = widest if state.enough is None else max(state.enough, 2 * self.groups_per_step)
        return max(0, min(widest, opened, enough) - len(state.groups))


@dataclass(frozen=True, slots=True)
class PPOOffPolicy(Schedule):
    """ppo-off-policy-k: generate k P groups with one policy, then make k = `updates` steps, publish
    the last.

    A round starts at every multiple of k; after a restart inside a round only the rest of it is
    generated. No step is made before the whole rest of the round is ready. A token is at most k - 1
    steps old.
    """

    updates: int
    groups_per_step: int = field()

    def __post_init__(self) -> None:
        assert self.updates >= 1, self.updates
        assert self.groups_per_step >= 1, self.groups_per_step

    @property
    def max_staleness(self) -> int:
        return self.updates - 1

    def floor(self, step: int) -> int:
        return step - step % self.updates

    def publishes(self, step: int) -> bool:
        return step % self.updates == 0

    def dispatch(self, state: PipelineState) -> int:
        if self._weights_are_late(state):
            return 0
        return max(0, self.window(state.step) - len(state.groups))

    def next_batch(self, state: PipelineState) -> Batch | Wait:
        is_whole = self.dispatch(state) == 0 and all(group.ready for group in state.groups)
        if not is_whole and not self._weights_are_late(state):
            return Wait(WaitReason.BATCH)
        # Zero-argument super() would look for the class that `slots` has replaced.
        return Schedule.next_batch(self, state)


def make_schedule(settings: config.Schedule, *, groups_per_step: int) -> Schedule:
    """Return the schedule that the recipe names."""
    if settings.kind == "pipeline":
        return PipelineRL(max_staleness=settings.max_staleness, groups_per_step=groups_per_step)
    return PPOOffPolicy(updates=settings.max_staleness, groups_per_step=groups_per_step)

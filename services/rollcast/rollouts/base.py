"""Wire 1 as its two ends see it. Redis (`redis_streams`) and memory (`memory`) behave alike: one
test suite holds both.

Life of a task; every arrow is one atomic script, so a snapshot never sees a task twice or not at
all:

    dispatch --> waiting --claim--> claimed --publish--> finished --remove--> gone
                  ^  ^                | |
                  |  +---hand_back----+ |            same attempt, partial rollouts travel along
                  +--fail, fence, redo, sweep        attempt + 1
                                        |
                                        +--> dead --retire--> gone      third failure or unreadable

A generator owns a task as long as its entry is pending under its name. Whatever it sends after the
task was taken from it is refused and counted. All calls may be repeated: a repeated one finds that
its work is done and changes nothing.

Tasks that Redis loses (a second of AOF, a stream, everything) are missing from `outstanding()`; the
trainer dispatches again every task that it dispatched, has not settled, does not hold and does not
find there. Redis may also forget a removal and deliver a group again: the trainer's ledger of
settled sequences recognises it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from rollcast.rollouts.records import Claim, PromptTask, Purpose, RolloutGroup
from rollcast.wire.version import PolicyVersion

MAX_FAILURES = 3
"""A task that failed this often is dead. A hand-back is no failure."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An unclaimed task."""

    attempt: int
    purpose: Purpose
    stream_id: str
    first_version: PolicyVersion | None
    """First version of the partial rollouts it carries; None = no token yet."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished group that is still on the queue, whether or not the trainer has read it."""

    attempt: int
    purpose: Purpose
    stream_id: str
    """On the rollout stream."""
    first_version: PolicyVersion
    owner: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Dead:
    """A task that was given up.

    It stays in the snapshot until it is retired: its credit is returned once.
    """

    attempt: int
    """Failures. Below `MAX_FAILURES` its answer, or the task itself, could not be read: it may be
    dispatched again."""
    purpose: Purpose
    stream_id: str
    """On the dead stream."""
    reason: str


@dataclass(frozen=True, slots=True)
class Outstanding:
    """Every task that was dispatched and is still on the queue, by sequence:
    one consistent moment.
    """

    waiting: dict[int, Waiting] = field(default_factory=dict)
    claims: dict[int, Claim] = field(default_factory=dict)
    finished: dict[int, Finished] = field(default_factory=dict)
    dead: dict[int, Dead] = field(default_factory=dict)

    @property
    def sequences(self) -> frozenset[int]:
        return frozenset[int]().union(self.waiting, self.claims, self.finished, self.dead)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A group as read from the queue; it stays there until its `stream_id` is removed."""

    stream_id: str
    group: RolloutGroup
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Redispatch:
    """Outcome of tasks that were taken from their owners: waiting again, or dead after too many
    failures.
    """

    redone: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Claimed:
    """A task this generator owns. `task.attempt` counts its failures so far."""

    task: PromptTask
    stream_id: str
    first_version: PolicyVersion
    """The recorded one: of the rollouts handed back, else of the weights at the claim."""

    @property
    def entry(self) -> tuple[Purpose, str]:
        """The place on the task streams."""
        return self.task.purpose, self.stream_id

    def handed_back(self, task: PromptTask) -> PromptTask:
        """Return `task` as its next owner gets it: same attempt, one more hand-back, first version
        of its tokens.
        """
        has_tokens = any(rollout.num_tokens for rollout in task.rollouts)
        return replace(
            task,
            attempt=self.task.attempt,
            hand_backs=self.task.hand_backs + 1,
            first_version=self.first_version if has_tokens else None,
        )


class QueueEnd(Protocol):
    """Counts that both ends keep."""

    @property
    def unknown_fields(self) -> int:
        """Fields that a newer program wrote and this one does not know, so far."""

    @property
    def away_seconds(self) -> float:
        """Seconds without Redis so far."""


class TrainerQueue(QueueEnd, Protocol):
    """Trainer rank 0's end.

    Blocking; one thread, but `fence` may come from another. Raises QueueAway.
    """

    def start_incarnation(self, at_least: int) -> int:
        """Begin the next incarnation and return it: one more than the last, and never below
        `at_least`.

        Raises UserError if the last one's number is damaged: versions of two incarnations must not
        share a name."""

    def dispatch(self, tasks: Sequence[PromptTask]) -> list[int]:
        """Queue tasks by purpose; returns the sequences added.

        One that is outstanding already is left alone.
        """

    def read(self, max_groups: int, block_seconds: float) -> list[Delivery]:
        """Return up to `max_groups` groups not returned before by this object, waiting up to
        `block_seconds` for one.

        Groups that a former trainer read and did not remove come too. Unreadable entries, and those
        whose publisher did not own the task, are buried and counted.
        """

    def remove(self, stream_ids: Sequence[str]) -> None:
        """Take groups off the queue for good."""

    def bury(self, reasons: Mapping[str, str]) -> None:
        """Take groups that must not be used off the queue, by stream id; their tasks may be
        dispatched again.
        """

    def outstanding(self) -> Outstanding: ...

    def fence(self, owner: str, reason: str) -> Redispatch:
        """Remove a generator: its tasks go on with attempt + 1, its answers and claims are refused
        from now on.
        """

    def sweep(self, idle_seconds: float) -> Redispatch:
        """Take the tasks whose owners did not renew them for `idle_seconds`."""

    def redo(self, sequences: Sequence[int], reason: str) -> Redispatch:
        """Take single tasks from their owners. Those not claimed are left alone."""

    def retire(self, sequences: Sequence[int]) -> None:
        """Take tasks off wire 1 wherever they are; an answer that still comes is refused."""

    def count_refused(self) -> int:
        """Return how many late answers were refused since the run began."""

    def unreadable(self) -> int:
        """Return how many useless entries and records were found since the run began."""

    def get_state(self, name: str) -> bytes | None:
        """Return the value that `set_state` stored under `name`."""

    def set_state(self, name: str, value: bytes) -> None:
        """Store a value with the run."""

    def close(self) -> None:
        """Let go of connections."""


class GeneratorQueue(QueueEnd, Protocol):
    """A generator's end, for asyncio. Raises QueueAway if Redis stays away."""

    owner: str

    async def claim(
        self,
        *,
        train: int,
        evals: int,
        first_version: Callable[[], PolicyVersion],
        block_seconds: float,
    ) -> list[Claimed]:
        """Claim up to `evals` tasks of evaluation and `train` of training, waiting up to
        `block_seconds` for the first.

        The claim and its first version are on record, atomically, before a task is returned.
        `first_version` is called right before that, never across the wait; see
        `wait_until_recorded`. Raises OwnerFenced.
        """

    async def wait_until_recorded(self) -> None:
        """Return once no claim is under way whose first version was asked for and is not yet on
        record.

        To be awaited after new weights were applied and before they are acknowledged: the staleness
        gate relies on it.
        """

    async def renew(self, claimed: Sequence[Claimed]) -> list[int]:
        """Say that these tasks are being worked on; returns the sequences this generator does not
        own any more.
        """

    async def publish(self, claimed: Claimed, group: RolloutGroup) -> bool:
        """Hand the finished group to the trainer and let go of the task; False = refused, it has
        another owner.
        """

    async def hand_back(self, claimed: Claimed, task: PromptTask) -> bool:
        """Return the task, with the rollouts so far, to be continued by another; False = refused.

        No failure.
        """

    async def fail(self, claimed: Claimed, reason: str) -> bool:
        """Count a failure: the task goes on with attempt + 1 or is dead; False = refused."""

    async def close(self) -> None:
        """Let go of connections. Claimed tasks stay claimed."""

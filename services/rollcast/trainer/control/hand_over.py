"""Which groups a slow generator hands over, partial rollouts and all, so that a faster one finishes
them in time.

    sampled by now = seconds since the claim x the owner's decode rate
    remaining      = the longest recent rollout (the whole budget once that is outlasted) - sampled
                   by now
    here           = remaining / the owner's rate
    there          = the move + the queue + remaining / the fastest rate

A group is moved when its owner is far slower than the fastest generator, `stay_seconds` misses the
group's deadline, `move_seconds` is sooner, and waiting longer would be risky. Until then the owner
goes on sampling, because short groups may still end in time. Lengths are in tokens, which do not
depend on the generator: recent groups of a slow one do not distort them.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rollcast.recipe.staleness import Group, deadline
from rollcast.rollouts.records import Claim

MIN_SPEED_RATIO = 2.0
"""The fastest generator's decode rate over the owner's. Smaller ratios are noise: rates fall with
an engine's load."""


@dataclass(frozen=True, slots=True)
class GroupOutlook:
    """Expectations from recent steps and groups."""

    step_seconds: float
    """Duration of an undisturbed trainer step."""
    longest_tokens: int
    """Length of the longest rollout of recent groups."""
    token_budget: int
    """No rollout is longer."""
    queue_seconds: float
    """How long a task that is handed back waits behind others."""


def groups_to_move(
    groups: Iterable[Group],
    claims: Mapping[int, Claim],
    rates: Mapping[str, float],
    outlook: GroupOutlook,
    *,
    step: int,
    floor: int,
    max_staleness: int,
    waited_for: Collection[int],
    now_seconds: float,
) -> dict[str, list[int]]:
    """Return the sequences that each generator should hand over.

    `rates`: decode rates of one rollout in tokens per second, by generator, of those that may
    claim; 0 = unknown. `waited_for`: sequences that the trainer waits for already, whatever their
    deadline. `now_seconds`: Unix seconds.
    """
    fastest = max(rates.values(), default=0.0)
    moves: dict[str, list[int]] = {}
    for group in groups:
        claim = claims.get(group.sequence)
        rate = rates.get(claim.owner, 0.0) if claim is not None else 0.0
        if group.ready or claim is None or rate <= 0.0 or fastest < MIN_SPEED_RATIO * rate:
            continue
        last_step = deadline(group, floor=floor, max_staleness=max_staleness)
        steps_left = 0 if group.sequence in waited_for else max(0, last_step - step)
        seconds_left = steps_left * outlook.step_seconds
        if _is_to_move(
            max(0.0, now_seconds - claim.claimed_at), rate, fastest, seconds_left, outlook
        ):
            moves.setdefault(claim.owner, []).append(group.sequence)
    return moves


def _is_to_move(
    elapsed: float, rate: float, fastest: float, seconds_left: float, outlook: GroupOutlook
) -> bool:
    sampled = elapsed * rate
    # A rollout that has outlasted the recent ones may use the whole budget.
    expected = outlook.longest_tokens if sampled < outlook.longest_tokens else outlook.token_budget
    remaining = max(0.0, expected - sampled)
    stay_seconds = remaining / rate
    # Time from the request to the next owner's first token: both ends poll the queue every half
    # second
    move_seconds = 2.0 + outlook.queue_seconds + remaining / fastest
    return (
        # With more than twice the time that the next owner needs, the group stays for now: it may
        # still end in time.
        stay_seconds > seconds_left
        and move_seconds < stay_seconds
        and seconds_left <= 2.0 * move_seconds
    )


@dataclass(eq=False)
class HandOvers:
    """Asks each owner once for each task: one that gets it again, because no other had room, keeps
    it.
    """

    _requested_pairs: set[tuple[int, str]] = field(default_factory=set)

    def request(
        self,
        moves: Mapping[str, Sequence[int]],
        outstanding: Container[int],
        ask: Callable[[str, Sequence[int]], bool],
    ) -> dict[str, list[int]]:
        """Ask for the moves that were not asked for before, and return them.

        `outstanding`: tasks that are worth remembering. `ask(generator, sequences)`: False = it
        cannot be reached.
        """
        self._requested_pairs = {pair for pair in self._requested_pairs if pair[0] in outstanding}
        requested = {}
        for generator, sequences in moves.items():
            new = [
                sequence
                for sequence in sequences
                if (sequence, generator) not in self._requested_pairs
            ]
            if new and ask(generator, new):
                self._requested_pairs.update((sequence, generator) for sequence in new)
                requested[generator] = new
        return requested

"""A TrainingTrace of OpenEnv and the record of the same session, joined: call by call, by all of
their tokens.

    record    turns      tokens, log-probs, spans: they are trained
    trace     calls      which of them are trained, and which of their tokens

If a call has other tokens than were sampled here, the reward may be for something else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rollcast.environments.openenv_sessions.adapter import call_digest
from rollcast.environments.openenv_sessions.helper import OpenEnvTrace
from rollcast.generator.episodes.record import EpisodeRecord

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class TracedLoss:
    """Which tokens of a record a trace trains."""

    untrained: frozenset[int]
    """Numbers of the turns that it does not have, or has without loss."""
    masked: dict[int, Ranges]
    """The tokens without loss in each turn that it trains in part, counted from the turn's
    first."""


def traced_loss(
    record: EpisodeRecord, read_turns: Sequence[int], trace: OpenEnvTrace
) -> TracedLoss | None:
    """`read_turns`: numbers of the turns that a client read. None = the trace has a call that was
    not sampled here.

    Of calls with the same tokens those that were read come first.
    """
    unread = sorted(set(range(len(record.turns))) - set(read_turns))
    numbers: dict[str, list[int]] = {}
    for number in (*sorted(read_turns), *unread):
        numbers.setdefault(call_digest(*record.turn_tokens(number)), []).append(number)
    masked: dict[int, Ranges] = {}
    trained: set[int] = set()
    for call in trace.calls:
        matching_turns = numbers.get(call.digest)
        if not matching_turns:
            return None
        number = matching_turns.pop(0)
        length = record.turns[number].end - record.turns[number].start
        if not _are_inside(call.masked, length):
            return None
        # A call whose tokens are all without loss is not trained.
        if call.masked != ((0, length),):
            trained.add(number)
            masked[number] = call.masked
    return TracedLoss(frozenset(set(range(len(record.turns))) - trained), masked)


def _are_inside(ranges: Ranges, length: int) -> bool:
    """Whether ranges are ascending, apart, and inside [0, length)."""
    end = -1
    for start, stop in ranges:
        if not end < start < stop <= length:
            return False
        end = stop
    return True

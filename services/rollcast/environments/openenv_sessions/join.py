"""A TrainingTrace of OpenEnv and the record of the same session, joined: call by call, by all of
their tokens.

    record    turns      tokens, log-probs, spans: they are trained
    trace     calls      which of them are trained, and which of their tokens

If a call has other tokens than were sampled here, the reward may be for something else.
"""

from rollcast.environments.openenv_sessions.adapter import call_digest
from rollcast.environments.openenv_sessions.helper import OpenEnvTrace
from rollcast.environments.traces import Ranges, SampledRecord, TracedLoss
from rollcast.rollouts.records import EpisodeEnd


def traced_loss(record: SampledRecord, trace: OpenEnvTrace) -> TracedLoss | None:
    """None = the trace has a call that was not sampled here.

    Of calls with the same tokens those that a client read come first.
    """
    read_numbers = sorted(turn.number for turn in record.read_turns)
    unread = sorted(set(range(record.num_turns)) - set(read_numbers))
    numbers: dict[str, list[int]] = {}
    for number in (*read_numbers, *unread):
        numbers.setdefault(call_digest(*record.turn_tokens(number)), []).append(number)
    masked: dict[int, Ranges] = {}
    trained: set[int] = set()
    for call in trace.calls:
        matching_turns = numbers.get(call.digest)
        if not matching_turns:
            return None
        number = matching_turns.pop(0)
        length = len(record.turn_tokens(number)[1])
        if not _are_inside(call.masked, length):
            return None
        # A call whose tokens are all without loss is not trained.
        if call.masked != ((0, length),):
            trained.add(number)
            masked[number] = call.masked
    untrained = frozenset(range(record.num_turns)) - trained
    return TracedLoss(untrained, masked, EpisodeEnd.SECONDS if trace.is_late else None)


def _are_inside(ranges: Ranges, length: int) -> bool:
    """Whether ranges are ascending, apart, and inside [0, length)."""
    end = -1
    for start, stop in ranges:
        if not end < start < stop <= length:
            return False
        end = stop
    return True

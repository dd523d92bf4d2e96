"""Decides the number of generators: a pure function of the measured rates, the earlier decisions
and the settings.

    need         tokens a second that the trainer consumes while it does not wait for a batch. Other
                 waits reduce it: more generators would not shorten them.
    capability   tokens a second that one generator delivers. Measured while the trainer waits for
                 batches because all generators are full. At other times only a lower bound is
                 measured.
    n*           need / capability x 1.01 x (1 + growth of the lengths until a pod asked for
                 now samples)

While only a lower bound of capability is known, n* is not known either. Slots are then free and the
trainer does not wait, so one generator is let go from time to time until capability is measured.
Keeping it prevents oscillation. After two hours one generator fewer than n* is tried. An autoscaler
that starts during a run waits that long before it lets the first one go, because it does not know
what its predecessor measured. A generator samples fewer tokens a second of longer answers, so a
capability measured with shorter answers bounds n* from below, one with longer answers from above.

A rise takes effect immediately while the trainer waits for batches, else when n* was larger for a
whole window. It asks for at most twice the generators that have joined, and for more only once
these have: each join begins a new measurement. A fall goes one pod at a time after n* was smaller
for ten minutes. The number never exceeds the groups of the staleness window: when that is full and
slots are free, another generator would find nothing to claim.
"""

import math
from dataclasses import dataclass, replace

from rollcast.autoscaler.decision_memory import Memory, ReplicaLimits
from rollcast.autoscaler.totals import WindowRates
from rollcast.config.autoscaler import Autoscaler as Settings


@dataclass(frozen=True, slots=True)
class Decision:
    target: int
    reason: str
    """One sentence."""
    memory: Memory
    need: float | None = None
    """Tokens a second; None = not measured."""


def decide(
    now_seconds: float,
    measured: WindowRates | str,
    memory: Memory,
    limits: ReplicaLimits,
    settings: Settings,
) -> Decision:
    """The number of generators to ask for now.

    `measured`: the rates, or one sentence on why they are missing.
    """
    min_generators = settings.least
    # A group is sampled by one generator, so the window has work for W of them.
    max_generators = max(min_generators, min(settings.most, limits.window_groups))
    # The bounds do not allow the number, as after a change of settings.
    if memory.target < min_generators:
        reason = f"raising to {min_generators}: {_lower_bound(min_generators)}"
        return _hold(replace(memory, target=min_generators), reason)
    if memory.target > max_generators:
        reason = f"lowering to {max_generators}: {_upper_bound(max_generators, settings)}"
        return _hold(replace(memory, target=max_generators), reason)
    if isinstance(measured, str):
        return _hold(memory, f"holding {memory.target}: {measured}")
    # Share of the time without Redis above which nothing is decided: the rates then say nothing
    # about generators
    if measured.redis_wait > 0.2:
        return _hold(
            memory,
            f"holding {memory.target}: Redis was away for {measured.redis_wait:.0%} of the time",
        )
    # Tokens a second of a trainer that never waits for a batch; until that is measured, the sampled
    # ones.
    need = measured.sampled if measured.consumption is None else measured.consumption
    memory = _learn(now_seconds, measured, memory, limits)
    num_generators, explanation = _count_required(
        now_seconds, need, measured, memory, limits, settings
    )
    if num_generators > max_generators:
        explanation += f"; more would be needed, and {_upper_bound(max_generators, settings)}"
    elif num_generators < min_generators:
        explanation += f"; fewer would do, and {_lower_bound(min_generators)}"
    num_generators = min(max(num_generators, min_generators), max_generators)
    memory = _remember_required(now_seconds, num_generators, memory, settings)
    recent_required = [
        number
        for recorded_at, number in memory.required_history
        if recorded_at > now_seconds - settings.window_seconds
    ]
    rise = num_generators if _is_starved(measured, limits) else min(recent_required)
    if rise > memory.target:
        return _rise(
            now_seconds, rise, explanation, need, measured, memory, max_generators, settings
        )
    return _fall(now_seconds, explanation, need, memory, settings)


def _remember_required(
    now_seconds: float, num_generators: int, memory: Memory, settings: Settings
) -> Memory:
    """Add n* of now to those over the time that a fall has to wait."""
    keep_from = now_seconds - settings.lower_after_seconds
    history = memory.required_history
    # The newest entry before the window is kept as well: it was in force at the window's beginning.
    first_kept = max(sum(recorded_at < keep_from for recorded_at, _ in history) - 1, 0)
    return replace(memory, required_history=(*history[first_kept:], (now_seconds, num_generators)))


def required_generators(
    need: float, capability: float, measured: WindowRates, settings: Settings
) -> float:
    """n*, not rounded."""
    ahead = settings.window_seconds / 2 + settings.start_up_seconds
    # Upper limit of the relative growth of lengths that is extrapolated
    growth = min(max(measured.growth * ahead, 0.0), 0.5)
    # 1.01: more costs devices; less lets chance starve the trainer
    num_generators = need / capability * 1.01 * (1.0 + growth)
    # Upper limit of n*, which diverges if one generator is measured to sample next to nothing
    return min(num_generators, 1e9)


def _learn(
    now_seconds: float,
    measured: WindowRates,
    memory: Memory,
    limits: ReplicaLimits,
) -> Memory:
    """Update capability, which is at least the rate at which one generator sampled."""
    tokens_per_second = measured.sampled_by_one
    if tokens_per_second <= 0:
        return memory
    if _is_starved(measured, limits):
        return replace(
            memory,
            capability=tokens_per_second,
            seen_at=now_seconds,
            seen_tokens=measured.mean_tokens,
        )
    known_capability = (
        0.0 if memory.seen_at is None or memory.capability is None else memory.capability
    )
    return replace(memory, capability=max(known_capability, tokens_per_second))


def _count_required(
    now_seconds: float,
    need: float,
    measured: WindowRates,
    memory: Memory,
    limits: ReplicaLimits,
    settings: Settings,
) -> tuple[int, str]:
    """n* rounded, and why."""
    target = memory.target
    waits = f"the trainer waits for batches {measured.batch_wait:.1%} of the time"
    if memory.capability is None:
        return target, "nothing was sampled yet"
    starved = _is_starved(measured, limits)
    if starved and not _is_full(measured, limits) and _window_is_full(measured, limits):
        idle = "the staleness window is full and slots are free: nothing is left to claim"
        return target, f"{waits}, but {idle}"
    if memory.seen_at is None:
        if now_seconds < memory.tries_from:
            unknown = "what one generator samples at most is not known since the autoscaler's start"
            return target, f"{waits}; {unknown}"
        return _probe(measured, target, limits, settings)
    exact = required_generators(need, memory.capability, measured, settings)
    explanation = (
        f"{need:,.0f} tokens/s needed, one generator samples {memory.capability:,.0f}; {waits}"
    )
    number = math.ceil(exact - 1e-9)
    longer = _length_change(measured, memory)
    fewest, room = _probe(measured, target, limits, settings)
    # A generator samples more tokens a second of shorter answers, fewer of longer: n* bounds from
    # above, from below. Relative change of the mean completion within which a measured capability
    # still holds.
    max_length_change = 0.1
    if longer < -max_length_change and not starved:
        return min(fewest, number), room
    # Less than the surplus in n* is missing: no reason to rise while the trainer does not wait
    if not starved and target < exact <= 1.01 * target:
        return target, explanation
    if starved and _is_full(measured, limits):
        # No working generator is let go while the trainer waits for more, whatever the noisy rates
        # say.
        return max(number, min(target, measured.generators_now)), explanation
    if starved or number > target:
        return number, explanation
    if longer > max_length_change:
        return max(fewest, number), room
    if now_seconds - memory.seen_at >= limits.probe_again_seconds and fewest < number:
        return number - 1, f"{room}; it is long ago that more was seen to be needed"
    return number, explanation


def _length_change(measured: WindowRates, memory: Memory) -> float:
    """Relative change of the mean completion since capability was measured; 0 if it is unknown."""
    if measured.mean_tokens is None or memory.seen_tokens is None:
        return 0.0
    return measured.mean_tokens / memory.seen_tokens - 1.0


def _probe(
    measured: WindowRates, target: int, limits: ReplicaLimits, settings: Settings
) -> tuple[int, str]:
    """The fewest generators that could suffice while slots are free, and why.

    One is let go at a time.
    """
    # Share of `most_batch_wait` above which the generators are just enough, so none is let go on
    # trial
    if measured.batch_wait > 0.25 * limits.most_batch_wait:
        waits = f"the trainer waits for batches {measured.batch_wait:.1%} of the time"
        return target, f"{waits}: just enough"
    if measured.straggler_wait > limits.most_batch_wait:
        explanation = (
            f"the trainer waits for stragglers {measured.straggler_wait:.1%} of the time: slots "
            "are free for it"
        )
        return target, explanation
    if (
        target > measured.generators_now
        or target <= measured.generators_now * (1 - settings.ignored_change) - 1
    ):
        return target, f"{measured.generators_now} generators work, not yet {target}"
    fewest = math.ceil(measured.generators * measured.running / limits.slots)
    room = f"the trainer never waits for a batch and slots are free: {fewest} may do"
    return min(target, fewest), room


def _rise(
    now_seconds: float,
    num_generators: int,
    explanation: str,
    need: float,
    measured: WindowRates,
    memory: Memory,
    max_generators: int,
    settings: Settings,
) -> Decision:
    joined = measured.generators_now
    present = max(memory.target, joined)
    if settings.ignored_change and num_generators > present:
        num_generators = max(
            num_generators, math.floor(present * (1 + settings.ignored_change) + 1e-9) + 1
        )
    # A rise asks for at most this many times the generators that have joined; with those it is
    # measured again
    num_generators = min(num_generators, max_generators, max(math.floor(joined * 2.0), joined + 1))
    if num_generators <= memory.target:
        reason = f"keeping {memory.target} until they have joined, {joined} have: {explanation}"
        return Decision(memory.target, reason, memory, need)
    raised = replace(memory, target=num_generators, rose_at=now_seconds)
    return Decision(num_generators, f"raising to {num_generators}: {explanation}", raised, need)


def _fall(
    now_seconds: float, explanation: str, need: float, memory: Memory, settings: Settings
) -> Decision:
    target = memory.target
    highest = max(num_generators for _, num_generators in memory.required_history)
    if highest >= target:
        return Decision(target, f"keeping {target}: {explanation}", memory, need)
    since = max(memory.rose_at, memory.required_history[0][0])
    if now_seconds - since < settings.lower_after_seconds or now_seconds - memory.fell_at < _pause(
        memory, settings
    ):
        return Decision(target, f"keeping {target} for now: {explanation}", memory, need)
    lowered = replace(memory, target=target - 1, fell_at=now_seconds)
    return Decision(target - 1, f"lowering to {target - 1}: {explanation}", lowered, need)


def _pause(memory: Memory, settings: Settings) -> float:
    """Seconds between two falls.

    A fall on trial must show its effect before trials reach 5 % of the fleet.
    """
    if memory.seen_at is not None:
        return settings.lower_every_seconds
    # 0.05: share of the fleet that may go within one window while capability is not known.
    tries = max(1, math.floor(0.05 * memory.target))
    return max(settings.lower_every_seconds, settings.window_seconds / tries)


def _lower_bound(min_generators: int) -> str:
    return f"autoscaler.least is {min_generators}"


def _upper_bound(max_generators: int, settings: Settings) -> str:
    if max_generators == max(settings.most, settings.least):
        return f"autoscaler.most is {max_generators}"
    return f"the staleness window has work for {max_generators}"


def _hold(memory: Memory, reason: str) -> Decision:
    """Keep the number and forget the earlier n*: a fall needs ten minutes of uninterrupted
    measurements.
    """
    return Decision(memory.target, reason, replace(memory, required_history=()))


def _is_starved(measured: WindowRates, limits: ReplicaLimits) -> bool:
    """The trainer waits because generators are too few: they are full, sample too little, or the
    wait goes on for long.

    Otherwise enough is sampled but arrives unevenly, as after every change of the fleet.
    """
    # A straggler blocks dispatch, so after it the trainer waits for groups that could not be
    # dispatched earlier.
    if measured.batch_wait <= max(limits.most_batch_wait, measured.straggler_wait):
        return False
    # Sampled tokens as a share of the consumption from which sampling keeps up
    lacking = measured.consumption is not None and measured.sampled < 0.97 * measured.consumption
    long = measured.long_batch_wait > limits.most_batch_wait
    return _is_full(measured, limits) or lacking or long


def _is_full(measured: WindowRates, limits: ReplicaLimits) -> bool:
    """Groups are claimed as soon as they fit: free slots, between none and one group's, are half of
    that on average.
    """
    return limits.slots - measured.running <= limits.rollouts_per_group / 2


def _window_is_full(measured: WindowRates, limits: ReplicaLimits) -> bool:
    # Share of the staleness window from which it counts as full
    return measured.outstanding >= 0.95 * limits.window_groups

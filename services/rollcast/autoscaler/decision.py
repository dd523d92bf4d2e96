"""How many generators: a pure function of what was measured, of what was decided before and of the settings.

    need         tokens a second that the trainer consumes while it does not wait for a batch. Other waits make it
                 less: no generator shortens them.
    capability   tokens a second that one generator delivers. Seen where the trainer waits for batches because the
                 generators are fully taken. Elsewhere only a lower bound is seen.
    n*           need / capability x (1 + margin) x (1 + growth of the lengths until a pod asked for now samples)

While capability is only bounded n* is not known; slots are free and the trainer does not wait, so one generator fewer
is let go from time to time, until capability is seen. Then it is known, which is what keeps the number from swinging;
after two hours one generator fewer than n* is tried. An autoscaler that starts beside a run at work waits as long
before it lets the first one go so: what another saw before is not known to it. A generator samples fewer tokens a
second of longer answers, so what was seen of shorter ones bounds n* from below, and of longer ones from above.

A rise takes effect at once where the trainer waits for batches, else when n* was larger for a whole window. A fall goes
one pod at a time after n* was smaller for ten minutes. Never more than the staleness window has groups for; where it is
full and slots are free, another generator would find nothing to claim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rollcast.autoscaler.totals import WindowRates
from rollcast.config.autoscaler import Autoscaler as Settings

ENOUGH_SAMPLED = 0.97
"""Share of the consumption that is as good as all of it."""
SAME_LENGTHS = 0.1
"""Relative change of the mean completion within which a capability that was seen still holds."""
RISE_WORTH_IT = 0.01
"""Relative excess of n* over the number that is left to the margin while the trainer does not wait."""
MOST_GROWTH = 0.5
"""Relative growth of lengths that is believed over the time ahead."""
MOST_REQUIRED = 1e9
"""More generators than anybody has: where one is measured to sample next to nothing, n* is not told beyond it."""
MOST_RISE = 2.0
"""The number at most doubles at once: then it is measured anew."""
REDIS_AWAY = 0.2
"""Share of the time without Redis from which nothing can be said of the generators."""
PROBED = 0.05
"""Share of the fleet that may go within one window while capability is not known."""
JUST_ENOUGH = 0.25
"""Share of `most_batch_wait` from which the generators are just enough, and none is let go to try."""
WINDOW_FULL = 0.95
"""Share of the staleness window that is as good as full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """Slots, as the generators or else the run file tell them, and what the run file says of staleness."""

    slots: int
    """Rollouts that one generator runs at once."""
    rollouts_per_group: int
    window_groups: int
    """Most groups that may be dispatched and not settled: W of the staleness gate at its widest."""

    def bounds(self, settings: Settings) -> tuple[int, int]:
        """Least and most generators: a group is sampled by one generator, so the window has work for W of them."""
        return settings.least, max(settings.least, min(settings.most, self.window_groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the next decision has to know of the ones before. Times in seconds on the clock of the measurements."""

    target: int
    capability: float | None = None
    """Tokens a second of one generator: seen, or the most so far."""
    seen_at: float | None = None
    """When it was seen with generators fully taken; None = it is a lower bound."""
    seen_tokens: float | None = None
    """Mean completion then."""
    wanted: tuple[tuple[float, int], ...] = ()
    """(time, n*) for as long as a fall has to wait."""
    rose_at: float = -math.inf
    fell_at: float = -math.inf
    tries_from: float = -math.inf
    """Before, no generator is let go only to find out whether fewer do."""

    @classmethod
    def of_a_start(cls, target: int, now: float, settings: Settings) -> Memory:
        """For an autoscaler that starts: another may have found out before what this one does not know."""
        return cls(target=target, tries_from=now + settings.probe_again_seconds)


@dataclass(frozen=True, slots=True)
class Decision:
    target: int
    reason: str
    """One sentence."""
    memory: Memory
    need: float | None = None
    """Tokens a second; None = not measured."""


def decide(
    now: float, measured: WindowRates | str, memory: Memory, limits: ReplicaLimits, settings: Settings
) -> Decision:
    """The number of generators to ask for now. `measured`: the rates, or one sentence on why there are none."""
    least, most = limits.bounds(settings)
    memory = replace(memory, target=min(max(memory.target, least), most))
    if isinstance(measured, str):
        return _hold(memory, f"holding {memory.target}: {measured}")
    if measured.redis_wait > REDIS_AWAY:
        return _hold(memory, f"holding {memory.target}: Redis was away for {measured.redis_wait:.0%} of the time")
    need = needed_tokens(measured)
    memory = _learn(now, measured, memory, limits, settings)
    wanted, why = _wanted(now, need, measured, memory, limits, settings)
    wanted = min(max(wanted, least), most)
    keep_from = now - settings.lower_after_seconds
    # The newest that is older is kept as well: it is what held at the window's beginning.
    older = [entry for entry in memory.wanted if entry[0] < keep_from][-1:]
    recent = (*older, *(entry for entry in memory.wanted if entry[0] >= keep_from), (now, wanted))
    memory = replace(memory, wanted=recent)
    calm = [number for at, number in recent if at > now - settings.window_seconds]
    if wanted > memory.target and (_is_starved(measured, limits, settings) or min(calm) > memory.target):
        wanted = wanted if _is_starved(measured, limits, settings) else min(calm)
        return _rise(now, wanted, why, need, measured, memory, most, settings)
    return _fall(now, why, need, memory, settings)


def needed_tokens(measured: WindowRates) -> float:
    """Tokens a second for a trainer that never waits for a batch; at first what is sampled stands for it."""
    return measured.sampled if measured.consumption is None else measured.consumption


def required(need: float, capability: float, measured: WindowRates, settings: Settings) -> float:
    """n*, not rounded."""
    ahead = settings.window_seconds / 2 + settings.start_up_seconds
    growth = min(max(measured.growth * ahead, 0.0), MOST_GROWTH)
    wanted = need / capability * (1.0 + settings.margin) * (1.0 + growth)
    return min(wanted, MOST_REQUIRED)


def _learn(now: float, measured: WindowRates, memory: Memory, limits: ReplicaLimits, settings: Settings) -> Memory:
    """Capability, from what one generator sampled. It is never less than that."""
    one = measured.sampled_by_one
    if one <= 0:
        return memory
    if _is_starved(measured, limits, settings):
        return replace(memory, capability=one, seen_at=now, seen_tokens=measured.mean_tokens)
    if memory.seen_at is None or memory.capability is None:
        return replace(memory, capability=one)
    return replace(memory, capability=max(memory.capability, one))


def _wanted(
    now: float, need: float, measured: WindowRates, memory: Memory, limits: ReplicaLimits, settings: Settings
) -> tuple[int, str]:
    """n* rounded, and why."""
    target = memory.target
    waits = f"the trainer waits for batches {measured.batch_wait:.1%} of the time"
    if memory.capability is None:
        return target, "nothing was sampled yet"
    starved = _is_starved(measured, limits, settings)
    if starved and not _is_full(measured, limits) and _window_is_full(measured, limits):
        return target, f"{waits}, but the staleness window is full and slots are free: nothing is left to claim"
    if memory.seen_at is None:
        if now < memory.tries_from:
            return target, f"{waits}; what one generator samples at most is not known since the autoscaler's start"
        return _probe(measured, memory, limits, settings)
    exact = required(need, memory.capability, measured, settings)
    why = f"{need:,.0f} tokens/s needed, one generator samples {memory.capability:,.0f}; {waits}"
    number = math.ceil(exact - 1e-9)
    longer = 0.0
    if measured.mean_tokens is not None and memory.seen_tokens is not None:
        longer = measured.mean_tokens / memory.seen_tokens - 1.0
    fewest, room = _probe(measured, memory, limits, settings)
    # A generator samples more tokens a second of shorter answers, fewer of longer: n* bounds from above, from below.
    if longer < -SAME_LENGTHS and not starved:
        return min(fewest, number), room
    if not starved and target < exact <= target * (1 + RISE_WORTH_IT):
        return target, why
    if starved and _is_full(measured, limits):
        # Whatever chance says in what is measured: nobody who works is let go while the trainer waits for more.
        return max(number, min(target, measured.generators_now)), why
    if starved or number > target:
        return number, why
    if longer > SAME_LENGTHS:
        return max(fewest, number), room
    if now - memory.seen_at >= settings.probe_again_seconds and fewest < number:
        return number - 1, f"{room}; it is long ago that more was seen to be needed"
    return number, why


def _probe(measured: WindowRates, memory: Memory, limits: ReplicaLimits, settings: Settings) -> tuple[int, str]:
    """The fewest that could do, where generators have room; one of them is let go at a time."""
    target = memory.target
    if measured.batch_wait > JUST_ENOUGH * settings.most_batch_wait:
        return target, f"the trainer waits for batches {measured.batch_wait:.1%} of the time: just enough"
    if measured.straggler_wait > settings.most_batch_wait:
        return (
            target,
            f"the trainer waits for stragglers {measured.straggler_wait:.1%} of the time: slots are free for it",
        )
    if target > measured.generators_now or target <= measured.generators_now * (1 - settings.ignored_change) - 1:
        return target, f"{measured.generators_now} generators work, not yet {target}"
    fewest = math.ceil(measured.generators * measured.running / limits.slots)
    return min(target, fewest), f"the trainer never waits for a batch and slots are free: {fewest} may do"


def _rise(
    now: float,
    wanted: int,
    why: str,
    need: float,
    measured: WindowRates,
    memory: Memory,
    most: int,
    settings: Settings,
) -> Decision:
    present = max(memory.target, measured.generators_now)
    if settings.ignored_change and wanted > present:
        wanted = max(wanted, math.floor(present * (1 + settings.ignored_change) + 1e-9) + 1)
    wanted = min(wanted, most, max(math.floor(memory.target * MOST_RISE), memory.target + 1))
    raised = replace(memory, target=wanted, rose_at=now)
    return Decision(wanted, f"raising to {wanted}: {why}", raised, need)


def _fall(now: float, why: str, need: float, memory: Memory, settings: Settings) -> Decision:
    target, highest = memory.target, max(wanted for _, wanted in memory.wanted)
    if highest >= target:
        return Decision(target, f"keeping {target}: {why}", memory, need)
    since = max(memory.rose_at, memory.wanted[0][0])
    if now - since < settings.lower_after_seconds or now - memory.fell_at < _pause(memory, settings):
        return Decision(target, f"keeping {target} for now: {why}", memory, need)
    lowered = replace(memory, target=target - 1, fell_at=now)
    return Decision(target - 1, f"lowering to {target - 1}: {why}", lowered, need)


def _pause(memory: Memory, settings: Settings) -> float:
    """Between one pod that goes and the next. Where one fewer is only tried, what it did has to be seen before the
    tries amount to PROBED of the fleet."""
    if memory.seen_at is not None:
        return settings.lower_every_seconds
    tries = max(1, math.floor(PROBED * memory.target))
    return max(settings.lower_every_seconds, settings.window_seconds / tries)


def _hold(memory: Memory, reason: str) -> Decision:
    """What was wanted before is forgotten: a fall has to be called for by ten minutes of measurements."""
    return Decision(memory.target, reason, replace(memory, wanted=()))


def _is_starved(measured: WindowRates, limits: ReplicaLimits, settings: Settings) -> bool:
    """The trainer waits for want of generators: they are full, sample less than it consumes, or it goes on for long.

    Otherwise what is sampled would do; it comes unevenly, as after every change of the fleet.
    """
    # A straggler holds up everything, and when it came the trainer waits for what could not be dispatched meanwhile.
    if measured.batch_wait <= max(settings.most_batch_wait, measured.straggler_wait):
        return False
    lacking = measured.consumption is not None and measured.sampled < ENOUGH_SAMPLED * measured.consumption
    long = measured.long_batch_wait > settings.most_batch_wait
    return _is_full(measured, limits) or lacking or long


def _is_full(measured: WindowRates, limits: ReplicaLimits) -> bool:
    """Groups are claimed as soon as they fit: free slots, between none and one group's, are half of that on average."""
    return limits.slots - measured.running <= limits.rollouts_per_group / 2


def _window_is_full(measured: WindowRates, limits: ReplicaLimits) -> bool:
    return measured.outstanding >= WINDOW_FULL * limits.window_groups

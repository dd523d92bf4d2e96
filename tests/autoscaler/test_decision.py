"""The decision: what must hold whatever is measured, and what each rule is there for."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollcast.autoscaler.decision import Decision, decide, required_generators
from rollcast.autoscaler.decision_memory import Memory, ReplicaLimits
from rollcast.autoscaler.totals import WindowRates
from rollcast.config.autoscaler import Autoscaler
from tests.autoscaler.measured import FED, LIMITS, SETTINGS, STARVED, measurements, memories

NOW = 1e4
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def decided(
    measured: WindowRates | str, memory: Memory, now: float = NOW, settings: Autoscaler = SETTINGS
) -> Decision:
    return decide(now, measured, memory, LIMITS, settings)


def follow(
    measured: list[WindowRates],
    memory: Memory,
    every: float = 15.0,
    settings: Autoscaler = SETTINGS,
) -> list[int]:
    """The numbers over time, the fleet following at once."""
    targets = []
    for turn, rates in enumerate(measured):
        decision = decide(turn * every, rates, memory, LIMITS, settings)
        memory = decision.memory
        targets.append(decision.target)
    return targets


@UNHURRIED
@given(
    measurements() | st.just("nothing came"),
    memories(),
    st.integers(1, 50),
    st.integers(0, 300),
    st.integers(1, 500),
)
def test_the_bounds_hold_whatever_is_measured(
    measured: WindowRates | str, memory: Memory, least: int, more: int, window: int
) -> None:
    settings = SETTINGS.model_copy(update={"least": least, "most": least + more})
    limits = replace(LIMITS, window_groups=window)
    decision = decide(NOW, measured, memory, limits, settings)
    assert least <= decision.target <= max(least, min(least + more, window))
    assert decision.target == decision.memory.target
    assert decision.reason


def test_after_a_start_beside_a_run_at_work_fewer_are_tried_only_in_time() -> None:
    memory = Memory.make_initial(32, 0.0)
    turns = round(2 * LIMITS.probe_again_seconds / 15)
    targets = follow([FED] * turns, memory)
    quiet = round(LIMITS.probe_again_seconds / 15)
    assert set(targets[:quiet]) == {32}
    assert targets[-1] < 32
    assert min(follow([FED] * quiet, Memory(target=32))) < 32, (
        "at a run's beginning it is tried soon"
    )
    assert max(follow([STARVED] * quiet, memory)) > 32, "a rise waits for nothing"


@UNHURRIED
@given(measurements(), memories(), st.floats(1, 5), st.sampled_from(["controller", "keda"]))
def test_a_trainer_that_consumes_more_never_gets_fewer(
    measured: WindowRates, memory: Memory, factor: float, mode: str
) -> None:
    consumed = measured.consumption or measured.sampled
    measured = replace(measured, consumption=consumed)
    settings = SETTINGS.model_copy(update={"mode": mode})
    hungrier = replace(measured, consumption=consumed * factor)
    assert (
        decided(hungrier, memory, settings=settings).target
        >= decided(measured, memory, settings=settings).target
    )


@UNHURRIED
@given(measurements(), st.floats(1, 1e5), st.floats(0, 1e6), st.floats(0, 1e-3), st.floats(0, 600))
def test_required_is_what_is_needed_over_what_one_delivers(
    measured: WindowRates, capability: float, need: float, growth: float, start_up: float
) -> None:
    settings = SETTINGS.model_copy(update={"start_up_seconds": start_up})
    still, growing = replace(measured, growth=0.0), replace(measured, growth=growth)
    assert required_generators(need, capability, still, settings) == pytest.approx(
        need / capability * 1.01
    )
    ahead = 1 + min(0.5, growth * (150 + start_up))
    assert required_generators(need, capability, growing, settings) == pytest.approx(
        need / capability * 1.01 * ahead
    )


@pytest.mark.parametrize("sampled", [1e-320, 1e-300, 1e-9])
def test_a_generator_that_samples_next_to_nothing_ends_no_decision(sampled: float) -> None:
    """What is needed over what one delivers is inf then, which is no number of generators."""
    slow = replace(STARVED, sampled=sampled * STARVED.generators)
    assert decided(slow, Memory(target=32)).target == 64, "it doubles, as at any large need"


def test_a_starved_trainer_gets_what_it_consumes_over_what_one_delivers_at_once() -> None:
    decision = decided(STARVED, Memory(target=32))
    # 125,000 tokens/s at 100,000 / 32 = 3,125 of one: 40, and 1 % more.
    assert decision.target == 41
    assert decision.memory.seen_at == NOW
    assert "waits for batches 20.0%" in decision.reason


def test_lengths_that_grow_are_met_ahead_by_the_time_a_pod_takes_to_start() -> None:
    growing = replace(STARVED, growth=1e-4)
    slow = SETTINGS.model_copy(update={"start_up_seconds": 850.0})
    assert decided(growing, Memory(target=32)).target == 42  # 330 s ahead: 3.3 % more
    assert decided(growing, Memory(target=32), settings=slow).target == 45  # 1,000 s: 10 %


@UNHURRIED
@given(memories(), st.floats(0, 0.99))
def test_waiting_for_stragglers_weights_or_redis_never_raises(
    memory: Memory, waited: float
) -> None:
    """Such waits leave their mark on what is consumed and sampled only: both fall, batches are
    never waited for.
    """
    memory = replace(
        memory,
        seen_at=NOW - 100,
        capability=3_000.0,
        seen_tokens=FED.mean_tokens,
        required_history=(),
    )
    settled = decided(FED, memory)
    slower = replace(FED, sampled=FED.sampled * (1 - waited), consumption=100_000.0 * (1 - waited))
    assert decided(slower, memory).target <= max(settled.target, min(memory.target, 96))
    after = replace(
        slower, straggler_wait=waited, batch_wait=waited / 2, long_batch_wait=waited / 2
    )
    assert decided(after, memory).target <= max(settled.target, min(memory.target, 96))


@UNHURRIED
@given(memories())
def test_without_measurements_the_number_is_held(memory: Memory) -> None:
    memory = replace(memory, target=min(memory.target, SETTINGS.most))
    decision = decided("Prometheus is away, for 100 s", memory)
    assert decision.target == memory.target
    assert decision.reason == f"holding {decision.target}: Prometheus is away, for 100 s"
    assert decision.memory.required_history == ()
    away = decided(replace(FED, redis_wait=0.5), memory)
    assert away.target == decision.target


def test_a_fall_waits_ten_minutes_and_goes_one_pod_every_two() -> None:
    memory = Memory(target=50, capability=3_125.0, seen_at=0.0, seen_tokens=5_000.0)
    targets = follow([FED] * 200, memory)  # needs 32 x 1.01: 33
    assert targets[:40] == [50] * 40
    falls = [
        turn for turn, (before, after) in enumerate(pairwise(targets), start=1) if after < before
    ]
    assert falls[0] == 40
    assert all(later - earlier == 8 for earlier, later in pairwise(falls))
    assert targets[-1] == 33


def test_one_measurement_that_asks_for_more_begins_the_ten_minutes_anew() -> None:
    memory = Memory(target=50, capability=3_125.0, seen_at=0.0, seen_tokens=5_000.0)
    busy = replace(FED, consumption=160_000.0)
    targets = follow([FED] * 30 + [busy] + [FED] * 45, memory)
    assert targets[:70] == [50] * 70
    assert targets[-1] < 50


@UNHURRIED
@given(st.lists(st.floats(0.9, 1.1), min_size=200, max_size=200), st.integers(33, 60))
def test_noise_of_ten_per_cent_never_makes_it_swing(noise: list[float], target: int) -> None:
    """A turn from falling to rising takes a lasting rise of need: noise around one level turns at
    most once.
    """
    memory = Memory(target=target, capability=3_125.0, seen_at=0.0, seen_tokens=5_000.0)
    targets = follow([replace(FED, consumption=100_000.0 * factor) for factor in noise], memory)
    moves = [after - before for before, after in pairwise(targets) if after != before]
    turns = sum((one > 0) != (following > 0) for one, following in pairwise(moves))
    assert turns <= 1


def test_while_the_trainer_is_fed_a_rise_has_to_be_called_for_by_a_whole_window() -> None:
    memory = Memory(target=33, capability=3_125.0, seen_at=0.0, seen_tokens=5_000.0)
    more = replace(FED, consumption=110_000.0)  # 36
    targets = follow([FED] * 20 + [more] * 30, memory)
    assert targets[:39] == [33] * 39
    assert targets[-1] == 36


def test_free_slots_and_a_fed_trainer_let_one_go_at_a_time_until_it_is_just_enough() -> None:
    """Capability is not known: a fleet that samples whatever is consumed,
    until too few are left.
    """
    memory, at_work, targets = Memory(target=32), 32, []
    for turn in range(600):
        wait = max(0.0, 1 - at_work / 25)
        rates = replace(
            FED,
            generators=float(at_work),
            generators_now=at_work,
            batch_wait=wait,
            long_batch_wait=wait,
            sampled=100_000.0 * (1 - wait),
            running=min(42.0, 42.0 * 25 / at_work),
        )
        decision = decide(turn * 15.0, rates, memory, LIMITS, SETTINGS)
        memory, at_work = decision.memory, decision.target
        targets.append(at_work)
    assert min(targets) == 24
    assert targets[-1] == 26  # 25 feed it, and 1 %
    assert sum(after > before for before, after in pairwise(targets)) == 1, (
        "tried once in two hours"
    )


def test_no_more_than_the_window_has_work_for() -> None:
    full = replace(STARVED, running=20.0, outstanding=384)
    held = decided(full, Memory(target=32))
    assert held.target == 32
    assert "the staleness window is full" in held.reason
    few = ReplicaLimits(slots=48, rollouts_per_group=16, window_groups=36)
    assert decide(NOW, STARVED, Memory(target=32), few, SETTINGS).target == 36


def test_uneven_arrival_is_no_want_of_generators() -> None:
    """As much is sampled as consumed and slots are free: the wait is on its way already."""
    uneven = replace(FED, batch_wait=0.05, long_batch_wait=0.01)
    assert decided(uneven, Memory(target=32)).target == 32
    assert decided(replace(uneven, long_batch_wait=0.05), Memory(target=32)).target > 32


def test_a_rise_through_an_hpa_is_large_enough_to_be_obeyed() -> None:
    keda = SETTINGS.model_copy(update={"mode": "keda"})
    slightly = replace(STARVED, consumption=101_000.0)
    assert decided(slightly, Memory(target=32)).target == 33
    target = decided(slightly, Memory(target=32), settings=keda).target
    assert abs(target / 32 - 1) > 0.1
    assert abs((target - 1) / 32 - 1) <= 0.1, "no more than needed for that"


def test_the_number_at_most_doubles_until_those_asked_for_have_joined() -> None:
    jump = replace(STARVED, consumption=1_000_000.0)
    still = [jump] * 8
    assert follow(still, Memory(target=32)) == [64] * 8
    half = [replace(jump, generators_now=40)] * 2
    joined = [replace(jump, generators=64.0, generators_now=64)] * 2
    assert follow(still + half + joined, Memory(target=32)) == [64] * 8 + [80] * 2 + [96] * 2
    alone = replace(jump, generators=1.0, generators_now=1, sampled=3_125.0)
    decision = decided(alone, decided(alone, Memory(target=1)).memory)
    assert decision.target == 2
    assert decision.reason.startswith("keeping 2 until they have joined, 1 have: ")


@pytest.mark.parametrize(
    ("target", "window", "reason"),
    [
        (1, 384, "raising to 4: autoscaler.least is 4"),
        (97, 384, "lowering to 96: autoscaler.most is 96"),
        (97, 20, "lowering to 20: the staleness window has work for 20"),
    ],
)
@pytest.mark.parametrize("measured", [FED, "too little was measured"], ids=["measured", "blind"])
def test_a_number_that_a_bound_changes_is_reported_with_the_bound(
    target: int, window: int, reason: str, measured: WindowRates | str
) -> None:
    settings = SETTINGS.model_copy(update={"least": 4})
    limits = replace(LIMITS, window_groups=window)
    assert decide(NOW, measured, Memory(target=target), limits, settings).reason == reason


def test_a_need_outside_the_bounds_names_the_bound() -> None:
    few = SETTINGS.model_copy(update={"most": 36})
    raised = decided(STARVED, Memory(target=32), settings=few)
    assert raised.target == 36
    assert raised.reason.endswith("more would be needed, and autoscaler.most is 36")
    many = SETTINGS.model_copy(update={"least": 40})
    memory = Memory(target=40, capability=3_125.0, seen_at=0.0, seen_tokens=5_000.0)
    kept = decided(replace(FED, generators=40.0, generators_now=40), memory, settings=many)
    assert kept.reason.startswith("keeping 40: ")
    assert kept.reason.endswith("fewer would do, and autoscaler.least is 40")


def test_longer_answers_bound_from_below_shorter_ones_from_above() -> None:
    memory = Memory(
        target=40,
        capability=3_125.0,
        seen_at=NOW - 1_000,
        seen_tokens=5_000.0,
        required_history=((NOW - 700, 1),),
    )
    assert (
        decided(
            replace(FED, mean_tokens=6_000.0, generators_now=40, generators=40.0), memory
        ).target
        == 39
    )
    grown = replace(FED, mean_tokens=6_000.0, generators=33.0, generators_now=33)
    assert decided(grown, replace(memory, target=33)).target == 33, (
        "33 were needed for shorter answers already"
    )
    shrunk = replace(FED, mean_tokens=2_000.0, generators=33.0, generators_now=33)
    assert decided(shrunk, replace(memory, target=33)).target == 32


def test_nobody_who_works_is_let_go_while_the_trainer_waits_and_every_slot_is_taken() -> None:
    """Spot nodes throw away what was sampled: each of the 32 samples enough by the numbers, and the
    trainer waits.
    """
    wasteful = replace(STARVED, sampled=150_000.0, running=48.0)
    assert follow([wasteful] * 400, Memory(target=32))[-1] == 32
    assert follow([replace(wasteful, generators_now=20)] * 400, Memory(target=32))[-1] == 27, (
        "who is missing is not kept"
    )

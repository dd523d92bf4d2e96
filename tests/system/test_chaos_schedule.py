"""The seeded schedule of faults: a pure function, without a process."""

from __future__ import annotations

from collections import Counter

from testkit.chaos.faults import RUN_KINDS, SECONDS, possible_faults
from testkit.chaos.schedule import make_schedule


def test_a_seed_decides_everything_and_more_runs_begin_with_the_same_ones() -> None:
    assert make_schedule(3, 12, 17) == make_schedule(3, 12, 17)
    assert make_schedule(3, 12, 17)[:5] == make_schedule(3, 5, 17)
    assert make_schedule(3, 12, 17) != make_schedule(4, 12, 17)


def test_faults_are_possible_in_their_run_and_last_as_long_as_their_kind_may() -> None:
    schedule = make_schedule(0, 16, 17)
    assert [run.kind for run in schedule[: len(RUN_KINDS)]] == list(RUN_KINDS)
    assert len({run.name for run in schedule}) == len(schedule)
    for run in schedule:
        possible = {fault.name for fault in possible_faults(run.kind)}
        assert len(run.faults) == 17
        for fault in run.faults:
            assert fault.name in possible
            shortest, longest = SECONDS.get(fault.kind, (0.0, 0.0))
            assert shortest <= fault.seconds <= longest


def test_the_default_program_makes_each_kind_of_fault_and_no_fault_much_more_often() -> None:
    """A fault of every run is drawn less often than its turn while others were never made."""
    faults = [fault for run in make_schedule(0, 12, 17) for fault in run.faults]
    assert len(faults) >= 200
    every_kind = {fault.kind for kind in RUN_KINDS for fault in possible_faults(kind)}
    assert {fault.kind for fault in faults} == every_kind
    possible = {fault.name for kind in RUN_KINDS for fault in possible_faults(kind)}
    counts = Counter(fault.name for fault in faults)
    assert len(counts) > 0.9 * len(possible)
    # `up` has so few faults that its runs repeat them
    assert max(counts.values()) <= 6

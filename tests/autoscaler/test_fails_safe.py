"""What goes wrong around the autoscaler, in every mode: the number never falls for want of
knowledge.

The whole loop around a simulated run; in mode keda the number is asked for over gRPC as KEDA asks.
The API server, KEDA and the HPA are stand-ins: what those do was tried by hand on a real one, and
is not tried here.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.autoscaler.faults import FAULTS, HOUR, SETTLED, check_restart_during, settled
from tests.autoscaler.simulated_run import FEED, ScaledRun

pytestmark = pytest.mark.parametrize("mode", ["keda", "hpa", "controller"])


def test_a_restart_lets_nobody_go_in_the_hour_after_it(mode: str, tmp_path: Path) -> None:
    with ScaledRun(mode, 5, tmp_path) as run:
        before = settled(run)
        run.stop_autoscaler()
        run.start_autoscaler()
        run.until(SETTLED + HOUR)
        assert min(run.asked_between(SETTLED, run.now)) >= before


def test_an_autoscaler_that_is_gone_for_an_hour_leaves_everything_as_it_is(
    mode: str, tmp_path: Path
) -> None:
    with ScaledRun(mode, 5, tmp_path) as run:
        before = settled(run)
        run.stop_autoscaler()
        run.until(SETTLED + HOUR)
        assert run.asked_between(SETTLED, run.now) == [before]
        run.start_autoscaler()
        run.until(SETTLED + 2 * HOUR)
        assert min(run.asked_between(SETTLED, run.now)) >= before


def test_without_prometheus_the_number_holds_and_an_event_says_why(
    mode: str, tmp_path: Path
) -> None:
    with ScaledRun(mode, 5, tmp_path) as run:
        before = settled(run)
        held, measured = len(run.said("GeneratorsHeld")), len(run.said("GeneratorsMeasured"))
        run.pages.away = "http://prometheus:9090 does not answer"
        run.until(SETTLED + HOUR)
        assert run.asked_between(SETTLED, run.now) == [before]
        (message,) = run.said("GeneratorsHeld")[held:]
        assert message.startswith(f"holding {before}: http://prometheus:9090 does not answer, for ")
        run.pages.away = None
        run.until(SETTLED + HOUR + 900.0)
        assert run.asked_between(SETTLED, run.now) == [before], (
            "ten minutes of measurements come before any fall"
        )
        assert len(run.said("GeneratorsMeasured")) == measured + 1


@pytest.mark.parametrize("away", [60.0, 600.0], ids=["quick", "loads-long"])
def test_a_trainer_that_starts_again_is_not_taken_for_one_that_needs_less(
    mode: str, away: float, tmp_path: Path
) -> None:
    """While it loads it consumes nothing."""
    with ScaledRun(mode, 5, tmp_path, trainer_away=away) as run:
        before = settled(run)
        run.restart_trainer()
        run.until(SETTLED + HOUR)
        assert min(run.asked_between(SETTLED, run.now)) >= before


def test_generators_that_never_become_ready_are_asked_for_once_and_told(
    mode: str, tmp_path: Path
) -> None:
    with ScaledRun(mode, 5, tmp_path, start_up=1e9) as run:
        run.until(SETTLED + HOUR)
        asked = [number for _, number in run.cluster.asked_for]
        assert min(asked) == asked[0], "nobody is let go while the trainer waits"
        assert max(asked) <= FEED + 2, "what is needed, not ever more because nothing helped"
        (message,) = run.said("GeneratorsMissing")
        assert re.match(
            r"(\d+) generators are asked for, 5 have joined the run, \1 pods are there: ", message
        )


def test_a_quota_that_grants_fewer_pods_is_told_and_what_was_asked_for_comes_when_it_is_lifted(
    mode: str, tmp_path: Path
) -> None:
    with ScaledRun(mode, 4, tmp_path) as run:
        run.cluster.granted = 5
        run.until(SETTLED)
        asked = run.asked_between(0.0, run.now)
        assert min(asked) == asked[0]
        assert FEED <= asked[-1] <= FEED + 2
        (message,) = run.said("GeneratorsMissing")
        assert "5 have joined the run, 5 pods are there: a quota" in message
        run.cluster.granted = 64
        run.cluster.settle()
        run.until(SETTLED + HOUR)
        assert FEED <= run.fleet.pods <= FEED + 4, "an HPA takes no step of less than a tenth"
        assert len(run.said("GeneratorsComplete")) == 1


def test_spot_nodes_that_go_two_at_a_time_take_no_generator_from_the_number(
    mode: str, tmp_path: Path
) -> None:
    with ScaledRun(mode, 5, tmp_path) as run:
        before = settled(run)
        for minute in range(0, 60, 7):
            run.fleet.pipeline.schedule_at(
                SETTLED + 60.0 * minute, lambda: run.cluster.take_away(2)
            )
        run.until(SETTLED + HOUR)
        assert min(run.asked_between(SETTLED, run.now)) >= before
        assert run.fleet.pods == run.cluster.requested_replicas


@pytest.mark.parametrize("fault", FAULTS)
def test_a_restart_in_the_middle_of_another_fault_lets_nobody_go(
    mode: str, fault: str, tmp_path: Path
) -> None:
    check_restart_during(fault, mode, tmp_path)


def in_need_of_more_than_the_window(mode: str, folder: Path, start_up: float = 180.0) -> ScaledRun:
    """Some 35 generators would feed the trainer; the gate lets 16 groups be under way, and each
    takes one of them.
    """
    run = ScaledRun(mode, 5, folder, tokens=8_000.0, lag=2, slots=4, start_up=start_up)
    assert run.window == 16
    return run


def most_asked_for(run: ScaledRun, since: float) -> int:
    return max(run.asked_between(since, run.now))


def test_in_no_fault_are_more_generators_asked_for_than_the_window_can_use(
    mode: str, tmp_path: Path
) -> None:
    """One after the other, in a run that wants more all the time: the bound is reached,
    and holds.
    """
    with in_need_of_more_than_the_window(mode, tmp_path) as run:
        run.until(SETTLED)
        assert run.cluster.requested_replicas == run.window

        run.stop_autoscaler()
        run.start_autoscaler()
        run.until(run.now + 1_800.0)
        assert run.asked_between(SETTLED, run.now) == [run.window], "restarted"

        gone = run.now
        run.stop_autoscaler()
        run.until(gone + HOUR)
        run.start_autoscaler()
        run.until(run.now + 1_800.0)
        assert run.asked_between(gone, run.now) == [run.window], "gone for an hour"

        blind = run.now
        run.pages.away = "http://prometheus:9090 does not answer"
        run.until(blind + 1_800.0)
        run.pages.away = None
        run.until(run.now + 1_800.0)
        assert run.asked_between(blind, run.now) == [run.window], "without Prometheus"

        restarted = run.now
        run.restart_trainer()
        run.until(restarted + 1_800.0)
        assert most_asked_for(run, restarted) == run.window, "the trainer starts again"

        short = run.now
        run.cluster.granted = 9
        run.cluster.settle()
        run.until(short + 1_800.0)
        run.cluster.granted = 64
        run.cluster.settle()
        run.until(run.now + 1_800.0)
        assert most_asked_for(run, short) == run.window, "a quota"

        spot = run.now
        for minute in range(0, 30, 7):
            run.fleet.pipeline.schedule_at(spot + 60.0 * minute, lambda: run.cluster.take_away(2))
        run.until(spot + 2_400.0)
        assert most_asked_for(run, spot) == run.window, "spot nodes"


def test_generators_that_never_become_ready_are_no_reason_to_ask_for_more_than_the_window_can_use(
    mode: str, tmp_path: Path
) -> None:
    with in_need_of_more_than_the_window(mode, tmp_path, start_up=1e9) as run:
        run.until(SETTLED + HOUR)
        assert most_asked_for(run, 0.0) == 10 < run.window, "twice those that have joined"

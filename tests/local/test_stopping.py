"""When a service that was asked to end is killed; seconds of a clock that starts
with the signal.
"""

from __future__ import annotations

import pytest

from rollcast.local.process import ServiceSpec
from rollcast.local.supervisor import FINISHED_SECONDS, SHARE_SECONDS, killed_at

DRAIN, BEYOND = 2.0, 10.0
DEADLINE = DRAIN + BEYOND
GENERATOR = ServiceSpec("generator-0", (), stop_order=0, stop_seconds=DRAIN + 15)
TRAINER = ServiceSpec("trainer", (), stop_order=1, stop_seconds=120, saves=True)
FORECASTER = ServiceSpec("forecaster", (), stop_order=1, stop_seconds=10)
GRADER = ServiceSpec("grader", (), stop_order=2, stop_seconds=80)
LOGGERS = ServiceSpec("loggers", (), stop_order=3, stop_seconds=25, unhurried=True)
IN_ORDER = (GENERATOR, FORECASTER, GRADER, LOGGERS)


def interrupted(spec: ServiceSpec, began: float) -> float:
    return killed_at(
        spec, began, is_finished=False, deadline=DEADLINE, num_later_orders=3 - spec.stop_order
    )


def test_deaf_services_of_an_interrupted_run_are_gone_by_the_deadline() -> None:
    now = 0.0
    for spec in IN_ORDER:
        killed = interrupted(spec, now)
        assert killed >= now + SHARE_SECONDS, f"{spec.name} has some time, whatever the others did"
        now = killed
    assert now == DEADLINE
    assert interrupted(GENERATOR, 0.0) > DRAIN, "it may hand back what it drained"


def test_a_service_whose_own_limit_is_shorter_has_no_more_than_that() -> None:
    assert interrupted(ServiceSpec("prometheus", (), stop_order=3, stop_seconds=5), 1.0) == 6.0


def test_who_saves_the_work_has_its_own_limit_and_those_after_it_a_share() -> None:
    assert interrupted(TRAINER, 4.0) == 124.0
    assert interrupted(LOGGERS, 60.0) == 60.0 + SHARE_SECONDS


@pytest.mark.parametrize("spec", [*IN_ORDER, TRAINER])
def test_without_an_interrupt_each_has_its_own_limit_and_a_finished_run_hurries(
    spec: ServiceSpec,
) -> None:
    given_up = killed_at(spec, 7.0, is_finished=False, deadline=None, num_later_orders=1)
    finished = killed_at(spec, 7.0, is_finished=True, deadline=None, num_later_orders=1)
    assert given_up == 7.0 + spec.stop_seconds
    assert finished == 7.0 + (spec.stop_seconds if spec.unhurried else FINISHED_SECONDS)

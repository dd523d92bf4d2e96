"""Which part is begun with the time that is left."""

from __future__ import annotations

from testkit.gpu.parts import PARTS, Part
from testkit.gpu.proof.order import Standing, next_part, open_parts

STARTS_SECONDS = 30
"""What it takes to get a machine, of its thirty minutes."""
SOME = {"first": Part("first", 100), "long": Part("long", 300), "short": Part("short", 10)}


def begun(seconds_left: float | None, **standings: Standing) -> str | None:
    return next_part(SOME, {name: standings.get(name, Standing()) for name in SOME}, seconds_left)


def test_what_was_never_seen_is_first_and_then_what_removes_most_risk() -> None:
    names = list(PARTS)
    never_seen = ["wire-faults", "learner-0.6b", "step-0.6b", "generator", "speculation"]
    assert names[:5] == never_seen
    assert (
        names.index("head")
        < names.index("learner-4b")
        < names.index("publish")
        < names.index("system-0.6b")
    )
    assert names.index("learner-4b") < names.index("staging")


LATE = (
    "step-1.7b",
    "learner-4b-compiled",
    "system-lora",
    "system-episodes",
    "system-0.6b",
    "learner-1.7b",
    "speculation",
    "system-nccl",
    "staging",
    "group",
)


def test_calls_of_a_lease_of_thirty_minutes_hold_what_matters() -> None:
    """All but the last parts, and three starts."""
    enough = [name for name in PARTS if name not in LATE]
    assert sum(PARTS[name].expected_seconds for name in enough) <= 30 * 60 - 3 * STARTS_SECONDS


def test_a_call_of_nine_minutes_holds_the_first_two_and_another_the_whole_steps() -> None:
    faults, learner, steps, *_ = (part.expected_seconds for part in PARTS.values())
    assert faults + learner <= 9 * 60
    assert steps <= 9 * 60


def test_the_first_part_without_a_result_is_begun() -> None:
    assert begun(None) == "first"
    assert begun(1_000, first=Standing("done", 90)) == "long"
    assert begun(1_000, first=Standing("done", 90), long=Standing("failed", 5)) == "short"


def test_a_part_that_does_not_fit_is_passed_over_for_one_that_does() -> None:
    assert begun(99.0) == "short"
    assert begun(9.0) is None


def test_a_part_that_was_cut_comes_after_those_not_begun_and_gets_more_time() -> None:
    cut = Standing("cut", 200)
    assert open_parts(SOME, {"first": cut, "long": Standing(), "short": Standing()}) == [
        "long",
        "short",
        "first",
    ]
    finished = {"long": Standing("done", 300), "short": Standing("done", 10)}
    assert begun(299.0, first=cut, **finished) is None
    assert begun(300.0, first=cut, **finished) == "first"


def test_nothing_is_left_when_all_were_tried() -> None:
    assert begun(None, **{name: Standing("done", 1) for name in SOME}) is None

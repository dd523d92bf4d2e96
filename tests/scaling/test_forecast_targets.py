"""The forecast benchmark's own judgement: what is outside of a target is named, what was not
measured is not judged.
"""

from __future__ import annotations

from typing import Any

import pytest

from testkit.forecast.targets import judge
from testkit.forecast.verdicts import false_alarms


def calibration_row(window: float, **changed: Any) -> dict[str, Any]:
    return {
        "generator": "law",
        "window": window,
        "runs": 1000,
        "covered_50": [0.50, 0.52],
        "covered_90": [0.90, 0.91],
        "verdicts": {
            "too_early": 500,
            "forecastable": 300,
            "saturated": 190,
            "not_sigmoid": 6,
            "regime_change": 4,
        },
        "asymptote_missed_by_verdict": {
            "too_early": 40,
            "forecastable": 30,
            "saturated": 19,
            "not_sigmoid": 0,
        },
    } | changed


@pytest.mark.parametrize(
    ("target", "changed", "outside"),
    [
        (
            "50 % interval covers 44-56 % of every class",
            {"covered_50": [0.50, 0.57]},
            "law 3 at 10x: 0.570",
        ),
        (
            "90 % interval covers 86-94 % of every class",
            {"covered_90": [0.85, 0.90]},
            "law 3 at 2x: 0.850",
        ),
        (
            "too early: A missed by at most 10 % of every class",
            {"asymptote_missed_by_verdict": {"too_early": 51}},
            "law 3: 51 of 500",
        ),
        (
            "forecastable or saturated: A missed by at most 14 %",
            {"asymptote_missed_by_verdict": {"forecastable": 60, "saturated": 9}},
            "law 3: 69 of 490",
        ),
    ],
)
def test_a_class_outside_of_its_limit_misses_the_target_and_is_named(
    target: str, changed: dict[str, Any], outside: str
) -> None:
    good = [calibration_row(1.0), calibration_row(3.0)]
    assert all(
        found == {"met": True, "outside": []} for found in judge({"calibration": good}).values()
    )
    judged = judge({"calibration": [calibration_row(1.0), calibration_row(3.0, **changed)]})
    assert judged.pop(target) == {"met": False, "outside": [outside]}
    assert all(found["met"] for found in judged.values())


def test_a_few_runs_of_a_verdict_judge_nothing() -> None:
    row = calibration_row(
        1.0, verdicts={"too_early": 40}, asymptote_missed_by_verdict={"too_early": 40}
    )
    assert judge({"calibration": [row]})["too early: A missed by at most 10 % of every class"][
        "met"
    ]


def test_false_alarms_are_counted_by_class_the_worst_first() -> None:
    rows = false_alarms(
        [calibration_row(1.0), calibration_row(3.0, verdicts={"not_sigmoid": 90, "too_early": 910})]
    )
    assert [(row["class"], row["false_alarms"]) for row in rows] == [("law 3", 90), ("law 1", 10)]
    judged = judge({"calibration.false_alarms": rows})
    assert judged == {
        "false alarms at most 2 % of every class": {"met": False, "outside": ["law 3: 90 of 1000"]}
    }


def test_what_was_skipped_is_not_judged() -> None:
    assert (
        judge(
            {
                "published.fits": "skipped: no real curves",
                "extrapolation.paper": "skipped: no real curves",
            }
        )
        == {}
    )


def test_all_classes_together_are_judged_as_well() -> None:
    rows = [
        calibration_row(1.0),
        calibration_row(3.0, asymptote_missed_by_verdict={"too_early": 61}),
    ]
    judged = judge({"calibration": rows})
    assert not judged["too early: A missed by at most 10 % of all runs"]["met"]

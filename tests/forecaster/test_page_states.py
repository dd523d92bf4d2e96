"""The runs whose pictures docs/reading.md shows are what their captions say."""

from __future__ import annotations

import pytest

import rollcast
from testkit.forecaster.page_states import State, page_states


def forecast_of(state: State) -> rollcast.CurveForecast:
    readings = state.readings()
    columns = {
        name: [getattr(r, name) for r in readings]
        for name in ("compute", "pass_rate", "standard_error")
    }
    return rollcast.forecast(columns, budget=state.budget)


@pytest.mark.parametrize(
    ("name", "verdict", "advice"),
    [
        ("rising", "forecastable", "continue"),
        ("saturating", "saturated", "stop"),
        ("no ceiling", "forecastable", "continue"),
        ("flat", "no_learning", "stop"),
        ("dead", "no_learning", "stop"),
        ("collapsed", "broken", "stop"),
        ("two evaluations", "too_few", "wait"),
        ("foreign", "forecastable", "continue"),
    ],
)
def test_a_state_is_what_its_picture_shows(name: str, verdict: str, advice: str) -> None:
    found = forecast_of(page_states()[name])
    assert (found.verdict, found.advice()["kind"]) == (verdict, advice), found.reason
    ends_in_sight = found.to_dict()["ceiling_probability"]
    assert (ends_in_sight is not None and ends_in_sight < 0.5) is (name == "no ceiling")

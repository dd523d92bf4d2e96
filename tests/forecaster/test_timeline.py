"""At which rate compute is reached, of a run that was watched from its beginning and of one that
was not.
"""

from __future__ import annotations

import pytest

from rollcast.curves.evaluations import CurvePoint, RunHistory
from rollcast.curves.run_forecast import RunBudget, forecast_run
from rollcast.forecaster.timeline import Timeline, timeline
from testkit.forecaster.recorded_run import record

START = 1_700_000_000.0
PER_EVALUATION_SECONDS = 600.0


def watched(num_preloaded: int, num_seen: int, together: int = 1) -> tuple[Timeline | None, float]:
    """The timeline, and the device-hours a second of what was seen live.

    The preloaded ones are all dated to the first look; of the later ones `together` at a time.
    """
    points = record(num_preloaded + num_seen)
    evaluations = []
    for place, point in enumerate(points):
        later = max(0, place - num_preloaded + 1)
        at = START + PER_EVALUATION_SECONDS * -(-later // together) * together
        evaluations.append(
            CurvePoint(
                "theirs", "", 1, point.step, point.pass_rate, point.compute, None, None, None, at
            )
        )
    forecast = forecast_run(
        RunHistory("theirs", tuple(evaluations)), RunBudget(), sequence=1, updated_at=START
    )
    assert forecast is not None
    return timeline(forecast), (points[-1].compute - points[-2].compute) / PER_EVALUATION_SECONDS


@pytest.mark.parametrize(
    ("num_preloaded", "num_seen", "together"), [(40, 3, 1), (40, 9, 1), (40, 12, 3), (1, 9, 1)]
)
def test_what_was_there_before_the_first_look_does_not_make_the_rate(
    num_preloaded: int, num_seen: int, together: int
) -> None:
    line, rate = watched(num_preloaded, num_seen, together)
    assert line is not None
    assert line.rate == pytest.approx(rate, rel=0.02)
    assert line.compute_at(line.times)[0] == pytest.approx(
        record(num_preloaded + num_seen)[num_preloaded - 1].compute
    )


@pytest.mark.parametrize("num_seen", [0, 1])
def test_where_nothing_tells_the_rate_there_is_no_timeline(num_seen: int) -> None:
    assert watched(40, num_seen)[0] is None

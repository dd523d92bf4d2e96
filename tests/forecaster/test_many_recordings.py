"""A proof: verdicts on many recordings of a dozen points or two."""

from __future__ import annotations

from tests.forecaster.short_recordings import accused, num_jumps_recognised


def test_of_many_healthy_runs_none_is_accused() -> None:
    assert accused(num_runs=20) == []


def test_of_many_runs_that_jumped_nearly_all_are_recognised() -> None:
    assert num_jumps_recognised(num_runs=20) >= 18

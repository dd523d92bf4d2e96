"""Verdicts on a few short recordings; more of them: test_many_recordings.py."""

from __future__ import annotations

from tests.forecaster.short_recordings import accused, num_jumps_recognised


def test_of_few_healthy_runs_none_is_accused() -> None:
    assert accused(num_runs=3) == []


def test_of_few_runs_that_jumped_nearly_all_are_recognised() -> None:
    assert num_jumps_recognised(num_runs=5) >= 4

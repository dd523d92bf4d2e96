"""The part that publishes: a real publisher and a real generator process, tiny and over gloo."""

from __future__ import annotations

import math

from testkit.gpu import publishing


def test_versions_reach_a_generator_and_are_timed() -> None:
    figures = publishing.measure("publish", is_small=True)
    (row,) = figures["rows"]
    assert row["transport"] == "gloo"
    assert row["megabytes"] > 0
    assert 0 < row["seconds_median"] <= row["seconds_worst"]
    assert math.isclose(
        row["gigabytes_per_second"], row["megabytes"] / 1e3 / row["seconds_median"], abs_tol=2e-3
    )

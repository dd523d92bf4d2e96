"""The probe of `python -m benchmarks.wire_faults`, with one event: its whole run takes minutes."""

from __future__ import annotations

from testkit.weights.faults import Faults, measure


def test_a_short_probe_finds_the_survivors_at_work(forkserver: None) -> None:
    found = measure(Faults(lanes=2, kills=1, freezes=0, settle_seconds=0.5, megabytes=4))
    assert found["events"] == {"kill": 1, "freeze": 0}
    assert found["targets"]["every survivor serves or is served"]
    assert found["targets"]["the bystander was never fenced"]

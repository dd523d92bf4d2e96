"""What must hold in every simulated run, in more of them than test_gate_properties.py draws."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulation.scenarios import scenarios, violation

FAULTS = ((), ("kill", "drain", "join"), ("kill", "drain", "join", "restart", "restart"))


@pytest.mark.parametrize("kinds", FAULTS, ids=["undisturbed", "generators", "trainer too"])
@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_run_breaks_a_rule(kinds: tuple[str, ...], data: st.DataObject) -> None:
    assert violation(data.draw(scenarios(fault_kinds=kinds))) is None

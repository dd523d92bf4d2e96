"""A run of the chaos program whose environments misbehave: a generator is killed, one is frozen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testkit.chaos.faults import Fault
from testkit.chaos.part import run_part
from testkit.chaos.report import summarise
from testkit.chaos.schedule import PlannedRun
from testkit.forked_programs import ForkedPrograms

REASON = "takes minutes of both cores: ROLLCAST_CHAOS=1 pytest tests/system/test_chaos.py"
pytestmark = [
    pytest.mark.system,
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not os.environ.get("ROLLCAST_CHAOS"), reason=REASON),
]
FAULTS = (Fault("kill", "g0"), Fault("stop", "g1", 15.0), Fault("OOM", "redis", 3.0))


def test_nothing_is_lost_or_used_twice_and_every_failure_is_named(
    tmp_path: Path, programs: ForkedPrograms
) -> None:
    record = run_part(PlannedRun(0, "class", FAULTS), tmp_path, programs, minutes=12.0)
    figures = summarise([record])
    for name in ("lost", "used_twice", "stale", "hangs", "disagreements", "crashes", "failed"):
        assert figures[name] == [], name
    assert figures["faults"] == len(FAULTS), figures["faults_not_made"]
    assert figures["tasks_by_outcome"]["used"] > 20
    assert figures["given_up"]["otherwise"] == 0
    (episodes,) = figures["episodes"]
    assert episodes["kinds_not_seen"] == []
    assert episodes["audit_of_groups"]["settled groups compared"] > 20

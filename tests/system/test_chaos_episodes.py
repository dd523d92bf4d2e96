"""Generators are killed, frozen and restarted in the middle of episodes whose environments
misbehave.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testkit.forked_programs import ForkedPrograms
from testkit.system.chaos import LAG, Chaos

REASON = "takes minutes of both cores: ROLLCAST_CHAOS=1 pytest tests/system/test_chaos_episodes.py"
pytestmark = [
    pytest.mark.system,
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not os.environ.get("ROLLCAST_CHAOS"), reason=REASON),
]


def test_nothing_is_lost_or_used_twice_and_every_failure_is_counted_and_named(
    tmp_path: Path, programs: ForkedPrograms
) -> None:
    figures = Chaos(tmp_path, programs).run(["kill", "freeze"])
    assert figures["tasks_by_outcome"]["used"] > 20
    assert figures["tasks_by_outcome"].get("dead", 0) == 0
    assert figures["tasks_redone"] >= 2
    assert figures["oldest_token_trained"] <= LAG
    assert sum(figures["failures_by_stage"].values()) > 0
    assert figures["episodes_given_up_counted"] >= figures["episodes_by_end"]["failed"]
    assert figures["episodes_begun_again"] > 0
    assert figures["audit_of_groups"]["settled groups compared"] > 20

"""A run whose generators hand over and die, and whose trainer dies: not one of its groups is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollcast.rollouts.codec import decode_group, decode_task
from rollcast.rollouts.records import RolloutGroup
from rollcast.trainer.control.defects import defect
from rollcast.trainer.control.history import SurvivingHistory
from rollcast.wire.version import PolicyVersion
from testkit.system.audit import check_every_task_once
from tests.system.recording import run_with_faults, touched_by_a_fault

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(1200)]


def test_no_group_of_a_run_with_faults_is_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    system, recorded = run_with_faults(tmp_path, settings)
    log = system.log("trainer")
    assert "unusable group" not in log, "by the running trainer itself"
    assert "entries of no use" not in log
    max_length = settings["model"]["max_length"]
    (resumed,) = (line for line in system.lines("tasks.jsonl") if line["what"] == "resumed")
    checkpoint = PolicyVersion.parse(resumed["version"])
    after = SurvivingHistory((), checkpoint.incarnation).continued_by(resumed["incarnation"], checkpoint.step)

    def found(group: RolloutGroup, task: bytes, newest: Any) -> str | None:
        return defect(
            group,
            decode_task(task),
            newest=newest,
            history=after if newest.incarnation == after.incarnation else SurvivingHistory((), 1),
            vocab_size=10**6,
            max_length=max_length,
        )

    assert [found(decode_group(item.group), item.task, item.newest) for item in recorded] == [None] * len(recorded)
    assert sum(map(touched_by_a_fault, recorded)) > 5
    check_every_task_once(system.lines("tasks.jsonl"))

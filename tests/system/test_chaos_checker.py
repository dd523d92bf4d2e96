"""The accountant of chaos finds each violation that is planted in the files of a small run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testkit.chaos.checker import (
    QUIET_SECONDS,
    LastPage,
    Violations,
    check_run,
    given_up,
    redone_after_outages,
)

LAG, LAST_STEP = 4, 20
PAGE = """rollcast_groups_total{{run="r",outcome="used"}} {used}
rollcast_trainer_step{{run="r"}} {step}
rollcast_staleness_steps_bucket{{run="r",le="4.0"}} 40.0
rollcast_staleness_steps_bucket{{run="r",le="+Inf"}} {tokens}
"""
Lines = list[dict[str, Any]]


def books() -> tuple[Lines, Lines]:
    """tasks.jsonl and steps.jsonl of a run that does one task a step."""
    tasks: Lines = []
    for step in range(1, LAST_STEP + 1):
        tasks += [
            {"what": "dispatched", "tasks": [step]},
            {"what": "used", "tasks": [step]},
            {"what": "step", "step": step, "at": float(step)},
        ]
    steps: Lines = [
        {"step": step, "at": float(step), "staleness_tokens": {"0": 9, str(LAG): 1}}
        for step in range(1, LAST_STEP + 1)
    ]
    return tasks, steps


def check(
    folder: Path, tasks: Lines, steps: Lines, *, faults: Any = (), **page: float
) -> Violations:
    for name, lines in (("tasks", tasks), ("steps", steps)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = PAGE.format(**{"used": LAST_STEP, "step": LAST_STEP, "tokens": 40.0, **page})
    size = (folder / "tasks.jsonl").stat().st_size
    last = LastPage(text, size, max(line["at"] for line in steps) + 1.0)
    return check_run(folder, last, faults, lag=LAG)


def test_the_accountant_imports_nothing_of_rollcast() -> None:
    code = (
        "import sys, testkit.chaos.checker; "
        "assert not [name for name in sys.modules if name.split('.')[0] == 'rollcast']"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, timeout=60)


def test_a_run_without_a_violation(tmp_path: Path) -> None:
    assert not check(tmp_path, *books())


def test_a_task_that_is_lost(tmp_path: Path) -> None:
    tasks, steps = books()
    tasks.remove({"what": "used", "tasks": [7]})
    assert check(tmp_path, tasks, steps, used=LAST_STEP - 1) == Violations(lost=[7])


def test_a_task_that_is_used_twice(tmp_path: Path) -> None:
    tasks, steps = books()
    tasks.append({"what": "used", "tasks": [7]})
    assert check(tmp_path, tasks, steps, used=LAST_STEP + 1) == Violations(used_twice=[7])


def test_a_token_one_step_too_old(tmp_path: Path) -> None:
    tasks, steps = books()
    steps[8]["staleness_tokens"] = {str(LAG + 1): 1}
    assert check(tmp_path, tasks, steps) == Violations(stale=[{"step": 9, "age": LAG + 1}])


@pytest.mark.parametrize(
    ("faults", "hangs"),
    [
        ([], [2 * QUIET_SECONDS + 1]),
        # It explains half of the gap, and less than half
        ([(9.5, 10.0 + QUIET_SECONDS + 1)], []),
        ([(9.5, 15.0)], [2 * QUIET_SECONDS - 4]),
    ],
)
def test_a_hang_is_a_gap_between_steps_that_no_fault_explains(
    tmp_path: Path, faults: list[tuple[float, float]], hangs: list[float]
) -> None:
    tasks, steps = books()
    for line in steps[10:]:
        line["at"] += 2 * QUIET_SECONDS
    assert check(tmp_path, tasks, steps, faults=faults) == Violations(hangs=hangs)


def test_a_page_and_files_that_disagree(tmp_path: Path) -> None:
    tasks, steps = books()
    found = check(tmp_path, tasks, steps[1:], used=LAST_STEP + 2, step=LAST_STEP + 1, tokens=41.0)
    assert found == Violations(disagreements=found.disagreements)
    assert found.disagreements == [
        "used: 20 in tasks.jsonl, 22 on the page",
        "step 20 in tasks.jsonl, not the page's",
        "the page counts tokens older than 4 steps",
        "steps [1] are in tasks.jsonl alone",
    ]


def test_tasks_that_these_faults_made_fail_are_reported_apart() -> None:
    lines = [{"what": "dead", "tasks": [1]}, {"what": "dead", "tasks": [2]}]
    assert given_up(lines, [2, 2, 3]) == {"after faults": 1, "otherwise": 1}


def test_work_after_an_outage_is_compared_with_what_was_dispatched_since_the_checkpoint() -> None:
    lines: Lines = [
        {"what": "dispatched", "tasks": [1, 2]},
        {"what": "used", "tasks": [1]},
        {"what": "checkpoint", "version": "1.5"},
        {"what": "dispatched", "tasks": [3, 4]},
        {"what": "used", "tasks": [3]},
        {"what": "resumed", "version": "1.5"},
        {"what": "dispatched", "tasks": [3, 4]},
        {"what": "redone", "tasks": [2]},
        {"what": "redone", "tasks": [4]},
    ]
    assert redone_after_outages(lines) == [
        {"dispatched since the checkpoint": 2, "made again": 1, "older tasks redone": 1}
    ]

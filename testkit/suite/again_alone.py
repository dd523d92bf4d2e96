"""The few tests that failed next to others run again, alone.

Three test processes share two cores, and other work may run on the machine. A test that fails there
and passes alone depends on the load. It must be fixed. So its first failure stays on the screen,
and its id goes into tests/again_alone.json, which the next call shows and which is committed empty.
But it says nothing about the code, so it does not fail the whole. A test that fails again fails the
whole, as does every failure if there are many. Each runs in a process of its own: what another test
left behind is no load.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from testkit.suite.changes import ROOT

RECORD = ROOT / "tests" / "again_alone.json"
"""Ids of tests that failed next to others and passed alone."""
MAX_TESTS = 5
"""More failures are not caused by load."""
ALONE_SECONDS = 1800.0
"""The limit of each."""


def run_again_alone(
    failed_tests: Sequence[str], record: Path = RECORD, end: float = float("inf")
) -> int:
    """Run failed tests again, one after the other, and add those that pass to the record. Returns
    the exit code of the whole.

    end: seconds of the epoch at which the running one is ended, and counts as failed.
    """
    if not 0 < len(failed_tests) <= MAX_TESTS:
        return 1
    names = ", ".join(failed_tests)
    print(
        f"{len(failed_tests)} failed next to other tests and run again, alone: {names}", flush=True
    )
    passed = [test for test in failed_tests if _passes_alone(test, end)]
    if passed:
        tests = sorted({*read_record(record), *passed})
        record.write_text(json.dumps(tests, indent=1) + "\n")
    return 0 if len(passed) == len(failed_tests) else 1


def _passes_alone(test: str, end: float) -> bool:
    seconds = min(ALONE_SECONDS, max(0.0, end - time.time()))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-n", "0", test], check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        print(f"error: alone it did not end within {seconds:.0f} seconds: {test}", file=sys.stderr)
        return False
    return done.returncode == 0


def show_record(record: Path = RECORD) -> None:
    """Print the tests that passed only alone, in this call or an earlier one."""
    for test in read_record(record):
        reason = "passed only alone in an earlier run, so it depends on the load and must be fixed"
        print(f"{reason}: {test}", flush=True)


def read_record(record: Path = RECORD) -> list[str]:
    return list(json.loads(record.read_text())) if record.exists() else []

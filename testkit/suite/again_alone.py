"""The few tests that failed next to others run again, alone.

Three test processes share two cores, and other work may run on the machine. A test that fails there and passes alone
depends on the load. It must be fixed. So its first failure stays on the screen, and its id goes into
tests/again_alone.json, which the next call shows and which is committed empty. But it says nothing about the code, so
it does not fail the whole. A test that fails again fails the whole, as does every failure if there are many.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testkit.suite.changes import ROOT

RECORD = ROOT / "tests" / "again_alone.json"
"""Ids of tests that failed next to others and passed alone."""
MAX_TESTS = 5
"""More failures are not caused by load."""
ALONE_SECONDS = 1800.0


def run_again_alone(failed: Sequence[str], record: Path = RECORD) -> int:
    """Run failed tests again in one process and add those that pass to the record. Returns the exit code of the
    whole.
    """
    if not 0 < len(failed) <= MAX_TESTS:
        return 1
    print(f"{len(failed)} failed next to other tests and run again, alone: {', '.join(failed)}", flush=True)
    command = [sys.executable, "-m", "pytest", "-n", "0", *failed]
    try:
        code = subprocess.run(command, check=False, timeout=ALONE_SECONDS).returncode
    except subprocess.TimeoutExpired:
        print(f"error: they took longer than {ALONE_SECONDS:.0f} seconds alone", file=sys.stderr)
        return 1
    if code == 0:
        write_record(sorted({*read_record(record), *failed}), record)
    return code


def show_record(record: Path = RECORD) -> None:
    """Print the tests that passed only alone, in this call or an earlier one."""
    for test in read_record(record):
        print(f"passed only alone in an earlier run, so it depends on the load and must be fixed: {test}", flush=True)


def read_record(record: Path = RECORD) -> list[str]:
    return list(json.loads(record.read_text())) if record.exists() else []


def write_record(tests: Sequence[str], record: Path = RECORD) -> None:
    record.write_text(json.dumps(list(tests), indent=1) + "\n")

"""One call of pytest with three test processes, and the outcome of each file."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testkit.suite import bytecode
from testkit.suite.again_alone import run_again_alone
from testkit.suite.changes import ROOT

CALL_REPORTS = ROOT / ".cache" / "suite"
"""Reports of the last calls. git ignores them."""
PROCESSES = 3
"""Two cores serve three: systems wait for their parts to start and end, tests of services for their
deadlines."""
TESTS_FAILED = 1
"""pytest's exit code if every test ran and some failed."""
INTERRUPTED = 2
"""pytest's exit code if it was stopped before the last test."""
SECONDS_KEPT_FREE = 300.0
"""Before the end no further test begins: the running ones are finished, and failures run again,
alone."""
NO_END = float("inf")


def call_pytest(arguments: Sequence[str], report: Path, end: float = NO_END) -> int:
    """Run pytest, and its few failures again alone. Returns the exit code of the whole: INTERRUPTED
    if the time was over before the last test.

    report: file that the seconds and failures of each test file are written to.
    end: seconds of the epoch at which a test that still runs is ended.
    """
    bytecode.main()
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-n", str(PROCESSES), "--suite-report", str(report)]
    timeout = None
    if end != NO_END:
        command += ["--stop-at", str(end - SECONDS_KEPT_FREE)]
        timeout = max(0.0, end - time.time())
    try:
        code = subprocess.run(
            [*command, *arguments], cwd=ROOT, check=False, timeout=timeout
        ).returncode
    except subprocess.TimeoutExpired:
        code = INTERRUPTED
    loaded = load_report(report)
    is_cut_off = code == INTERRUPTED and time.time() > end - SECONDS_KEPT_FREE
    if loaded["failed_tests"] and (code == TESTS_FAILED or is_cut_off):
        code = run_again_alone(loaded["failed_tests"], end=end) or (
            INTERRUPTED if is_cut_off else 0
        )
    if is_cut_off:
        print("the time is over: the other tests were not run", flush=True)
    return code


def load_report(report: Path) -> dict[str, Any]:
    """What `measurement.Measurements` wrote; without files if pytest ended before it could."""
    if not report.exists():
        return {"failed_tests": [], "files": {}, "stopped": False}
    loaded: dict[str, Any] = json.loads(report.read_text())
    return loaded

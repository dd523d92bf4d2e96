"""One call of pytest with three test processes, and the outcome of each file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testkit.suite import bytecode
from testkit.suite.again_alone import run_again_alone
from testkit.suite.changes import ROOT

CALL_REPORTS = ROOT / ".cache" / "suite"
"""Reports of the last calls. git ignores them."""
PROCESSES = 3
"""Two cores serve three: systems wait for their parts to start and end, tests of services for their deadlines."""
INTERRUPTED = 2
"""pytest's exit code if it was stopped before the last test."""


def call_pytest(arguments: Sequence[str], report: Path, stop_at: float | None = None) -> int:
    """Run pytest, and its few failures again alone. Returns the exit code of the whole.

    report: file that the seconds and failures of each test file are written to.
    stop_at: seconds of the epoch after which no further test begins.
    """
    bytecode.main()
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-n", str(PROCESSES), "--suite-report", str(report)]
    if stop_at is not None:
        command += ["--stop-at", str(stop_at)]
    code = subprocess.run([*command, *arguments], cwd=ROOT, check=False).returncode
    loaded = load_report(report)
    if loaded["failed_tests"]:
        return run_again_alone(loaded["failed_tests"])
    if loaded["stopped"] and code == INTERRUPTED:
        print("the time is over: the other tests were not run", flush=True)
        return 0
    return code


def load_report(report: Path) -> dict[str, Any]:
    """What `measurement.Measurements` wrote; without files if pytest ended before it could."""
    if not report.exists():
        return {"failed_tests": [], "files": {}, "stopped": False}
    loaded: dict[str, Any] = json.loads(report.read_text())
    return loaded

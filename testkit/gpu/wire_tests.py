"""The tests of wire 2 with the weights on the card: real processes are killed and frozen in
mid-broadcast.

Only tests whose generators have one worker each: two workers of one process would be two ranks on
one card, which NCCL refuses.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from testkit.record import ROOT
from testkit.weights.device import VARIABLE

FILES = ("tests/weights/test_faults.py", "tests/weights/test_lanes.py")
PLUGINS = ("pytest_timeout", "pytest_asyncio.plugin", "xdist.plugin")
"""Plugins that the settings of this repository need; others of the machine are not loaded."""
ONLY_THESE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
PYTEST = (sys.executable, "-m", "pytest", *(f"-p{name}" for name in PLUGINS))
CHOSEN = "killed or frozen or corrupted or wrong_bit or breaks or stream_broke"
CHOSEN_WHEN_SMALL = "corrupted"
REASON_CHARACTERS = 300


def measure(name: str, *, is_small: bool) -> dict[str, Any]:
    """A row for each test; the target is that all pass."""
    device = "cpu" if is_small else "cuda:0"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [*PYTEST, *FILES, "-q", "-n", "0", "-W", "default", "-p", "no:cacheprovider"]
        command += ["-k", CHOSEN_WHEN_SMALL if is_small else CHOSEN, f"--junitxml={report}"]
        surroundings = {VARIABLE: device, "NCCL_SOCKET_IFNAME": "lo", **ONLY_THESE}
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | surroundings,
            capture_output=True,
            text=True,
            # Seconds for all tests of the wire
            timeout=240.0,
            check=False,
        )
        if not report.exists():
            last = " ".join((done.stderr or done.stdout).strip().splitlines()[-1:])
            reason = f"pytest ended with {done.returncode}: {last[:REASON_CHARACTERS]}"
            return {"failed": reason}
        rows = parse_report(report.read_text())
    return {
        "device": device,
        "rows": rows,
        "targets": {"every test passes": all(row["passed"] for row in rows)},
    }


def parse_report(report: str) -> list[dict[str, Any]]:
    """Name, seconds, outcome and the reason of a failure, from pytest's JUnit report."""
    rows = []
    for case in ElementTree.fromstring(report).iter("testcase"):
        troubles = [*case.iter("failure"), *case.iter("error")]
        messages = [" ".join((trouble.get("message") or "").split()) for trouble in troubles]
        rows.append(
            {
                "test": case.get("name"),
                "seconds": float(case.get("time", "0")),
                "passed": not troubles and case.find("skipped") is None,
                "reason": messages[0][:REASON_CHARACTERS] if messages else None,
            }
        )
    return rows

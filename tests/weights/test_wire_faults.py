"""`python -m benchmarks.wire_faults`, with one event: its whole run takes minutes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_a_short_probe_finds_the_survivors_at_work(tmp_path: Path) -> None:
    events = ["--lanes", "2", "--kills", "1", "--freezes", "0"]
    sizes = ["--settle-seconds", "0.5", "--megabytes", "4", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.wire_faults", *events, *sizes]
    # Memory is a target of long runs; a miss of it is an exit code too.
    subprocess.run(command, check=False, timeout=150)
    row = json.loads((tmp_path / "wire_faults.json").read_text())["figures"]["rows"][0]
    assert row["exit_code"] == 0
    assert row["events"] == {"kill": 1, "freeze": 0}
    assert row["targets"]["every survivor serves or is served"]
    assert row["targets"]["the bystander was never fenced"]

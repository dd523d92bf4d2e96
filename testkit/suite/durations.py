"""tests/durations.json: how long each test file takes, by `make durations`.

Decides which file starts first.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from testkit.suite.changes import ROOT

DURATIONS = ROOT / "tests" / "durations.json"


def load_durations(path: Path = DURATIONS) -> dict[str, float]:
    """Test file -> wall seconds of its tests in the recorded run; empty if none was recorded."""
    if not path.exists():
        return {}
    return {
        file: float(seconds) for file, seconds in json.loads(path.read_text())["seconds"].items()
    }


def middle_seconds(durations: dict[str, float]) -> float:
    """What a file without an entry is taken for, so that it starts in the middle."""
    return median(durations.values()) if durations else 0.0


def save_durations(reports: list[Path], machine: dict[str, Any], path: Path = DURATIONS) -> None:
    """Write the seconds of the files in reports of `measurement.Measurements`;
    later reports win.
    """
    seconds: dict[str, float] = {}
    for report in reports:
        for file, measured in json.loads(report.read_text())["files"].items():
            seconds[file] = round(measured["wall_seconds"], 2)
    record = {
        "processor": machine["processor"],
        "cores": machine["cores"],
        "seconds": dict(sorted(seconds.items())),
    }
    path.write_text(json.dumps(record, indent=1) + "\n")

"""The age of a process that is really started."""

from __future__ import annotations

import subprocess
import sys
import time

CODE = """
import time
wall_clock = time.time
time.time = lambda: wall_clock() + 7 * 3600  # set after the start
from rollcast.telemetry.process_age import process_age_seconds
time.sleep(0.5)
print(process_age_seconds())
"""


def test_a_process_knows_its_age_whatever_the_wall_clock_says() -> None:
    began = time.monotonic()
    said = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert 0.49 < float(said) < time.monotonic() - began + 0.02

"""Programs on a core that others use, or that they hardly get."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

from rollcast.config.tasks import Grading
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.sandbox.clocks import cpu_seconds
from rollcast.tasks.sandbox.limits import Limits

ANSWERS = json.dumps(
    {"kind": "calls", "entry_point": "f", "cases": [{"arguments": [], "output": 1}] * 2}
)
PRINTS = json.dumps({"kind": "stdin", "cases": [{"input": "", "output": "1"}] * 2})
HASTY_WAIT_SECONDS = 3.0
"""For programs that sleep or hardly get a core: what they do until the wall time is over stays the
same."""
PATIENT_WAIT_SECONDS = 120.0
COMPUTE = "import time\ndef compute(seconds):\n    while time.process_time() < seconds: pass\n"
BURN = "while True: pass"


def call(body: str) -> str:
    return f"```python\n{COMPUTE}def f():\n    {body}\n    return 1\n```"


def script(body: str) -> str:
    return f"```python\n{COMPUTE}{body}\nprint(1)\n```"


@contextlib.contextmanager
def hogs(core: int, number: int) -> Iterator[None]:
    """Processes that compute on that core all the time, each in its own session: the kernel shares
    out by session.
    """
    running = [
        subprocess.Popen([sys.executable, "-c", BURN], start_new_session=True)
        for _ in range(number)
    ]
    try:
        for process in running:
            os.sched_setaffinity(process.pid, {core})
        deadline = time.monotonic() + 60.0
        while min(cpu_seconds(process.pid) for process in running) < 0.05:  # until each computes
            assert time.monotonic() < deadline, "a process never got a core"
            time.sleep(0.01)
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def hasty(deadline_seconds: float) -> Limits:
    """Limits of processor time whose wall time is short as well."""
    return Limits(deadline_seconds, 1.5, Grading().memory_mib << 20, HASTY_WAIT_SECONDS)


def patient(deadline_seconds: float, seconds_per_test: float = 1.5) -> Limits:
    """Limits of processor time that a program gets however busy the machine is."""
    return Limits(
        deadline_seconds, seconds_per_test, Grading().memory_mib << 20, PATIENT_WAIT_SECONDS
    )


def put_on(core: int, sandbox: Sandbox, verifier: str = "code") -> None:
    """Let the sandbox's processes run on that core alone."""
    os.sched_setaffinity(sandbox._servers[verifier].process.pid, {core})

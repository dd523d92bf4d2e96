"""A service that waits for its end is woken by the signal, whichever thread
and moment it comes to.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from testkit.thread_signals import terminate_beside_the_main_thread

PROGRAM = """
import sys, threading, time
from rollcast.telemetry.stop_signal import StopSignal
stop = StopSignal()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("waits", flush=True)
{waits}
print(stop(), flush=True)
"""


def started(waits: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(waits=waits)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    return process


def said(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=60)[0]
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "waits", ["assert stop.wait()", "assert stop.wait(3600.0)", "while not stop.wait(1e-4): pass"]
)
def test_a_signal_to_another_thread_ends_the_wait(waits: str) -> None:
    process = started(waits)
    time.sleep(0.2)  # it waits by then, mostly: it must end either way
    terminate_beside_the_main_thread(process.pid)
    assert said(process) == "True\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_at_any_moment_ends_the_wait(number: signal.Signals) -> None:
    """Some reach it before it waits, some between its last look and its sleep."""
    for moment in range(10):
        process = started("assert stop.wait()")
        time.sleep(moment * 3e-4)
        os.kill(process.pid, number)
        assert said(process) == "True\n"


def test_without_a_signal_it_waits_as_long_as_it_is_asked_to() -> None:
    process = started(
        "began = time.monotonic(); assert not stop.wait(0.2); assert time.monotonic() - began >= "
        "0.2; assert not stop.wait(0.0)"
    )
    assert said(process) == "False\n"

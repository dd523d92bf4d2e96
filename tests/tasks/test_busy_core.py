"""Processor time counts, not wall time: programs on a core that others use.

More of them: test_busy_machine.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from rollcast.config.tasks import Grading
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.sandbox.clocks import cpu_seconds, open_waits, waited_seconds
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.verifiers import Grade
from tests.tasks.busy_cores import ANSWERS, BURN, PRINTS, call, hogs, patient, put_on, script

pytestmark = pytest.mark.protections
RIGHT, WRONG, NO_VERDICT = Grade(1.0, "ok"), Grade(0.0, "wrong"), Grade(0.0, "error")


@pytest.fixture
def core() -> int:
    return max(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """Limits so short that a busy machine would exceed them in wall time; its processes stand
    ready.
    """
    made = Sandbox(Grading(deadline_seconds=2.0, seconds_per_test=0.8))
    assert made.start("code") == ""
    yield made
    made.close()


def test_a_right_program_on_a_busy_core_is_right(sandbox: Sandbox, core: int) -> None:
    """Half a second of processor time, which lasts more than one there."""
    put_on(core, sandbox)
    with hogs(core, 2):
        began = time.monotonic()
        grade = sandbox.grade("code", call("compute(0.5)"), ANSWERS, limits=patient(2.0, 0.8))
        lasted = time.monotonic() - began
    assert (grade, grade.reason) == (RIGHT, "")
    assert lasted > 0.8, "the core was not busy: this shows nothing"


def test_a_program_that_only_waited_for_a_core_gets_no_verdict(sandbox: Sandbox, core: int) -> None:
    """Its processes get a thirteenth of the core."""
    put_on(core, sandbox)
    limits = Limits(1.0, 0.8, Grading().memory_mib << 20, least_wait_seconds=2.0)
    with hogs(core, 12):
        grade = sandbox.grade("code", script("compute(0.7)"), PRINTS, limits=limits)
    assert (grade, grade.reason) == (NO_VERDICT, "busy")
    assert "waited for a processor core" in grade.failure


def test_the_processor_time_of_all_tests_counts_as_a_whole(sandbox: Sandbox) -> None:
    many = json.dumps(
        {"kind": "calls", "entry_point": "f", "cases": [{"arguments": [], "output": 1}] * 40}
    )
    each = call("compute(time.process_time() + 0.2)")
    limits = Limits(0.7, 600.0, Grading().memory_mib << 20)
    grade = sandbox.grade("code", each, many, limits=limits)
    assert (grade, grade.reason) == (WRONG, "time")


def test_the_clocks_tell_computing_waiting_and_sleeping_apart(core: int) -> None:
    with hogs(core, 1):
        busy = subprocess.Popen([sys.executable, "-c", BURN])
        asleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        os.sched_setaffinity(busy.pid, {core})
        waits = {process.pid: open_waits(process.pid) for process in (busy, asleep)}
        began = time.monotonic()
        deadline = began + 60.0
        while (
            min(cpu_seconds(busy.pid) - 0.3, waited_seconds(waits[busy.pid])) < 0.3
            and time.monotonic() < deadline
        ):
            time.sleep(0.1)
        lasted = time.monotonic() - began
        computed = cpu_seconds(busy.pid)
        waited = waited_seconds(waits[busy.pid])
        rested = cpu_seconds(asleep.pid) + waited_seconds(waits[asleep.pid])
        for process in (busy, asleep):
            process.kill()
            process.wait()
    assert computed + waited > 0.8 * lasted
    assert waited >= 0.3, f"of {lasted:.1f} s next to another process on one core"
    assert rested < 0.5 * lasted
    assert waited_seconds(waits[busy.pid]) == 0.0, "a process that is gone"
    for descriptor in waits.values():
        os.close(descriptor)

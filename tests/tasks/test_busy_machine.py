"""A proof.

Processor time counts, not wall time: real programs on a core that others use, or that they hardly
get.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from rollcast.config.tasks import Grading
from rollcast.tasks.grading import Verifiers
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.verifiers import Grade
from tests.tasks.busy_cores import (
    ANSWERS,
    COMPUTE,
    PRINTS,
    call,
    hasty,
    hogs,
    patient,
    put_on,
    script,
)

pytestmark = [
    pytest.mark.protections,
    pytest.mark.timeout(300),
]
RIGHT, WRONG, NO_VERDICT = Grade(1.0, "ok"), Grade(0.0, "wrong"), Grade(0.0, "error")


@pytest.fixture
def core() -> int:
    return max(os.sched_getaffinity(0))


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """Limits so short that a busy machine would exceed them in wall time; its processes stand
    ready.
    """
    made = Sandbox(Grading(deadline_seconds=4.0, seconds_per_test=1.5))
    assert made.start("code") == ""
    yield made
    made.close()


@pytest.mark.parametrize(("program", "reference"), [(call, ANSWERS), (script, PRINTS)])
def test_a_right_program_on_a_busy_core_is_right(
    sandbox: Sandbox, core: int, program: object, reference: str
) -> None:
    """A second of processor time, which lasts two to three seconds there."""
    put_on(core, sandbox)
    answer = call("compute(1.0)") if program is call else script("compute(1.0)")
    with hogs(core, 2):
        began = time.monotonic()
        grade = sandbox.grade("code", answer, reference, limits=patient(4.0))
        lasted = time.monotonic() - began
    assert (grade, grade.reason) == (RIGHT, "")
    assert lasted > 1.5, "the core was not busy: this shows nothing"


@pytest.mark.parametrize(
    ("answer", "reference"), [(call("compute(600)"), ANSWERS), (script("compute(600)"), PRINTS)]
)
def test_a_program_beyond_its_processor_time_is_wrong_on_a_busy_core_as_well(
    sandbox: Sandbox, core: int, answer: str, reference: str
) -> None:
    put_on(core, sandbox)
    with hogs(core, 1):
        grade = sandbox.grade("code", answer, reference, limits=patient(4.0))
    assert (grade, grade.reason) == (WRONG, "time")


@pytest.mark.parametrize(
    ("answer", "reference"), [(call("compute(1.4)"), ANSWERS), (script("compute(1.4)"), PRINTS)]
)
def test_a_program_that_only_waited_for_a_core_gets_no_verdict(
    sandbox: Sandbox, core: int, answer: str, reference: str
) -> None:
    """Its processes get a thirteenth of the core."""
    put_on(core, sandbox)
    with hogs(core, 12):
        grade = sandbox.grade("code", answer, reference, limits=hasty(4.0))
    assert (grade, grade.reason) == (NO_VERDICT, "busy")
    assert "waited for a processor core" in grade.failure


def test_a_verifier_that_only_waited_for_a_core_did_not_hang(core: int, tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(
        f"{COMPUTE}def grade(completion, row):\n    compute(1.0)\n    return 1.0\n"
    )
    name = f"{tmp_path}/reward.py:grade"
    sandbox = Sandbox(Grading(deadline_seconds=1.5), Verifiers(named=[name]))
    assert sandbox.start(name) == ""
    try:
        assert sandbox.grade(name, "", "{}") == RIGHT
        put_on(core, sandbox, name)
        with hogs(core, 12):
            grade = sandbox.grade(name, "", "{}", limits=hasty(1.5))
    finally:
        sandbox.close()
    assert (grade, grade.reason) == (NO_VERDICT, "busy")


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        (call("time.sleep(600)"), ANSWERS),
        (script("time.sleep(600)"), PRINTS),
        (call("import os; r, w = os.pipe(); os.read(r, 1)"), ANSWERS),
        (
            script("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"),
            PRINTS,
        ),
    ],
)
def test_a_program_that_sleeps_or_is_blocked_is_wrong_on_a_busy_core_as_well(
    sandbox: Sandbox, core: int, answer: str, reference: str
) -> None:
    put_on(core, sandbox)
    with hogs(core, 3):
        grade = sandbox.grade("code", answer, reference, limits=hasty(4.0))
    assert (grade, grade.reason) == (WRONG, "time")


_RUN = """
import json, os, sys, time
from rollcast.config.tasks import Grading
from rollcast.tasks.sandbox.client import Sandbox
os.sched_setaffinity(0, set(map(int, sys.argv[1].split(","))))
sandbox = Sandbox(Grading(deadline_seconds=60.0))
assert sandbox.start("code") == ""
print("ready", flush=True)
sys.stdin.readline()
from concurrent.futures import ThreadPoolExecutor
program = "```python\\nimport time\\ndef f():\\n    time.sleep(0.5)\\n```"
reference = json.dumps({"kind": "tests", "tests": "f()"})
with ThreadPoolExecutor(4) as threads:
    def one(_):
        grade = sandbox.grade("code", program, reference)
        return grade.status
    print(json.dumps(list(threads.map(one, range(4)))), flush=True)
sandbox.close()
"""


def test_gradings_of_two_processes_together_take_no_more_cores_than_there_are(
    core: int, tmp_path: Path
) -> None:
    """Two processes with four threads each and one core: eight programs, never two at once."""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _RUN, str(core)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        most, deadline = 0, time.monotonic() + 120.0
        parents = [psutil.Process(process.pid) for process in processes]
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            most = max(most, sum(map(_gradings_under_way, parents)))
            time.sleep(0.02)
        statuses = [json.loads(process.communicate()[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert statuses == [["ok"] * 4] * 2
    assert most == 1


def _gradings_under_way(parent: psutil.Process) -> int:
    """Judges: the leaders of process groups below its fork server."""
    with contextlib.suppress(psutil.NoSuchProcess):
        servers = parent.children()
        below = [child.pid for server in servers for child in server.children()]
        return sum(_leads(pid) for pid in below)
    return 0


def _leads(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid) == pid
    return False


def test_four_at_once_on_one_core_are_right(core: int) -> None:
    """Each needs most of its limit alone."""
    program = call("compute(1.1)")
    before = os.sched_getaffinity(0)
    sandboxes = [Sandbox(Grading(deadline_seconds=4.0, seconds_per_test=1.5)) for _ in range(2)]
    try:
        os.sched_setaffinity(0, {core})
        assert [sandbox.start("code") for sandbox in sandboxes] == [""] * 2
        with ThreadPoolExecutor(4) as threads:
            grades = list(
                threads.map(lambda n: sandboxes[n % 2].grade("code", program, ANSWERS), range(4))
            )
    finally:
        os.sched_setaffinity(0, before)
        for sandbox in sandboxes:
            sandbox.close()
    assert grades == [RIGHT] * 4

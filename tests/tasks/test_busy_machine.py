"""Processor time counts, not wall time: real programs on a core that others use, or that they hardly get."""

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
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.sandbox.clocks import cpu_seconds, open_waits, waited_seconds
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.sandbox.protections import missing
from rollcast.tasks.verifiers import Grade, Verifiers

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"this machine lacks {' and '.join(missing())}"),
    pytest.mark.timeout(300),
]
RIGHT, WRONG, NO_VERDICT = Grade(1.0, "ok"), Grade(0.0, "wrong"), Grade(0.0, "error")
ANSWERS = json.dumps({"kind": "calls", "entry_point": "f", "cases": [{"arguments": [], "output": 1}] * 2})
PRINTS = json.dumps({"kind": "stdin", "cases": [{"input": "", "output": "1"}] * 2})
HASTY_WAIT_SECONDS = 3.0
"""For programs that sleep or hardly get a core: what they do until the wall time is over stays the same."""
COMPUTE = "import time\ndef compute(seconds):\n    while time.process_time() < seconds: pass\n"
BURN = "while True: pass"


def call(body: str) -> str:
    return f"```python\n{COMPUTE}def f():\n    {body}\n    return 1\n```"


def script(body: str) -> str:
    return f"```python\n{COMPUTE}{body}\nprint(1)\n```"


@contextlib.contextmanager
def hogs(core: int, number: int) -> Iterator[None]:
    """Processes that compute on that core all the time, each in its own session: the kernel shares out by session."""
    running = [subprocess.Popen([sys.executable, "-c", BURN], start_new_session=True) for _ in range(number)]
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


@pytest.fixture
def core() -> int:
    return max(os.sched_getaffinity(0))


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """Limits so short that a busy machine would exceed them in wall time; its processes stand ready."""
    made = Sandbox(Grading(deadline_seconds=4.0, seconds_per_test=1.5))
    assert made.start("code") == ""
    yield made
    made.close()


def hasty(deadline_seconds: float) -> Limits:
    """Limits of processor time whose wall time is short as well."""
    return Limits(deadline_seconds, 1.5, Grading().memory_mib << 20, HASTY_WAIT_SECONDS)


def put_on(core: int, sandbox: Sandbox, verifier: str = "code") -> None:
    """Let the sandbox's processes run on that core alone."""
    os.sched_setaffinity(sandbox._servers[verifier].process.pid, {core})


@pytest.mark.parametrize(("program", "reference"), [(call, ANSWERS), (script, PRINTS)])
def test_a_right_program_on_a_busy_core_is_right(sandbox: Sandbox, core: int, program: object, reference: str) -> None:
    """A second of processor time, which lasts two to three seconds there."""
    put_on(core, sandbox)
    answer = call("compute(1.0)") if program is call else script("compute(1.0)")
    with hogs(core, 2):
        began = time.monotonic()
        grade = sandbox.grade("code", answer, reference)
        lasted = time.monotonic() - began
    assert (grade, grade.reason) == (RIGHT, "")
    assert lasted > 1.5, "the core was not busy: this shows nothing"


@pytest.mark.parametrize(("answer", "reference"), [(call("compute(600)"), ANSWERS), (script("compute(600)"), PRINTS)])
def test_a_program_beyond_its_processor_time_is_wrong_on_a_busy_core_as_well(
    sandbox: Sandbox, core: int, answer: str, reference: str
) -> None:
    put_on(core, sandbox)
    with hogs(core, 1):
        grade = sandbox.grade("code", answer, reference)
    assert (grade, grade.reason) == (WRONG, "time")


@pytest.mark.parametrize(("answer", "reference"), [(call("compute(1.4)"), ANSWERS), (script("compute(1.4)"), PRINTS)])
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
    (tmp_path / "reward.py").write_text(f"{COMPUTE}def grade(completion, row):\n    compute(1.0)\n    return 1.0\n")
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
        (script("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"), PRINTS),
    ],
)
def test_a_program_that_sleeps_or_is_blocked_is_wrong_on_a_busy_core_as_well(
    sandbox: Sandbox, core: int, answer: str, reference: str
) -> None:
    put_on(core, sandbox)
    with hogs(core, 3):
        grade = sandbox.grade("code", answer, reference, limits=hasty(4.0))
    assert (grade, grade.reason) == (WRONG, "time")


def test_the_processor_time_of_all_tests_counts_as_a_whole() -> None:
    sandbox = Sandbox(Grading(deadline_seconds=1.0, seconds_per_test=600.0))
    many = json.dumps({"kind": "calls", "entry_point": "f", "cases": [{"arguments": [], "output": 1}] * 40})
    each = call("compute(time.process_time() + 0.3)")
    try:
        grade = sandbox.grade("code", each, many)
    finally:
        sandbox.close()
    assert (grade, grade.reason) == (WRONG, "time")


def test_the_clocks_tell_computing_waiting_and_sleeping_apart(core: int) -> None:
    with hogs(core, 1):
        busy = subprocess.Popen([sys.executable, "-c", BURN])
        asleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        os.sched_setaffinity(busy.pid, {core})
        waits = {process.pid: open_waits(process.pid) for process in (busy, asleep)}
        began = time.monotonic()
        deadline = began + 60.0
        while min(cpu_seconds(busy.pid) - 1.0, waited_seconds(waits[busy.pid])) < 0.5 and time.monotonic() < deadline:
            time.sleep(0.1)
        lasted = time.monotonic() - began
        computed = cpu_seconds(busy.pid)
        waited = waited_seconds(waits[busy.pid])
        rested = cpu_seconds(asleep.pid) + waited_seconds(waits[asleep.pid])
        for process in (busy, asleep):
            process.kill()
            process.wait()
    assert computed + waited > 0.8 * lasted
    assert waited >= 0.5, f"of {lasted:.1f} s next to another process on one core"
    assert rested < 0.5 * lasted
    assert waited_seconds(waits[busy.pid]) == 0.0, "a process that is gone"
    for descriptor in waits.values():
        os.close(descriptor)


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


def test_gradings_of_two_processes_together_take_no_more_cores_than_there_are(core: int, tmp_path: Path) -> None:
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
            grades = list(threads.map(lambda n: sandboxes[n % 2].grade("code", program, ANSWERS), range(4)))
    finally:
        os.sched_setaffinity(0, before)
        for sandbox in sandboxes:
            sandbox.close()
    assert grades == [RIGHT] * 4

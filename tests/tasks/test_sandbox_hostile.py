"""Over 200 programs that mean harm, graded for real: none gets through, and the grader stays up."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from rollcast.config.bounds import LEAST_WAIT_SECONDS
from rollcast.config.tasks import Grading
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.sandbox.protections import missing
from rollcast.tasks.verifiers import Grade
from testkit.tasks.hostile_programs import FAMILIES, Hostile, hostile_programs
from testkit.tasks.hostile_surroundings import Surroundings, surroundings

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"this machine lacks {' and '.join(missing())}"),
    pytest.mark.timeout(300),
]
NUMBERS = [(family, number) for family, bodies in FAMILIES.items() for number in range(len(bodies))]
MEMORY_MIB = 256
TEST_SECONDS = Grading().seconds_per_test
ENDLESS_LIMITS = Limits(0.4, TEST_SECONDS, MEMORY_MIB << 20, least_wait_seconds=3.0)
"""A third of them sleep, and keep a core from other gradings for as long."""
PATIENT_SECONDS = 60.0
"""How long a program that waited for a core without a verdict may wait the second time."""
OTHER_LIMITS = Limits(1.5, TEST_SECONDS, MEMORY_MIB << 20, LEAST_WAIT_SECONDS)
GOOD = "```python\ndef add(a, b): return a + b\n```"
ADDS = json.dumps({"kind": "tests", "tests": "assert add(20, 22) == 42"})
MAY_BE = {
    "endless": {"wrong"},
    "memory": {"ok", "wrong"},
    "processes": {"ok", "wrong"},
    "reading": {"wrong"},
    "writing": {"ok", "wrong"},
    "network": {"ok", "wrong"},
    "signals": {"ok", "wrong"},
    "forged": {"wrong"},
}
"""`ok` only where the program is right once its attack came to nothing. None gets out of its verdict."""


class Graded:
    def __init__(self, sandbox: Sandbox, around: Surroundings) -> None:
        self.around = around
        self.sandbox = sandbox
        self.programs = {(item.family, item.number): item for item in hostile_programs(around.filled)}
        assert sandbox.grade("code", GOOD, ADDS).status == "ok"
        self.server = sandbox._servers["code"].process.pid
        self.most_resident_bytes = 0
        self._done = threading.Event()
        watcher = threading.Thread(target=self._watch_memory)
        watcher.start()
        with ThreadPoolExecutor(4) as threads:
            self.grades = dict(zip(self.programs, threads.map(self._grade, self.programs.values()), strict=True))
        self._done.set()
        watcher.join()

    def _watch_memory(self) -> None:
        """Of the largest process that the fork server ever had."""
        server = psutil.Process(self.server)
        while not self._done.wait(0.02):
            for process in server.children():
                with contextlib.suppress(psutil.Error):
                    self.most_resident_bytes = max(self.most_resident_bytes, process.memory_info().rss)

    def _grade(self, program: Hostile) -> tuple[Grade, Grade]:
        """Its own grade, and that of a good program after it."""
        wanted = {"reading": repr(self.around.secret), "forged": repr(self.around.secret)}.get(program.family, "2")
        reference = json.dumps({"kind": "tests", "tests": f"assert f(1) == {wanted}"})
        limits = ENDLESS_LIMITS if program.family == "endless" else OTHER_LIMITS
        grade = self.sandbox.grade("code", f"```python\n{program.source}\n```", reference, limits=limits)
        if grade.reason == "busy":  # other programs of this machine had the cores
            patient = replace(limits, least_wait_seconds=PATIENT_SECONDS)
            grade = self.sandbox.grade("code", f"```python\n{program.source}\n```", reference, limits=patient)
        return grade, self.sandbox.grade("code", GOOD, ADDS, deadline_seconds=60.0)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graded]:
    sandbox = Sandbox(Grading(memory_mib=MEMORY_MIB))
    with surroundings(tmp_path_factory.mktemp("around")) as around:
        yield Graded(sandbox, around)
        sandbox.close()


def test_there_are_at_least_200_and_each_is_a_program() -> None:
    programs = hostile_programs({"victim": 1, "grader": 1, "port": 1, "udp": 1})
    assert len(programs) >= 200
    for program in programs:
        compile(program.source, program.name, "exec")


@pytest.mark.parametrize(("family", "number"), NUMBERS, ids=[f"{family}-{number}" for family, number in NUMBERS])
def test_a_hostile_program_is_contained_and_the_next_one_graded_right(graded: Graded, family: str, number: int) -> None:
    grade, next_grade = graded.grades[family, number]
    assert grade.status in MAY_BE[family], graded.programs[family, number].source
    assert next_grade.status == "ok"


def test_nothing_around_them_was_touched(graded: Graded) -> None:
    assert graded.around.touched() == []


def test_no_process_took_more_memory_than_it_may(graded: Graded) -> None:
    """256 MiB beyond what the fork server had, which is some 100 MiB."""
    assert 100 << 20 < graded.most_resident_bytes < 400 << 20


def test_no_process_is_left_and_the_fork_server_never_died(graded: Graded) -> None:
    server = psutil.Process(graded.server)
    assert graded.sandbox._servers["code"].process.pid == server.pid
    assert server.children(recursive=True) == []
    assert [pid for pid in psutil.pids() if _session(pid) == server.pid] == [server.pid]


def _session(pid: int) -> int | None:
    """Every process of a fork server stays in its session: none can start another."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


@pytest.mark.parametrize(
    ("family", "number"),
    [
        *(("reading", number) for number in (0, 5, 10, 23)),
        *(("writing", number) for number in (0, 15, 34)),
        *(("network", number) for number in (0, 4, 6, 17)),
        *(("processes", number) for number in (6, 21)),
        *(("signals", number) for number in (5, 14, 18)),
    ],
)
def test_without_the_sandbox_the_same_program_gets_through(tmp_path: Path, family: str, number: int) -> None:
    """So that the tests above can fail."""
    with surroundings(tmp_path) as around:
        (program,) = (
            item for item in hostile_programs(around.filled) if (item.family, item.number) == (family, number)
        )
        plain = subprocess.run(
            [sys.executable, "-c", f"{program.source}\nprint(f(1))"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if family == "reading":
            assert plain.stdout.strip() == around.secret
        else:
            deadline = time.monotonic() + 10
            while not (touched := around.touched()) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert touched != []

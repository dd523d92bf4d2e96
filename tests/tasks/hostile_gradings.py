"""Hostile programs that are graded for real in one sandbox, with good ones between them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from rollcast.config.bounds import LEAST_WAIT_SECONDS
from rollcast.config.tasks import Grading
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.verifiers import Grade
from testkit.tasks.hostile_programs import Hostile, hostile_programs
from testkit.tasks.hostile_surroundings import Surroundings, surroundings

NEEDS_PROTECTIONS = pytest.mark.protections
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
"""`ok` only where the program is right once its attack came to nothing. None gets out of its
verdict."""


class Gradings:
    """Of the programs that `is_chosen` takes; after every `good_every` of them a good program is
    graded.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        around: Surroundings,
        is_chosen: Callable[[Hostile], bool],
        good_every: int,
    ) -> None:
        self.around = around
        self.sandbox = sandbox
        self.programs = [item for item in hostile_programs(around.filled) if is_chosen(item)]
        assert sandbox.grade("code", GOOD, ADDS).status == "ok"
        self.server = sandbox._servers["code"].process.pid
        self.most_resident_bytes = 0
        self._done = threading.Event()
        watcher = threading.Thread(target=self._watch_memory)
        watcher.start()
        grades: list[Future[Grade]] = []
        good: list[Future[Grade]] = []
        with ThreadPoolExecutor(4) as threads:
            for place, program in enumerate(self.programs):
                grades.append(threads.submit(self._grade, program))
                if place % good_every == 0:
                    good.append(
                        threads.submit(sandbox.grade, "code", GOOD, ADDS, deadline_seconds=60.0)
                    )
        self.grades = dict(zip(self.programs, (grade.result() for grade in grades), strict=True))
        self.good_statuses = {grade.result().status for grade in good}
        self._done.set()
        watcher.join()

    def not_contained(self, family: str) -> list[tuple[str, str]]:
        """The programs of the family that got another grade than they may, and that grade."""
        of_family = {
            program: grade for program, grade in self.grades.items() if program.family == family
        }
        assert of_family
        return [
            (item.source, grade.status)
            for item, grade in of_family.items()
            if grade.status not in MAY_BE[family]
        ]

    def assert_nothing_is_left(self) -> None:
        """No process, the fork server lives, nothing around was touched, and memory kept to its
        limit.
        """
        server = psutil.Process(self.server)
        assert self.sandbox._servers["code"].process.pid == server.pid
        assert server.children(recursive=True) == []
        assert [pid for pid in psutil.pids() if _session(pid) == server.pid] == [server.pid]
        assert self.around.find_changes() == []
        # 256 MiB beyond what the fork server had, which is some 100 MiB.
        assert 100 << 20 < self.most_resident_bytes < 400 << 20

    def _watch_memory(self) -> None:
        """Of the largest process that the fork server ever had."""
        server = psutil.Process(self.server)
        while not self._done.wait(0.02):
            for process in server.children():
                with contextlib.suppress(psutil.Error):
                    self.most_resident_bytes = max(
                        self.most_resident_bytes, process.memory_info().rss
                    )

    def _grade(self, program: Hostile) -> Grade:
        wanted = {"reading": repr(self.around.secret), "forged": repr(self.around.secret)}.get(
            program.family, "2"
        )
        reference = json.dumps({"kind": "tests", "tests": f"assert f(1) == {wanted}"})
        limits = ENDLESS_LIMITS if program.family == "endless" else OTHER_LIMITS
        grade = self.sandbox.grade(
            "code", f"```python\n{program.source}\n```", reference, limits=limits
        )
        if grade.reason == "busy":  # other programs of this machine had the cores
            patient = replace(limits, least_wait_seconds=PATIENT_SECONDS)
            grade = self.sandbox.grade(
                "code", f"```python\n{program.source}\n```", reference, limits=patient
            )
        return grade


def _session(pid: int) -> int | None:
    """Every process of a fork server stays in its session: none can start another."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


@contextlib.contextmanager
def gradings(
    folder: Path, is_chosen: Callable[[Hostile], bool], good_every: int
) -> Iterator[Gradings]:
    sandbox = Sandbox(Grading(memory_mib=MEMORY_MIB))
    with surroundings(folder) as around:
        yield Gradings(sandbox, around, is_chosen, good_every)
        sandbox.close()


def assert_harms_without_sandbox(folder: Path, family: str, number: int) -> None:
    """So that a test of the sandbox can fail."""
    with surroundings(folder) as around:
        (program,) = (
            item
            for item in hostile_programs(around.filled)
            if (item.family, item.number) == (family, number)
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
            while not (touched := around.find_changes()) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert touched != []

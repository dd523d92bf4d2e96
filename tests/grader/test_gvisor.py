"""A grader in a real gVisor kernel, where the machine has its runtime: seccomp holds, Landlock is
not asked for.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from rollcast.tasks.verifiers import Grade
from rollcast.telemetry import grader_metrics
from tests.grader.processes import GraderProcess

IN_GVISOR = ("runsc", "--rootless", "--network=host", "do", "-force-overlay=false", "-quiet")
AS_IN_A_POD = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
"""Without capabilities, as every container of the chart."""
RIGHT = "def f(x): return x + 1"
ADDS = json.dumps({"kind": "tests", "tests": "assert f(1) == 2"})
TOKEN = "a-token-of-the-grader-alone"


@pytest.fixture(scope="module")
def grader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraderProcess]:
    if shutil.which("runsc") is None:
        pytest.skip("runsc is not installed: nothing runs in gVisor")
    tried = subprocess.run(
        [*IN_GVISOR, *AS_IN_A_POD, "true"], capture_output=True, text=True, timeout=60, check=False
    )
    if tried.returncode != 0:
        pytest.skip(f"runsc cannot start here: {tried.stderr.strip()[-200:]}")
    sections: dict[str, dict[str, Any]] = {
        "grader": {"sandbox": "gvisor", "token": TOKEN},
        "grading": {"deadline_seconds": 30.0},
    }
    with GraderProcess(
        tmp_path_factory.mktemp("gvisor"), within=(*IN_GVISOR, *AS_IN_A_POD), **sections
    ) as made:
        yield made


@pytest.mark.parametrize(
    ("body", "grade", "reason"),
    [
        (RIGHT, Grade(1.0, "ok"), ""),
        ("def f(x): return x", Grade(0.0, "wrong"), ""),
        ("def f(x):\n    while True: pass", Grade(0.0, "wrong"), "time"),
        ("def f(x): return bytearray(1 << 40)", Grade(0.0, "wrong"), "memory"),
        ("import os\ndef f(x): os._exit(0)", Grade(0.0, "wrong"), "exit"),
    ],
)
def test_verdicts_are_as_anywhere(
    grader: GraderProcess, body: str, grade: Grade, reason: str
) -> None:
    client = grader.client(patience_seconds=120.0)
    given = client.grade("code", f"```python\n{body}\n```", ADDS)
    assert (given, given.reason) == (grade, reason)
    client.close()


@pytest.mark.parametrize(
    "attempt",
    [
        "__import__('socket').socket()",
        "__import__('os').fork()",
        "__import__('threading')._start_new_thread(print, ())",
        "open('/tmp/escaped', 'w')",
        "__import__('os').kill(__import__('os').getppid(), 0)",
        "open(f'/proc/{__import__(\"os\").getppid()}/mem', 'rb')",
        "1 / (1 + __import__('ctypes').CDLL(None).ptrace(16, __import__('os').getppid(), 0, 0))",
    ],
)
def test_a_program_gets_no_further_than_reading(grader: GraderProcess, attempt: str) -> None:
    client = grader.client(patience_seconds=120.0)
    body = f"def f(x):\n    try: {attempt}\n    except Exception: return 2\n    return 'out'"
    assert client.grade("code", f"```python\n{body}\n```", ADDS) == Grade(1.0, "ok")
    client.close()


def test_it_is_up_after_all_of_that(grader: GraderProcess) -> None:
    assert grader.page("/readyz").status_code == 200
    assert grader.metric(grader_metrics.GRADER_GRADINGS) >= 12
    assert grader.process is not None
    assert grader.process.poll() is None

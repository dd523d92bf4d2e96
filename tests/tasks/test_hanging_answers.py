"""What is too much for the math parser: the answer's fault unless the reference alone is too much
for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from structlog.testing import capture_logs

from rollcast.config.tasks import Grading
from rollcast.tasks.grading import Verifiers
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.verifiers import Grade
from tests.tasks.hanging_answers import HANGING, verdict

CPU_SECONDS = 0.5
KINDS = ("a tower", "a factorial", "nested fractions", "a box in a box", "spaces")
"""Numbers that are too large, expressions that are too deep, texts that are too long. All of them:
test_all_hanging_answers.py."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox(Grading(deadline_seconds=CPU_SECONDS, sandbox="unsafe"))
    yield made
    made.close()


@pytest.mark.parametrize("name", KINDS)
def test_an_answer_that_is_too_much_for_the_parser_is_wrong(sandbox: Sandbox, name: str) -> None:
    assert verdict(sandbox, HANGING[name]) == Grade(0.0, "wrong")
    assert verdict(sandbox, r"\boxed{42}") == Grade(1.0, "ok")


def test_a_reference_that_is_too_much_is_reported_once_and_costs_its_time_once(
    sandbox: Sandbox,
) -> None:
    reference = r"\frac{1}{(10^9)!}"
    written = json.dumps(reference)
    with capture_logs() as logs:
        first = sandbox.grade("math", r"\boxed{7}", written)
        used = _cpu_seconds_of_gradings(sandbox)
        later = [
            sandbox.grade("math", answer, written) for answer in (r"\boxed{7}", r"\boxed{8}") * 20
        ]
    assert _cpu_seconds_of_gradings(sandbox) - used < CPU_SECONDS
    assert {(grade.reward, grade.status, grade.reason) for grade in [first, *later]} == {
        (0.0, "timeout", "reference")
    }
    assert reference.replace("\\", "\\\\") in first.failure
    assert [line["log_level"] for line in logs] == ["error"]
    assert sandbox.grade("math", r"\boxed{7}", '"7"') == Grade(1.0, "ok")


def _cpu_seconds_of_gradings(sandbox: Sandbox) -> float:
    """Of the fork server and of all its judges that have ended."""
    times = psutil.Process(sandbox._servers["math"].process.pid).cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def test_a_judge_that_has_to_wait_keeps_its_cpu_time(sandbox: Sandbox) -> None:
    """It is stopped, as one that gets no core is, for longer than its deadline, and has a verdict
    all the same.
    """
    sandbox.start("math")
    server = psutil.Process(sandbox._servers["math"].process.pid)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sandbox.grade, "math", HANGING["a tower"], '"42"')
        until = time.monotonic() + 60
        while not (judges := server.children()) and time.monotonic() < until:
            time.sleep(0.01)
        judges[0].suspend()
        time.sleep(2 * CPU_SECONDS)
        assert not running.done()
        judges[0].resume()
        assert running.result(timeout=120) == Grade(0.0, "wrong")


def test_a_users_verifier_that_sleeps_is_no_verdict(tmp_path: Path) -> None:
    """Only a parser of what the model wrote has a budget of CPU time; nobody knows what a user's
    function waits for.
    """
    (tmp_path / "reward.py").write_text(
        "import time\ndef grade(completion, row):\n    time.sleep(600)\n"
    )
    name = f"{tmp_path}/reward.py:grade"
    settings = Grading(sandbox="unsafe")
    limits = Limits(0.5, 0.5, settings.memory_mib << 20, least_wait_seconds=2.0)
    with closing(Sandbox(settings, Verifiers(named=[name]))) as sleeping:
        assert sleeping.grade(name, "x", "{}", limits=limits) == Grade(0.0, "timeout")

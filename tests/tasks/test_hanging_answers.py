"""What is too much for the math parser: the answer's fault unless the reference alone is too much for it."""

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
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.verifiers import Grade, Verifiers

CPU_SECONDS = 1.0
BUSY_ATTEMPTS = 5
HANGING = {
    "a tower": r"\boxed{10^{10^{10}}}",
    "a higher tower": r"\boxed{9^{9^{9^{9}}}}",
    "a tower without a box": r"The answer is $10^{10^{10}}$.",
    "a factorial": r"\boxed{\frac{1}{(10^9)!}}",
    "factorials of factorials": r"\boxed{5!!!!!!!!!!!}",
    "a sum": r"\boxed{\sum_{k=1}^{10^9} \frac{1}{k^2}}",
    "a product": r"\boxed{\prod_{k=1}^{10^8} k}",
    "a binomial": r"\boxed{\binom{10^9}{5\cdot 10^8}}",
    "a large set": r"\boxed{\{" + ",".join(map(str, range(20_000))) + r"\}}",
    "nested fractions": r"\boxed{" + r"\frac{1}{1+" * 500 + "1" + "}" * 500 + "}",
    "a polynomial": r"\boxed{(x+y+z+w)^{200}}",
    "brackets": r"\boxed{" + "(" * 3000 + "1" + ")" * 3000 + "}",
    "a box in a box": "\\boxed{" * 20_000,
    "spaces": r"\boxed{5" + " " * 200_000 + "5}",
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox(Grading(deadline_seconds=CPU_SECONDS, sandbox="unsafe"))
    yield made
    made.close()


@pytest.mark.parametrize("name", HANGING)
def test_an_answer_that_is_too_much_for_the_parser_is_wrong(sandbox: Sandbox, name: str) -> None:
    assert verdict(sandbox, HANGING[name]) == Grade(0.0, "wrong")
    assert verdict(sandbox, r"\boxed{42}") == Grade(1.0, "ok")


def verdict(sandbox: Sandbox, answer: str) -> Grade:
    """The grade by the reference 42; asked again while the machine is too busy for one."""
    for _ in range(BUSY_ATTEMPTS):
        grade = sandbox.grade("math", answer, '"42"')
        if grade.reason != "busy":
            break
    return grade


@pytest.mark.parametrize("reference", [r"10^{10^{10}}", r"\frac{1}{(10^9)!}"])
def test_a_reference_that_is_too_much_is_reported_once_and_costs_its_time_once(
    sandbox: Sandbox, reference: str
) -> None:
    written = json.dumps(reference)
    with capture_logs() as logs:
        first = sandbox.grade("math", r"\boxed{7}", written)
        used = _cpu_seconds_of_children()
        later = [sandbox.grade("math", answer, written) for answer in (r"\boxed{7}", r"\boxed{8}") * 20]
    assert _cpu_seconds_of_children() - used < CPU_SECONDS
    assert {(one.status, one.reason) for one in [first, *later]} == {("timeout", "reference")}
    assert reference.replace("\\", "\\\\") in first.failure
    assert [line["log_level"] for line in logs] == ["error"]
    assert sandbox.grade("math", r"\boxed{7}", '"7"') == Grade(1.0, "ok")


def _cpu_seconds_of_children() -> float:
    """Of the fork servers and of all their judges that have ended."""
    times = [server.cpu_times() for server in psutil.Process().children()]
    return sum(one.user + one.system + one.children_user + one.children_system for one in times)


def is_fork_server(process: psutil.Process) -> bool:
    try:
        return "rollcast.tasks.sandbox.fork_server" in process.cmdline()
    except psutil.ZombieProcess:
        return False


def test_a_judge_that_has_to_wait_keeps_its_cpu_time(sandbox: Sandbox) -> None:
    """It is stopped, as one that gets no core is, for longer than its deadline, and has a verdict all the same."""
    sandbox.start("math")
    (server,) = [one for one in psutil.Process().children() if is_fork_server(one)]
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
    """Only a parser of what the model wrote has a budget of CPU time; nobody knows what a user's function waits for."""
    (tmp_path / "reward.py").write_text("import time\ndef grade(completion, row):\n    time.sleep(600)\n")
    name = f"{tmp_path}/reward.py:grade"
    settings = Grading(sandbox="unsafe")
    limits = Limits(1.0, 1.0, settings.memory_mib << 20, least_wait_seconds=2.0)
    with closing(Sandbox(settings, Verifiers(named=[name]))) as sleeping:
        assert sleeping.grade(name, "x", "{}", limits=limits) == Grade(0.0, "timeout")

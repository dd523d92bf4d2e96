"""A generator's end against a real grader: verdicts, refusals, hostile programs, and one that is
away.

test_graders_at_their_limits.py has graders that are full, killed or stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from rollcast.config.errors import EXIT_USER_ERROR, UserError
from rollcast.config.run import parse_run_config
from rollcast.config.services import Grader
from rollcast.config.tasks import Grading
from rollcast.connections.grpc import MAX_GRADING_BYTES
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.verifiers import Grade
from rollcast.telemetry import generator_metrics, grader_metrics
from tests.grader.processes import Client, GraderProcess, door

pytestmark = [
    pytest.mark.protections,
    pytest.mark.timeout(300),
]
TOKEN = "a-token-of-the-grader-alone"
RIGHT = "```python\ndef f(x): return x + 1\n```"
WRONG = "```python\ndef f(x): return x\n```"
LOOP = "```python\ndef f(x):\n    while True: pass\n```"
ADDS = json.dumps({"kind": "tests", "tests": "assert f(1) == 2"})
LIMITS: dict[str, Any] = {"deadline_seconds": 8.0, "seconds_per_test": 6.0, "memory_mib": 256}


@pytest.fixture(scope="module")
def grader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraderProcess]:
    folder = tmp_path_factory.mktemp("grader")
    with GraderProcess(folder, grader={"token": TOKEN}, grading=LIMITS) as made:
        yield made


@pytest.fixture
def client(grader: GraderProcess) -> Iterator[Client]:
    made = grader.client()
    yield made
    made.close()


def test_verdicts_are_those_of_the_sandbox_at_home(client: Client) -> None:
    here = Sandbox(Grading(**LIMITS))
    cases = [
        ("code", RIGHT, ADDS),
        ("code", WRONG, ADDS),
        ("code", "no program", ADDS),
        ("code", "```python\nimport os\ndef f(x): os._exit(0)\n```", ADDS),
        ("code", "```python\ndef f(x): return 'x' * 10**10\n```", ADDS),
        ("code", "```python\ndef f(x): return '\\ud800' and 2 # é \ud800\n```", ADDS),
        ("code", RIGHT, "no reference"),
    ]
    try:
        for case in cases:
            at_home, away = (place.grade(*case, deadline_seconds=8.0) for place in (here, client))
            assert (away, away.reason) == (at_home, at_home.reason), case
    finally:
        here.close()
    assert [client.grade(*case).status for case in cases[:2]] == ["ok", "wrong"]


def test_every_verifier_of_the_sandbox_works_there(client: Client) -> None:
    answers = {r"so \boxed{\frac{1}{2}}": "ok", r"so \boxed{3}": "wrong"}
    for answer, status in answers.items():
        assert client.grade("math", answer, '"0.5"', deadline_seconds=8.0).status == status


def test_a_program_that_is_too_slow_is_wrong_and_a_judge_that_hangs_is_no_answer(
    client: Client,
) -> None:
    began = time.monotonic()
    grade = client.grade("code", LOOP, ADDS, deadline_seconds=1.0)
    assert (grade, grade.reason) == (Grade(0.0, "wrong"), "time")
    assert time.monotonic() - began < 20.0
    hanging = json.dumps({"kind": "tests", "tests": "f(1)\nwhile True: pass"})
    grade = client.grade("code", RIGHT, hanging, deadline_seconds=1.0)
    assert (grade, grade.reason) == (Grade(0.0, "timeout"), "time")
    assert client.count(generator_metrics.GRADER_FAILURES) == 0


def test_a_hostile_program_gets_nothing_and_the_grader_goes_on(
    client: Client, grader: GraderProcess
) -> None:
    """What is worth having there: the token, the run file, the requests of others."""
    assert grader.process is not None
    token = json.dumps({"kind": "tests", "tests": f"assert f(1) == {TOKEN!r}"})
    for body in (
        f"open('/proc/{grader.process.pid}/environ').read()",
        f"__import__('json').load(open({str(grader.folder / 'run.json')!r}))['grader']['token']",
        f"__import__('socket').create_connection(('127.0.0.1', {grader.port}))",
        "[__import__('os').fork() for _ in range(100)]",
        "[__import__('os').kill(p, 9) for p in (__import__('os').getppid(), -1)]",
        "bytearray(1 << 40)",
    ):
        program = (
            f"```python\ndef f(x):\n    try: return {body}\n    except Exception: return 2\n```"
        )
        assert client.grade("code", program, token).status == "wrong", body
        assert client.grade("code", program, ADDS).status == "ok", body
    assert grader.process.poll() is None


def test_what_it_did_is_on_its_metrics_page(client: Client, grader: GraderProcess) -> None:
    before = grader.metric(grader_metrics.GRADER_GRADINGS, status="ok")
    for _ in range(3):
        assert client.grade("code", RIGHT, ADDS).status == "ok"
    assert grader.metric(grader_metrics.GRADER_GRADINGS, status="ok") == before + 3
    page = {sample.name: sample for sample in grader.metrics()}
    assert page[f"{grader_metrics.GRADER_SECONDS.name}_count"].value >= 3
    assert (
        page[grader_metrics.GRADER_RUNNING.name].value
        == page[grader_metrics.GRADER_WAITING.name].value
        == 0
    )
    assert (grader.page("/healthz").status_code, grader.page("/readyz").status_code) == (200, 200)
    assert TOKEN not in grader.said()


@pytest.mark.parametrize("token", [None, SecretStr("another")])
def test_a_wrong_token_is_told_at_the_start_and_grades_nothing(
    grader: GraderProcess, token: SecretStr | None
) -> None:
    before = grader.metric(grader_metrics.GRADER_GRADINGS)
    client = grader.client(token=token)
    with pytest.raises(UserError, match=r"grader\.token \(not shown\): .*refuses it") as refused:
        client.check(["code"])
    assert "another" not in str(refused.value)
    began = time.monotonic()
    assert client.grade("code", RIGHT, ADDS) == Grade(0.0, "error")
    assert time.monotonic() - began < 10.0, "asking again would change nothing"
    assert grader.metric(grader_metrics.GRADER_GRADINGS) == before
    assert client.count(generator_metrics.GRADER_FAILURES, code="unauthenticated") == 2


def test_what_it_would_not_grade_is_told_at_the_start(
    grader: GraderProcess, client: Client
) -> None:
    client.check(["code", "math"])
    with pytest.raises(UserError, match="'palindrome': neither built in nor installed"):
        client.check(["palindrome"])
    with pytest.raises(UserError, match="arithmetic: it needs no sandbox"):
        client.check(["arithmetic"])
    for setting, value in (
        ("deadline_seconds", 9.0),
        ("seconds_per_test", 7.0),
        ("memory_mib", 257),
    ):
        tasks = grader.config.tasks
        wider = tasks.model_copy(
            update={"grading": tasks.grading.model_copy(update={setting: value})}
        )
        other = Client(
            grader.config.model_copy(update={"tasks": wider, "grader": client_settings(grader)}),
            10.0,
        )
        with pytest.raises(
            UserError,
            match=rf"tasks\.grading\.{setting} = {value:g}: this grader allows .* at most",
        ):
            other.check(["code"])
        assert other.grade("code", RIGHT, ADDS) == Grade(0.0, "error")


def client_settings(grader: GraderProcess) -> Grader:
    return grader.config.grader.model_copy(update={"port": grader.port})


def test_a_request_beyond_the_bound_is_not_sent(client: Client) -> None:
    assert client.grade("code", RIGHT, json.dumps("x" * MAX_GRADING_BYTES)) == Grade(0.0, "error")
    assert client.count(generator_metrics.GRADER_FAILURES, code="oversize") == 1
    assert client.grade("code", RIGHT, ADDS).status == "ok"


def test_a_grader_that_is_away_costs_its_patience_and_no_wrong_answer(
    grader: GraderProcess,
) -> None:
    with door() as nowhere:
        client = grader.client(port=nowhere.port, patience_seconds=3.0)
        began = time.monotonic()
        assert client.grade("code", RIGHT, ADDS) == Grade(0.0, "error")
        assert 1.0 < time.monotonic() - began < 20.0
        assert (
            client.count(generator_metrics.GRADER_FAILURES, code="unavailable")
            == nowhere.connections
            > 2
        )
        client.check(["code"])  # logged, and the run goes on


@pytest.mark.parametrize(
    ("sections", "environment", "message"),
    [
        (
            {"redis": {"password": "hunter2"}},
            {},
            "error: redis.password (not shown): the grader must not hold it",
        ),
        (
            {},
            {"ROLLCAST_RPC_TOKEN": "hunter2"},
            "error: rpc.token (not shown): the grader must not hold it",
        ),
        (
            {"grader": {"sandbox": "gvisor"}},
            {},
            "error: sandbox = 'gvisor': the kernel here is not gVisor's",
        ),
    ],
    ids=["redis", "rpc", "gvisor"],
)
def test_it_refuses_to_start_with_one_sentence(
    tmp_path: Path, sections: dict[str, object], environment: dict[str, str], message: str
) -> None:
    refused = GraderProcess(tmp_path, **sections)  # type: ignore[arg-type]
    assert refused.launch(**environment).wait(60.0) == EXIT_USER_ERROR
    assert refused.said().splitlines()[-1].startswith(message)
    assert "hunter2" not in refused.said()


def test_a_patience_shorter_than_a_grading_is_refused() -> None:
    settings = {"run": "a", "model": {"path": "m"}, "tasks": {"grading": {"sandbox": "remote"}}}
    complaint = (
        r"grader\.patience_seconds = 5\.0 is wrong: must exceed tasks\.grading\.deadline_seconds 50"
    )
    with pytest.raises(UserError, match=complaint):
        parse_run_config(settings | {"grader": {"patience_seconds": 5}}, source="run.yaml")
    assert parse_run_config(settings, source="run.yaml").longest_grading_seconds == 180.0

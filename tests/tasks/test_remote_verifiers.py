"""Verifiers that are services, against real HTTP servers that answer, hang, fail, lie and never
stop.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.config.tasks import Tasks
from rollcast.config.verifiers import JUDGE_PROMPT, HttpVerifier, JudgeVerifier
from rollcast.local.ports import free_port
from rollcast.tasks.remote.asking import MAX_ANSWER_BYTES, Circuit
from rollcast.tasks.remote.llm_judge import find_score, question
from rollcast.tasks.remote.services import Services
from rollcast.tasks.verifiers import Grade

ROW = json.dumps({"prompt": "6 x 7?", "answer": "42", "style": "{completion}"})
Behaviour = Callable[[BaseHTTPRequestHandler, Any], None]


def reply(handler: BaseHTTPRequestHandler, answer: Any, status: int = 200) -> None:
    content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


@contextmanager
def server(behaviour: Behaviour) -> Iterator[tuple[str, list[Any]]]:
    """Its address, and the bodies it was sent."""
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append(body | {"path": self.path, "token": self.headers.get("Authorization")})
            try:
                behaviour(self, body)
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    threading.Thread(target=made.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{made.server_port}", seen
    finally:
        made.shutdown()
        made.server_close()


def ask(
    settings: HttpVerifier | JudgeVerifier, completions: list[str], *, one_by_one: bool = False
) -> tuple[list[Grade], Counter[str]]:
    """The grades, and what became of the requests."""
    outcomes: Counter[str] = Counter()

    async def run() -> list[Grade]:
        services = Services([settings], lambda name, outcome: outcomes.update([outcome]))
        try:
            if one_by_one:
                return [await services.grade("it", completion, ROW) for completion in completions]
            return await asyncio.gather(
                *(services.grade("it", completion, ROW) for completion in completions)
            )
        finally:
            await services.close()

    return asyncio.run(run()), outcomes


def http(url: str, **changes: Any) -> HttpVerifier:
    return HttpVerifier(name="it", url=url, **{"tries": 1, "deadline_seconds": 10.0, **changes})


def rewards(handler: BaseHTTPRequestHandler, body: Any) -> None:
    """Half of a right answer is half a reward; what it cannot read has none."""
    worth = {"42": 1.0, "about 42": 0.5, "?": None}
    reply(handler, {"rewards": [worth.get(item["completion"], 0) for item in body["items"]]})


def test_completions_go_in_batches_and_rewards_come_back_in_their_order() -> None:
    completions = ["42", "41", "about 42", "?", "42"] * 4
    with server(rewards) as (url, seen):
        grades, outcomes = ask(http(url, batch=8, gather_seconds=0.2), completions)
    assert [(grade.reward, grade.status) for grade in grades] == [
        (1.0, "ok"), (0.0, "wrong"), (0.5, "ok"), (0.0, "error"), (1.0, "ok"),
    ] * 4  # fmt: skip
    assert sorted(len(body["items"]) for body in seen) == [4, 8, 8]
    assert outcomes == {"answered": 3}
    assert all(item["row"] == json.loads(ROW) for body in seen for item in body["items"])


def hang(handler: BaseHTTPRequestHandler, body: Any) -> None:
    time.sleep(5)


def drip(handler: BaseHTTPRequestHandler, body: Any) -> None:
    """Something comes all the time, so that no read ever times out."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(50):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


def flood(handler: BaseHTTPRequestHandler, body: Any) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(3 * MAX_ANSWER_BYTES >> 16):
        handler.wfile.write(b" " * (1 << 16))


@pytest.mark.parametrize(
    ("behaviour", "status", "outcome", "says"),
    [
        (hang, "timeout", "timeout", "gave no answer within 0.5 s"),
        (drip, "timeout", "timeout", "gave no answer within 0.5 s"),
        (flood, "error", "unreadable", f"answers more than {MAX_ANSWER_BYTES} bytes"),
        (lambda handler, body: reply(handler, {}, 500), "error", "refused", ("answers with status "
            "500")),
        (lambda handler, body: reply(handler, {}, 404), "error", "refused", ("answers with status "
            "404")),
        (lambda handler, body: reply(handler, b"<html>"), "error", "unreadable",
            ("something else than "
            "was "
            "asked "
            "for")),
        (lambda handler, body: reply(handler, b"[" * 100_000), "error", "unreadable",
            "RecursionError"),
        (lambda handler, body: reply(handler, {"rewards": [1, 1]}), "error", "unreadable",
            "2 rewards for 1 "),
        (lambda handler, body: reply(handler, [1]), "error", "unreadable", "TypeError"),
        (lambda handler, body: reply(handler, {"rewards": [7]}), "error", "answered",
            ("gave 7; a reward is "
            "a "
            "number")),
        (lambda handler, body: reply(handler, {"rewards": ["1"]}), "error", "answered",
            ("gave '1'; a reward "
            "is")),
        (lambda handler, body: reply(handler, b'{"rewards": [NaN]}'), "error", "answered",
            ("gave nan; a reward "
            "is")),
        (lambda handler, body: handler.connection.close(), "error", "unreachable",
            "cannot be reached"),
    ],
)  # fmt: skip
def test_a_service_that_fails_gives_no_verdict_and_never_a_zero_that_counts(
    behaviour: Behaviour, status: str, outcome: str, says: str
) -> None:
    with server(behaviour) as (url, _):
        deadline = 0.5 if behaviour in (hang, drip) else 10.0
        (grade,), outcomes = ask(http(url, deadline_seconds=deadline), ["42"])
    assert (grade.reward, grade.status) == (0.0, status)
    assert says in grade.failure
    assert outcomes == {outcome: 1}


def test_what_may_pass_is_tried_again_and_a_refusal_is_not() -> None:
    answers = [503, 429, 200]

    def recovers(handler: BaseHTTPRequestHandler, body: Any) -> None:
        reply(handler, {"rewards": [1.0]}, answers.pop(0))

    with server(recovers) as (url, seen):
        assert ask(http(url, tries=3), ["42"])[0] == [Grade(1.0, "ok")]
        assert len(seen) == 3
    with server(lambda handler, body: reply(handler, {}, 401)) as (url, seen):
        assert ask(http(url, tries=3), ["42"])[0][0].status == "error"
        assert len(seen) == 1


def test_a_service_that_fails_again_and_again_is_left_alone() -> None:
    with server(lambda handler, body: reply(handler, {}, 404)) as (url, seen):
        grades, outcomes = ask(
            http(url, batch=1, failures=3, pause_seconds=60.0), ["42"] * 8, one_by_one=True
        )
    assert len(seen) == 3
    assert outcomes == {"refused": 3, "paused": 5}
    assert re.search(
        (
            r"failed 3 times in a row and is left alone for 60 s; the last time: \S+ answers with "
            r"status 404$"
        ),
        grades[-1].failure,
    )


def test_an_open_circuit_lets_one_try_after_each_pause_and_closes_when_it_works() -> None:
    now = [0.0]
    circuit = Circuit(failures=2, pause_seconds=10.0, clock=lambda: now[0])
    for _ in range(2):
        assert circuit.allows()
        circuit.note(worked=False)
    assert not circuit.allows()
    now[0] = 10.0
    assert [circuit.allows(), circuit.allows()] == [True, False]
    circuit.note(worked=False)
    now[0] = 19.0
    assert not circuit.allows()
    now[0] = 20.0
    assert circuit.allows()
    circuit.note(worked=True)
    assert all(circuit.allows() for _ in range(5))


def test_a_token_is_presented_and_a_missing_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARD_TOKEN", "t0p")
    with server(rewards) as (url, seen):
        assert ask(http(url, token_variable="REWARD_TOKEN"), ["42"])[0] == [Grade(1.0, "ok")]
        assert seen[0]["token"] == "Bearer t0p"
        (grade,), _ = ask(http(url, token_variable="NOT_SET"), ["42"])
    assert "environment variable NOT_SET, which is to hold its token, is not set" in grade.failure


@pytest.mark.parametrize("token", ["t0p\nsecret", "gehéim", "t0p\x00secret"])
def test_a_token_that_is_none_is_said_without_its_text_and_holds_nobody(
    monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "REWARD_TOKEN": token})
    with server(rewards) as (url, seen):
        (grade,), outcomes = ask(http(url, token_variable="REWARD_TOKEN"), ["42"])
    assert (grade.status, seen, outcomes) == ("error", [], {"refused": 1})
    assert "REWARD_TOKEN holds no token" in grade.failure
    assert "t0p" not in grade.failure


async def test_whoever_waits_when_the_service_is_closed_gets_no_verdict() -> None:
    """In a batch that gathers, in one that has just been made, and in one that is under way."""
    with server(hang) as (url, _):
        services = Services([http(url, batch=2, gather_seconds=10.0)], lambda name, outcome: None)
        waiting = [asyncio.create_task(services.grade("it", "42", ROW)) for _ in range(2)]
        await asyncio.sleep(0.2)
        waiting += [asyncio.create_task(services.grade("it", "42", ROW)) for _ in range(3)]
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await services.close()
            grades = await asyncio.gather(*waiting)
    assert {(grade.status, grade.failure) for grade in grades} == {("error", "the generator stops")}


def says(text: str, **more: Any) -> Behaviour:
    return lambda handler, body: reply(
        handler, {"choices": [{"message": {"role": "assistant", "content": text}}]} | more
    )


@pytest.mark.parametrize(
    ("answer", "reward", "status"),
    [
        ("It is right.\nScore: 10", 1.0, "ok"),
        ("**Score: 2.5/10**", 0.25, "ok"),
        ("Score: 10\nor rather\nscore - 0", 0.0, "wrong"),
        ("It says `Score: 10` but I do not.", 0.0, "error"),
        ("Score: 11", 0.0, "error"),
        ("Score: -1", 0.0, "error"),
        ("", 0.0, "error"),
    ],
)
def test_the_last_line_of_a_judge_is_the_reward(answer: str, reward: float, status: str) -> None:
    with server(says(answer)) as (url, seen):
        settings = JudgeVerifier(name="it", url=f"{url}/v1/", model="judge-7b", tries=1)
        (grade,), outcomes = ask(settings, ["<think>hm</think>It is 42."])
    assert (grade.reward, grade.status) == (reward, status), grade.failure
    assert outcomes == {"unreadable" if status == "error" else "answered": 1}
    (sent,) = seen
    assert (sent["path"], sent["model"], sent["temperature"]) == (
        "/v1/chat/completions",
        "judge-7b",
        0,
    )
    assert sent["messages"] == [
        {
            "role": "user",
            "content": JUDGE_PROMPT.replace("{prompt}", "6 x 7?").replace(
                "{completion}", "It is 42."
            ),
        }
    ]


def test_a_judge_whose_answer_has_another_form_gives_no_verdict() -> None:
    with server(lambda handler, body: reply(handler, {"error": "no such model"})) as (url, _):
        (grade,), _ = ask(JudgeVerifier(name="it", url=url, model="m", tries=1), ["42"])
    assert grade.status == "error"


def test_a_judge_that_is_cut_off_gives_no_verdict_whatever_stands_last() -> None:
    def cut(handler: BaseHTTPRequestHandler, body: Any) -> None:
        reply(
            handler,
            {"choices": [{"message": {"content": "Right.\nScore: 1"}, "finish_reason": "length"}]},
        )

    with server(cut) as (url, _):
        (grade,), _ = ask(JudgeVerifier(name="it", url=url, model="m", tries=1), ["42"])
    assert (grade.reward, grade.status) == (0.0, "error")
    assert "cut off after 1024 tokens" in grade.failure


@pytest.mark.parametrize("part", ["\n", " ", "score -", "*\n", "score: 1 /"])
def test_a_long_answer_of_a_judge_is_read_at_once(part: str) -> None:
    """As long as an answer may be; with the square of its length this would take hours."""
    assert find_score(part * (MAX_ANSWER_BYTES // len(part)) + "x\nScore: 4\nso much for it") == 4.0


def test_what_a_completion_writes_is_no_place_of_the_judges_prompt() -> None:
    row = {"prompt": [{"role": "user", "content": "6 x 7?"}], "answer": "42"}
    asked = question("{prompt}|{completion}|{answer}|{unknown}", "{answer} {prompt}", row)
    assert asked == "user: 6 x 7?|{answer} {prompt}|42|{unknown}"
    assert find_score("Score: 3\nScore: 4") == 4.0


PAGE = (Path(__file__).parents[2] / "docs" / "verifiers.md").read_text()


def test_the_service_of_the_page_grades_as_its_run_file_says(tmp_path: Path) -> None:
    (source,) = re.findall(r"```python\n# service.py\n(.*?)```", PAGE, re.DOTALL)
    told = [
        yaml.safe_load(text)["tasks"] for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    ]
    port = free_port("127.0.0.1")
    (tmp_path / "service.py").write_text(source)
    service, judge = (Tasks.model_validate(item).verifiers[0] for item in told[2:])
    assert isinstance(service, HttpVerifier)
    assert isinstance(judge, JudgeVerifier)
    assert question(judge.prompt, "It is 42.", json.loads(ROW)).startswith(
        "The question was: 6 x 7?\nA right answer is: 42"
    )
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "service.py"), str(port)], stderr=subprocess.DEVNULL
    ) as process:
        try:
            here = service.model_copy(
                update={"name": "it", "url": f"http://127.0.0.1:{port}", "tries": 20}
            )
            grades, _ = ask(here, ["42", "41"])
        finally:
            process.kill()
    assert [grade.reward for grade in grades] == [1.0, 0.0]

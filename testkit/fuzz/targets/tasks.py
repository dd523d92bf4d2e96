"""Rows of data sets, and what judges, reward services and programs of the sandbox answer."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

from rollcast.config.datasets import JsonlDataset
from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, load_run_config
from rollcast.config.verifiers import HttpVerifier, JudgeVerifier
from rollcast.tasks.prompt_rows import read_dataset
from rollcast.tasks.remote.asking import NoAnswer, _read
from rollcast.tasks.remote.llm_judge import LlmJudge
from rollcast.tasks.remote.reward_service import RewardService
from rollcast.tasks.sandbox.client import _decode
from rollcast.tasks.sandbox.values import decode, encode
from rollcast.tasks.verifiers import find_verifier, run_verifier
from testkit.fuzz.mutation import change_json, change_json_lines, change_text
from testkit.fuzz.target import Target, is_json, scratch_file
from testkit.fuzz.targets.run_files import CONFIGS

ROWS: dict[str, dict[str, Any]] = {
    "math-500": {"problem": "What is 1 + 1?", "answer": "2"},
    "gsm8k": {"question": "One and one?", "answer": "It is two.\n#### 2"},
    "humaneval": {
        "prompt": "def f(x):\n    ...\n",
        "entry_point": "f",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n",
    },
    "mbpp-plus": {"prompt": "Write f.", "test_list": ["assert f(1) == 2"], "test": "f(1)"},
    "deepcoder": {
        "problem": "Add.",
        "tests": json.dumps([{"input": "1 2", "output": "3", "type": "stdin_stdout"}]),
        "starter_code": "",
    },
    "livecodebench": {
        "question_content": "Add.",
        "starter_code": "",
        "public_test_cases": json.dumps([{"input": "1", "output": "2", "testtype": "stdin"}]),
        "private_test_cases": "[]",
        "metadata": "{}",
        "contest_date": "2024-01-01",
    },
    "knights-and-knaves": {
        "quiz": "Zoey and Bob ...",
        "names": ["Zoey", "Bob"],
        "solution": [True, False],
    },
}


@cache
def _settings() -> RunConfig:
    return load_run_config(CONFIGS / "demo.yaml")


def _rows() -> list[bytes]:
    """One data set of each mapping, whose name is the first line's."""
    plain = [{"prompt": f"What is {n}?", "answer": n, "task": {"a": [n]}} for n in range(3)]
    chats = [{"prompt": [{"role": "user", "content": f"{n}?"}], "answer": str(n)} for n in range(3)]
    sets: list[tuple[str, list[dict[str, Any]]]] = [("", plain), ("", chats)]
    sets += [(name, [row, row]) for name, row in ROWS.items()]
    return [
        "".join(f"{json.dumps(line)}\n" for line in [{"mapping": name}, *rows]).encode()
        for name, rows in sets
    ]


def _has_object(content: bytes) -> bool:
    """Whether some line besides the first is a JSON object."""
    return any(is_json(line) and line.startswith(b"{") for line in content.splitlines()[1:])


def _read_rows(content: bytes) -> object:
    first, _, rest = content.partition(b"\n")
    mapping = first.removeprefix(b'{"mapping": "').removesuffix(b'"}').decode("utf-8", "ignore")
    path = scratch_file("rows.jsonl", rest)
    own: dict[str, Any] = {} if mapping not in ROWS else {"mapping": mapping}
    if not own:
        own = {"prompt_field": "prompt", "answer_field": "answer", "verifier": "math"}
    dataset = JsonlDataset(name="rows", path=path, **own)
    return list(read_dataset(dataset, _settings().tasks, 0, Counter()))


@cache
def _judge() -> LlmJudge:
    return LlmJudge(JudgeVerifier(name="j", url="http://h/v1", model="m"), lambda _: None)


@cache
def _service() -> RewardService:
    return RewardService(HttpVerifier(name="s", url="http://h"), lambda _: None)


def _judge_answers() -> list[bytes]:
    texts = (
        "Good.\nScore: 7",
        "**Final score (0-5):** 4",
        "score: 80 %",
        "The score is 4 out of 5.",
    )
    return [
        json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}).encode()
        for text in texts
    ]


def _values() -> list[bytes]:
    values: list[Any] = [
        (1, {2: "a"}),
        [1.5] * 40,
        {"a": {1, 2}, "b": b"x", "c": 1 + 2j},
        [None, True, range(3), frozenset("a")],
    ]
    return [encode(value) for value in values]


def _verdicts() -> list[bytes]:
    grade = {"reward": 1.0, "status": "ok", "reason": "", "failure": ""}
    return [
        b"%s\n%s\n" % (json.dumps(grade).encode(), json.dumps(end).encode())
        for end in ({"ended": "exit", "code": 0}, {"ended": "deadline"}, {"ended": "", "code": -9})
    ]


def _math_answers() -> list[bytes]:
    references = (
        "2",
        "\\frac{1}{2}",
        "(1,2]",
        "x^2+1",
        "1,234",
        "\\sqrt{2}",
        "\\{1,2,3\\}",
        "12\\%",
    )
    return [f"{text}\nso it is \\boxed{{{text}}}".encode() for text in references]


def _grade_math(content: bytes) -> object:
    """The first line is the reference."""
    reference, _, answer = content.decode("utf-8", "replace").partition("\n")
    return run_verifier(find_verifier("math"), answer, json.dumps(reference))


TARGETS = (
    Target(
        "data-rows",
        _rows,
        change_json_lines,
        _has_object,
        _read_rows,
        (UserError,),
        (
            *("tasks.rows", "tasks.prompt_rows", "tasks.mappings", "tasks.fields", "tasks.chats"),
            "tasks.code_tests",
        ),
    ),
    Target(
        "judge-answer",
        _judge_answers,
        change_json,
        is_json,
        lambda content: _read(lambda body: _judge()._read(body["choices"][0]), content, "http://h"),
        (NoAnswer,),
        ("tasks.remote.llm_judge",),
    ),
    Target(
        "reward-answer",
        lambda: [b'{"rewards": [1.0, 0.25, null]}'],
        change_json,
        is_json,
        lambda content: _read(lambda body: _service()._read(body, 3), content, "http://h"),
        (NoAnswer,),
        ("tasks.remote.reward_service",),
    ),
    Target(
        "sandbox-value",
        _values,
        change_json,
        is_json,
        decode,
        (ValueError, RecursionError),
        ("tasks.sandbox.values",),
    ),
    Target(
        "sandbox-verdict",
        _verdicts,
        change_json_lines,
        lambda content: any(map(is_json, content.splitlines())),
        _decode,
        (),
        ("tasks.sandbox.client",),
    ),
    Target(
        "math-answer",
        _math_answers,
        change_text,
        lambda content: b"\n" in content and b"boxed{" in content,
        _grade_math,
        (),
        (
            *("tasks.math_verifier", "tasks.math_boxes", "tasks.math_equality"),
            *("tasks.math_intervals", "tasks.math_notation", "tasks.math_words"),
        ),
    ),
)

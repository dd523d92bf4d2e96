"""Reward functions as TRL's and verl's users have them, named as verifiers: called as those
libraries call them.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.function_loading import load_function
from rollcast.tasks.trial import try_verifiers
from rollcast.tasks.verifiers import Grade, find_verifier, run_verifier
from tests.tasks.data_sets import jsonl_tasks, write_rows

SOURCE = '''\
import re

SEEN = []


def trl_documented(prompts, completions, ground_truth, **kwargs):
    """TRL's documentation: example 4, a column of the data set."""
    matches = [re.search(r"\\\\boxed\\{(.*?)\\}", completion) for completion in completions]
    contents = [match.group(1) if match else "" for match in matches]
    return [1.0 if c == gt else 0.0 for c, gt in zip(contents, ground_truth)]


def trl_chat(completions, **kwargs):
    """TRL's documentation: example 2, a conversational data set."""
    pattern = r"^<think>.*?</think><answer>.*?</answer>$"
    contents = [completion[0]["content"] for completion in completions]
    return [1.0 if re.match(pattern, content) else 0.0 for content in contents]


def trl_sees(prompts, completions, level, **kwargs):
    SEEN.append((prompts, completions, level, kwargs))
    return [0.5]


def trl_without_more(prompts, completions, answer):
    return [float(completion == right) for completion, right in zip(completions, answer, strict=True)]


def trl_none(completions, **kwargs):
    return [None]


def trl_number(completions, **kwargs):
    return 1.0


async def trl_async(completions, **kwargs):
    return [1.0]


def verl_gsm8k(solution_str, ground_truth, method="strict", format_score=0.0, score=1.0):
    """verl's utils/reward_score/gsm8k.py: the names of its arguments."""
    found = re.findall("#### (\\\\-?[0-9\\\\.\\\\,]+)", solution_str)
    return (score if found[-1] == ground_truth else format_score) if found else 0


def verl_custom(data_source, solution_str, ground_truth, extra_info=None):
    SEEN.append((data_source, solution_str, ground_truth, extra_info))
    return {"score": float(solution_str == ground_truth), "acc": True}


def verl_batch(data_sources, solution_strs, ground_truths, extra_infos=None):
    """verl's BatchRewardManager."""
    return [{"score": float(s == t)} for s, t in zip(solution_strs, ground_truths, strict=True)]


def trl_without_prompts(completions, answer):
    return [float(completion == right) for completion, right in zip(completions, answer, strict=True)]


def verl_no_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"reward": 1.0}


def ours(completion, row):
    return float(completion == row["answer"])


def ours_by_other_names(completions, row):
    return float(completions == row["answer"])
'''  # noqa: E501
ROW: dict[str, Any] = {"prompt": "1 + 1", "answer": "2", "ground_truth": "2", "level": 3}
VERL_ROW: dict[str, Any] = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user", "content": "1 + 1"}],
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"index": 7},
}
CHAT = ROW | {"prompt": [{"role": "user", "content": "1 + 1"}]}


@pytest.fixture
def rewards(tmp_path: Path) -> Path:
    file = tmp_path / "rewards.py"
    file.write_text(SOURCE)
    return file


def graded(file: Path, name: str, completion: str, row: dict[str, Any]) -> Grade:
    return run_verifier(find_verifier(f"{file}:{name}"), completion, json.dumps(row))


@pytest.mark.parametrize(
    ("name", "completion", "row", "reward"),
    [
        ("trl_documented", r"so \boxed{2}", ROW, 1.0),
        ("trl_documented", r"so \boxed{3}", ROW, 0.0),
        ("trl_chat", "<think>a</think><answer>2</answer>", CHAT, 1.0),
        ("trl_chat", "2", CHAT, 0.0),
        ("trl_without_more", "2", ROW, 1.0),
        ("trl_without_more", "3", ROW, 0.0),
        ("verl_gsm8k", "it is\n#### 2", ROW, 1.0),
        ("verl_gsm8k", "it is\n#### 2", VERL_ROW, 1.0),
        ("verl_gsm8k", "it is\n#### 2", {"prompt": "1 + 1", "answer": "2"}, 1.0),
        ("verl_gsm8k", "it is 2", VERL_ROW, 0.0),
        ("verl_custom", "2", VERL_ROW, 1.0),
        ("verl_custom", "3", VERL_ROW, 0.0),
        ("trl_without_prompts", "2", ROW, 1.0),
        ("trl_without_prompts", "3", ROW, 0.0),
        ("verl_batch", "2", VERL_ROW, 1.0),
        ("verl_batch", "3", VERL_ROW, 0.0),
        ("ours", "2", ROW, 1.0),
        ("ours_by_other_names", "2", ROW, 1.0),
    ],
)
def test_it_grades_as_where_it_comes_from(
    name: str, completion: str, row: dict[str, Any], reward: float, rewards: Path
) -> None:
    found = graded(rewards, name, completion, row)
    assert found.failure == ""
    assert found.reward == reward


def seen_by(file: Path, name: str) -> list[Any]:
    """What the function was called with; each name has a module of its own."""
    return list(inspect.unwrap(load_function(f"{file}:{name}")).__globals__["SEEN"])


def test_trl_gets_lists_of_one_and_verl_the_fields_of_its_rows(rewards: Path) -> None:
    graded(rewards, "trl_sees", "4", ROW)
    graded(rewards, "trl_sees", "4", CHAT)
    graded(rewards, "verl_custom", "4", VERL_ROW)
    seen = [*seen_by(rewards, "trl_sees"), *seen_by(rewards, "verl_custom")]
    more = {"answer": ["2"], "ground_truth": ["2"]}
    assert seen[0] == (["1 + 1"], ["4"], [3], more)
    assert seen[1] == ([CHAT["prompt"]], [[{"role": "assistant", "content": "4"}]], [3], more)
    assert seen[2] == ("openai/gsm8k", "4", "2", {"index": 7})


@pytest.mark.parametrize(
    ("name", "row", "sentence"),
    [
        (
            "trl_sees",
            {"prompt": "1", "answer": "2"},
            "KeyError: 'level' ({file}, line {line}); the row has 'prompt', 'answer'",
        ),
        (
            "verl_custom",
            {"prompt": "1", "answer": "2"},
            "KeyError: 'data_source' ({file}, line {line}); the row has ",
        ),
        (
            "verl_gsm8k",
            {"prompt": "1"},
            "KeyError: 'ground_truth' ({file}, line {line}); the row has 'prompt'",
        ),
        (
            "trl_none",
            ROW,
            "the verifier returned None ({file}, line {line}); a reward is a number from 0 to 1",
        ),
        (
            "trl_number",
            ROW,
            (
                "it has TRL's arguments and returned 1.0 for one completion, needs a list of one "
                "reward"
            ),
        ),
        (
            "trl_async",
            ROW,
            "it is asynchronous, and a verifier is not; make it a plain function (def)",
        ),
        (
            "verl_no_score",
            VERL_ROW,
            "it has verl's arguments and returned {{'reward': 1.0}}, which has no 'score'; add it",
        ),
    ],
)
def test_what_it_cannot_do_is_said(
    name: str, row: dict[str, Any], sentence: str, rewards: Path
) -> None:
    found = graded(rewards, name, "4", row)
    assert found.status == "error"
    (line,) = (
        number for number, text in enumerate(SOURCE.splitlines(), 1) if f"def {name}(" in text
    )
    assert found.failure.startswith(sentence.format(file=rewards, line=line)), found.failure


def test_in_the_sandbox_it_is_the_same(rewards: Path, tmp_path: Path) -> None:
    rows = write_rows(
        tmp_path / "rows.jsonl",
        [ROW | {"prompt": f"{n} + 1", "answer": str(n + 1)} for n in range(5)],
    )
    tasks = jsonl_tasks(rows, verifier=f"{rewards}:trl_without_more")
    from rollcast.tasks.prompts import load

    assert try_verifiers(tasks, load(tasks).train) == [], (
        "right for the row's own answer, wrong for the others"
    )

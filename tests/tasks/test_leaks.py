"""Evaluated questions in other rows, chats and wordings leave training; rows that only look like
them stay.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.tasks import Tasks
from rollcast.tasks.contamination import normal_form
from rollcast.tasks.prompts import PromptSplit, load

Row = dict[str, Any]
QUESTION = "Find the number of positive integers n such that n^2+2n is prime."
PLAY = "Play the game."
ENVIRONMENTS = [
    {"kind": "class", "name": "world", "code": "./game.py:Game", "reward": "environment"},
    {"kind": "tools", "name": "sums", "tools": ["calculator"]},
]


def once(prompt: object = QUESTION, answer: object = "1") -> Row:
    """A row that is answered once."""
    return {"prompt": prompt, "answer": answer}


def world(prompt: object = QUESTION, **fields: object) -> Row:
    """A row of an episode."""
    return {"prompt": prompt, "environment": "world", **fields}


def chat(*turns: str) -> list[dict[str, str]]:
    """Turns of the form `system: text`."""
    return [dict(zip(("role", "content"), turn.split(": ", 1), strict=True)) for turn in turns]


def puzzle(numbers: list[int], target: int, **fields: object) -> Row:
    answer = {"numbers": numbers, "target": target}
    return {
        "prompt": f"Make {target} of {numbers}.",
        "answer": answer,
        "environment": "sums",
        **fields,
    }


def program(tests: str, **fields: object) -> Row:
    answer = {"kind": "tests", "tests": tests}
    return {
        "prompt": "Write f(n), the n-th prime.",
        "answer": answer,
        "environment": "sums",
        **fields,
    }


LEAKS: dict[str, tuple[list[Row], list[Row]]] = {
    # Evaluated rows, and training rows of which none may stay
    "an id": ([world(answer="1", id=3)], [world(answer="1", id=7)]),
    "a source, a split, an index": (
        [world(answer="1", source="aime", split="test", extra_info={"index": 1})],
        [world(answer="1", source="web", split="train", extra_info={"index": 801})],
    ),
    "other fields": (
        [world(answer="1", level=5, subject="Number Theory")],
        [world(answer="1", solution="Factor n(n+2).", difficulty=0.4)],
    ),
    "an id in another spelling": (
        [world(answer="1", id=3)],
        [world(QUESTION.upper(), answer="1 ", id=7)],
    ),
    "an id without an answer": (
        [world("Mend parse() of repo x.", task_id="x-1", metadata={"source": "a"})],
        [world("Mend parse()  of repo x.", task_id="y-9", metadata={"source": "b"})],
    ),
    "an answer as text, integer and float": (
        [world(answer="4")],
        [world(answer=4, id=1), world(answer=4.0, id=2)],
    ),
    "three copies": (
        [world(answer="1", id=0)],
        [world(answer="1", id=number) for number in (7, 8, 9)],
    ),
    "an episode that was answered once": (
        [once()],
        [world(chat("system: Use tools.", f"user: {QUESTION}"), answer="1")],
    ),
    "another system message": (
        [once(chat("system: Be brief.", f"user: {QUESTION}"))],
        [once(chat("system: You are a mathematician.", f"user: {QUESTION}"))],
    ),
    "another system message of an episode": (
        [world(chat("system: Be brief.", f"user: {QUESTION}"), answer="1", id=1)],
        [world(chat("system: You may call tools.", f"user: {QUESTION}"), answer="1", id=2)],
    ),
    "solved examples before it": (
        [once()],
        [
            once(
                chat(
                    "user: What is 1+1?",
                    "assistant: 2",
                    "user: What is 1+2?",
                    "assistant: 3",
                    f"user: {QUESTION}",
                )
            )
        ],
    ),
    "a puzzle in another order": ([puzzle([3, 5, 7], 22)], [puzzle([7, 3, 5], 22, id=4)]),
    "other tests of a program": (
        [program("assert f(1) == 2", id=1)],
        [program("assert f(2) == 3", id=2)],
    ),
    "labels": (
        [once()],
        [
            once(f"{label} {QUESTION}")
            for label in ("Problem 3:", "**Question 12:**", "Exercise 4)", "Q:", "question:")
        ],
    ),
    "other ends": ([once()], [once(QUESTION[:-1] + end) for end in ("", "?", ":", " .", "...")]),
    "a cue": (
        [once()],
        [once(QUESTION + cue) for cue in ("\nAnswer:", " answer: ", "\n\n**Answer:**")]
        + [once(f"Q: {QUESTION}\nA:")],
    ),
}
NEAR_MISSES: dict[str, tuple[list[Row], list[Row]]] = {
    # Evaluated rows, and training rows of which all must stay
    "another number": (
        [world(answer="1", id=1)],
        [world(QUESTION.replace("2n", "3n"), answer="1", id=1)],
    ),
    "a negation": (
        [world(answer="1")],
        [world(QUESTION.replace("is prime", "is not prime"), answer="1")],
    ),
    "another answer to a common text": (
        [world(PLAY, answer="draw", board="X O 1")],
        [world(PLAY, answer="win", board="X O 1"), world(PLAY, answer="loss", board="X O 1")],
    ),
    "a text and an answer of many evaluated rows": (
        [world(PLAY, answer="win", board=number) for number in range(4)],
        [world(PLAY, answer="win", board=number) for number in (7, 8)],
    ),
    "a text and an answer of many training rows": (
        [world(PLAY, answer="win", board=0)],
        [world(PLAY, answer="win", board=number) for number in range(1, 6)],
    ),
    "tasks by number": (
        [world("Do the task.", task_id=0)],
        [world("Do the task.", task_id=number) for number in range(1, 6)],
    ),
    "another state without an answer": ([world(PLAY, board="X O 1")], [world(PLAY, board="X O 2")]),
    "a common text of episodes": (
        [world(PLAY, answer=answer, board=answer) for answer in ("win", "draw")],
        [once(PLAY, "the rules are missing")],
    ),
    "states in system messages": (
        [once(chat("system: state 0", "user: Go on."))],
        [once(chat(f"system: state {number}", "user: Go on.")) for number in range(1, 6)],
    ),
    "another answer to the last message": (
        [once(chat("user: x = 3", "assistant: Yes?", "user: What is x + 1?"), "4")],
        [once(chat("user: x = 5", "assistant: Yes?", "user: What is x + 1?"), "6")],
    ),
    "a puzzle with another target": (
        [puzzle([3, 5, 7], 22)],
        [puzzle([3, 5, 7], 15), puzzle([3, 5, 5], 22)],
    ),
    "a factorial": ([once("What is 5", "5")], [once("What is 5!", "120")]),
    "another program of the same words": (
        [once("What does `return a - b` give for a = 1, b = 1?", "0")],
        [once("What does `return b - a` give for a = 1, b = 1?", "0")],
    ),
    "numbers that are no labels": (
        [
            once("Question 3.5 is half of which number?", "7"),
            once("Exercise 5 km a day for a week. How far?", "35"),
        ],
        [
            once("Question 4.5 is half of which number?", "9"),
            once("Exercise 6 km a day for a week. How far?", "42"),
        ],
    ),
}
FILLERS = [once(f"filler {number}") for number in range(3)]


def write(path: Path, rows: list[Row], **settings: str) -> Row:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"kind": "jsonl", "name": path.stem, "path": str(path), **settings}


def split_beside(way: str, evaluated: list[Row], trained: list[Row], folder: Path) -> PromptSplit:
    """The prompts of a run whose evaluated ones are `evaluated`: a downstream set, or held out of a
    part.
    """
    verifier = {"Make": "countdown", "Write": "code"}.get(
        str(evaluated[0]["prompt"]).partition(" ")[0]
    )
    settings = {} if verifier is None else {"verifier": verifier}
    is_part = way == "held out"
    # The twin of a filler, so that this is no better choice than a row that is to be held out
    twin = [once("Filler  0")] * is_part
    dataset = write(folder / "trained.jsonl", [*trained, *twin, *FILLERS[1:]], **settings)
    evaluated_set = write(folder / "evaluated.jsonl", evaluated + FILLERS[:1] * is_part, **settings)
    tasks: Row = {"dataset": dataset, "environments": ENVIRONMENTS}
    if is_part:
        parts = [
            {"dataset": evaluated_set, "held_out": len(evaluated)},
            {"dataset": dataset, "held_out": 1},
        ]
        tasks["dataset"] = {"kind": "mixture", "parts": parts}
    else:
        tasks["downstream"] = [{"dataset": evaluated_set}]
    for seed in range(1_000):
        split = load(Tasks.model_validate(tasks | {"evaluation": {"num_prompts": 1, "seed": seed}}))
        held_out = [prompt.text.casefold() for prompt in split.held_out]
        if held_out[-1] in ("filler 1", "filler 2") and "filler 0" not in held_out:
            return split
    raise AssertionError("no seed holds out what is to be evaluated")


@pytest.mark.parametrize("way", ["downstream", "held out"])
@pytest.mark.parametrize("case", LEAKS)
def test_an_evaluated_question_in_another_row_or_wording_is_contaminated(
    case: str, way: str, tmp_path: Path
) -> None:
    evaluated, trained = LEAKS[case]
    split = split_beside(way, evaluated, trained, tmp_path)
    assert [prompt.text for prompt in split.train if "filler" not in prompt.text.casefold()] == []
    assert split.skipped == {"contaminated": len(trained)}


@pytest.mark.parametrize("way", ["downstream", "held out"])
@pytest.mark.parametrize("case", NEAR_MISSES)
def test_a_row_that_only_looks_like_an_evaluated_one_stays(
    case: str, way: str, tmp_path: Path
) -> None:
    evaluated, trained = NEAR_MISSES[case]
    split = split_beside(way, evaluated, trained, tmp_path)
    assert split.skipped == {}
    assert len([prompt for prompt in split.train if "filler" not in prompt.text.casefold()]) == len(
        trained
    )


def test_the_normal_form_of_a_hostile_text_takes_linear_time() -> None:
    """A quadratic one would take hours."""
    for word in ("problem 1:", "answer:", "?a:", "*", "#", "q", ". "):
        assert normal_form(word * 100_000 + "x").endswith("x")

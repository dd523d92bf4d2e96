"""Evaluated prompts stay out of training in every spelling, and prompts that only look alike stay
in.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.tasks import Tasks
from rollcast.local.checks.prompts import rows_left_out
from rollcast.tasks.contamination import normal_form
from rollcast.tasks.grading import grade
from rollcast.tasks.near_duplicates import MAX_PAIRS, near_duplicates
from rollcast.tasks.prompts import PromptSplit, load

QUESTION = "Find the number of positive integers n such that n^2+2n is prime."
SPELLINGS = {
    "a line break for a blank": QUESTION.replace(" such", "\nsuch"),
    "two blanks": QUESTION.replace("integers n", "integers  n"),
    "a leading and a trailing blank": f" {QUESTION} ",
    "a tab": QUESTION.replace(" such", "\tsuch"),
    "case": QUESTION.upper(),
    "a no-break space": QUESTION.replace("number of", "number\u00a0of"),
    "a thin space": QUESTION.replace("number of", "number\u2009of"),
    "a zero-width space": QUESTION.replace("positive", "posi\u200btive"),
    "a soft hyphen": QUESTION.replace("positive", "posi\u00adtive"),
    "a byte order mark": f"\ufeff{QUESTION}",
    "a raised digit": QUESTION.replace("n^2", "n²"),
    "a ligature": QUESTION.replace("Find", "\ufb01nd"),
    "full width": QUESTION.replace("2n", "２ｎ"),
    "formula letters": QUESTION.replace("n^2+2n", "𝑛^2+2𝑛"),
    "dollars": QUESTION.replace("n^2+2n", "$n^2+2n$"),
    "dollars with blanks": QUESTION.replace("n^2+2n", "$ n^2 + 2n $"),
    "two dollars": QUESTION.replace("n^2+2n", "$$n^2+2n$$"),
    "round delimiters": QUESTION.replace("n^2+2n", "\\(n^2+2n\\)"),
    "square delimiters": QUESTION.replace("n^2+2n", "\\[ n^2+2n \\]"),
    "an environment": QUESTION.replace("n^2+2n", "\\begin{equation*} n^2+2n \\end{equation*}"),
    "braces of a power": QUESTION.replace("n^2", "$n^{2}$"),
    "blanks of LaTeX": QUESTION.replace("n^2+2n", "$n^2\\,+\\;2n$"),
    "carriage returns": QUESTION.replace(" such", "\r\nsuch"),
}
PAIRS = {
    # Others of a kind: both spellings, of which the first is evaluated
    "quotes": ("He said “yes” – it’s 5", 'He said "yes" - it\'s 5'),
    "accents": ("Étude no. 4 of caf\u00e9", "étude no. 4 of cafe\u0301"),
    "lowered digits": ("Let x₁ + x₂ = 5", "Let $x_1+x_{2} = 5$"),
    "fractions": ("Compute $\\dfrac{1}{2}$ of 8", "Compute $\\frac{1}{2}$ of 8"),
    "brackets": ("Let \\left( 1, 2 \\right) be a point", "Let (1,2) be a point"),
    "prices": ("It costs \\$5 a day", "It costs $5 a day"),
    "sharp s": ("Die Straße ist 5 km lang", "DIE STRASSE IST 5 KM LANG"),
}
OTHERS = {
    "another number": QUESTION.replace("2n", "3n"),
    "another word": QUESTION.replace("prime", "even"),
    "digits that join": QUESTION.replace("n^2+2n", "n^22n"),
    "a power that is none": QUESTION.replace("n^2", "n2"),
    "a sentence more": f"{QUESTION} Explain.",
    "a part": QUESTION.partition(" such")[0],
    "another order": "Such that n^2+2n is prime, find the number of positive integers n.",
    "another sign": QUESTION.replace("+", "-"),
    "another letter": QUESTION.replace(" n ", " m "),
    "words that join": QUESTION.replace("positive integers", "positiveintegers"),
}


def write(path: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"kind": "jsonl", "name": path.stem, "path": str(path)}


def asked(*texts: str) -> list[dict[str, Any]]:
    return [{"prompt": text, "answer": "1"} for text in texts]


FILLERS = asked(*(f"filler {number}" for number in range(5)))


def split_of(
    folder: Path, train: list[dict[str, Any]], bench: list[dict[str, Any]], **changes: Any
) -> PromptSplit:
    data = write(folder / "train.jsonl", train) | changes.pop("dataset", {})
    benchmark = {"dataset": write(folder / "bench.jsonl", bench) | changes.pop("benchmark", {})}
    rules = changes.pop("rules", 2)
    changes.setdefault("evaluation", {"num_prompts": 1})
    return load(
        Tasks.model_validate({"dataset": data, "downstream": [benchmark], **changes}), rules
    )


@pytest.mark.parametrize(
    ("evaluated", "trained"),
    [*((QUESTION, text) for text in SPELLINGS.values()), *PAIRS.values()],
    ids=[*SPELLINGS, *PAIRS],
)
def test_a_benchmarks_prompt_in_another_spelling_is_contaminated(
    evaluated: str, trained: str, tmp_path: Path
) -> None:
    template = {"template": "Solve: {prompt} Think."}
    for one, other in ((evaluated, trained), (trained, evaluated)):
        split = split_of(tmp_path, [*FILLERS, *asked(other)], asked(one), dataset=template)
        assert len(split.train + split.held_out) == len(FILLERS)
        assert all("filler" in prompt.text for prompt in split.train + split.held_out)
        assert split.skipped == {"contaminated": 1}
        (caution,) = rows_left_out(split)
        assert caution.endswith(
            "1 row is left out: they ask what a held-out or downstream prompt asks, in another "
            "spelling"
        )


@pytest.mark.parametrize("trained", OTHERS.values(), ids=list(OTHERS))
def test_a_prompt_that_asks_something_else_stays(trained: str, tmp_path: Path) -> None:
    split = split_of(tmp_path, [*FILLERS, *asked(trained)], asked(QUESTION))
    assert split.skipped == {}
    assert len(split.train + split.held_out) == len(FILLERS) + 1


def test_the_same_text_is_counted_as_downstream_as_before(tmp_path: Path) -> None:
    split = split_of(tmp_path, [*FILLERS, *asked(QUESTION, f"{QUESTION}\n")], asked(QUESTION))
    assert split.skipped == {"downstream": 2}


@pytest.mark.parametrize("seed", range(10))
def test_no_held_out_prompt_is_trained_on_in_another_spelling(seed: int, tmp_path: Path) -> None:
    """Also if every prompt has another spelling; those without one are held out first."""
    twins = [
        text
        for number in range(12)
        for text in (f"What is ${number} + 1$?", f"what is {number}+1?")
    ]
    evaluation = {"num_prompts": 4, "seed": seed}
    split = split_of(tmp_path, asked(*twins), asked("x"), evaluation=evaluation)
    held_out = {normal_form(prompt.text) for prompt in split.held_out}
    assert len(split.held_out) == 4
    assert held_out.isdisjoint(normal_form(prompt.text) for prompt in split.train)
    assert len(split.train) + 4 + split.skipped["contaminated"] == len(twins)
    split = split_of(tmp_path, [*asked(*twins), *FILLERS], asked("x"), evaluation=evaluation)
    assert all("filler" in prompt.text for prompt in split.held_out)
    assert split.skipped == {}


def test_every_part_of_a_mixture_is_checked_against_every_evaluated_set(tmp_path: Path) -> None:
    parts = [
        {"dataset": write(tmp_path / "a.jsonl", asked("x 1", "x 2", "What is  5+5?", "q one"))},
        {"dataset": write(tmp_path / "b.jsonl", asked("y 1", "y 2", "WHAT IS 5+5?", "Q TWO"))},
    ]
    downstream = [
        {"dataset": write(tmp_path / "c.jsonl", asked("what is $5+5$?"))},
        {"dataset": write(tmp_path / "d.jsonl", asked("Q One", "q two"))},
    ]
    tasks = {
        "dataset": {"kind": "mixture", "parts": parts},
        "downstream": downstream,
        "evaluation": {"num_prompts": 1},
    }
    split = load(Tasks.model_validate(tasks))
    assert split.skipped == {"contaminated": 4}
    assert sorted(prompt.text for prompt in split.train + split.held_out) == [
        "x 1",
        "x 2",
        "y 1",
        "y 2",
    ]


def test_rows_of_episodes_are_compared_with_their_references(tmp_path: Path) -> None:
    """Many rows share a text; a row that is answered once is compared by it alone."""
    world = {"kind": "class", "name": "world", "code": "./game.py:Game", "reward": "environment"}
    rows = [{"prompt": "Play the game.", "board": f"X O {number}", "id": 1} for number in range(6)]
    spelled = [{"prompt": "play  the game.", "board": "x o  5", "id": 1}]
    environments = {"environments": [world], "dataset": {"environment": "world"}}
    split = split_of(tmp_path, rows, spelled, **environments, benchmark={"environment": "world"})
    assert split.skipped == {"contaminated": 1}
    assert len(split.train + split.held_out) == 5
    split = split_of(
        tmp_path,
        [*rows, {"prompt": QUESTION, "board": ""}],
        asked(QUESTION.upper()),
        **environments,
    )
    assert split.skipped == {"contaminated": 1}
    assert len(split.train + split.held_out) == 6


@pytest.mark.parametrize("numbers", [[3, 5, 7], [7, 5, 3], [5, 3, 7]])
def test_a_countdown_is_its_sorted_puzzle_however_it_is_worded(
    numbers: list[int], tmp_path: Path
) -> None:
    """Rows as others write them, and the puzzle that they ask."""
    bench = [{"prompt": "Reach 22 with 3, 5, 7.", "answer": {"numbers": [3, 5, 7], "target": 22}}]
    rows = [
        {"prompt": f"Make {target} of {numbers}.", "answer": {"numbers": numbers, "target": target}}
        for target in (22, 23, 24)
    ]
    verifier = {"verifier": "countdown"}
    split = split_of(tmp_path, rows, bench, dataset=verifier, benchmark=verifier)
    assert split.skipped == {"contaminated": 1}
    assert grade("countdown", "3*5+7", json.dumps(rows[0]["answer"])).reward == 1.0


def test_a_system_message_is_no_other_question(tmp_path: Path) -> None:
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": QUESTION.upper()},
    ]
    with_system = [{"prompt": chat, "answer": "1"}]
    for train, bench in ((with_system, asked(QUESTION)), (asked(QUESTION), with_system)):
        assert split_of(tmp_path, [*FILLERS, *train], bench).skipped == {"contaminated": 1}
    states = [
        {
            "prompt": [
                {"role": "system", "content": f"state {n}"},
                {"role": "user", "content": "Go on."},
            ],
            "answer": "1",
        }
        for n in range(6)
    ]
    assert split_of(tmp_path, states[1:], states[:1]).skipped == {}


def test_a_run_that_began_under_the_first_rules_keeps_its_split(tmp_path: Path) -> None:
    rows = [*FILLERS, *asked(QUESTION.upper(), "filler  1", "other")]
    for seed in range(10):
        evaluation = {"num_prompts": 1, "seed": seed}
        old = split_of(tmp_path, rows, asked(QUESTION), rules=1, evaluation=evaluation)
        assert old.skipped == {}
        assert len(old.train + old.held_out) == len(rows)
        by_id = {prompt.id: prompt.text for prompt in old.train}
        wanted = {QUESTION.upper(), "filler  1", "filler 1"} & set(by_id.values())
        if old.held_out[0].text not in ("filler  1", "filler 1"):
            wanted &= {QUESTION.upper()}
        assert {by_id[one] for one in old.contaminated} == wanted
    new = split_of(tmp_path, rows, asked(QUESTION), evaluation=evaluation)
    assert new.contaminated == frozenset()
    assert new.skipped == {"contaminated": 1}


LONG = (
    "A farmer has {} cows and sells one third of them to a neighbour who pays in eggs; how many "
    "cows are left to him?"
)


def test_near_duplicates_are_counted_and_named_without_their_template(tmp_path: Path) -> None:
    texts = [
        LONG.format(12),
        LONG.format(12).replace("A farmer", "The old farmer"),
        "This asks little.",
    ]
    tasks = {
        "dataset": write(tmp_path / "t.jsonl", [*asked(*texts), *FILLERS])
        | {"template": "Ask: {prompt} Think step by step."},
        "downstream": [{"dataset": write(tmp_path / "b.jsonl", asked(LONG.format(30)))}],
        "evaluation": {"num_prompts": 1},
    }
    parsed = Tasks.model_validate(tasks)
    found = near_duplicates(parsed, load(parsed))
    assert found.num_prompts == 2
    assert found.pairs == [(text, LONG.format(30)) for text in texts[:2]]
    (line,) = found.in_words()
    assert line.startswith(
        "tasks.dataset: 2 training prompts nearly repeat a held-out or downstream prompt, 13 words"
    )
    assert "Think step" not in line


def test_near_duplicates_of_held_out_prompts_are_counted_as_well(tmp_path: Path) -> None:
    dataset = write(tmp_path / "t.jsonl", asked(LONG.format(12), f"Think: {LONG.format(30)}"))
    parsed = Tasks.model_validate({"dataset": dataset, "evaluation": {"num_prompts": 1}})
    split = load(parsed)
    assert near_duplicates(parsed, split).pairs == [(split.train[0].text, split.held_out[0].text)]


def test_at_most_twenty_pairs_are_named_and_phrases_of_a_set_are_no_copies(tmp_path: Path) -> None:
    phrase = (
        "Give the answer as a fraction whose numerator and denominator are both positive whole "
        "numbers please."
    )
    variants = [LONG.format(number) + f" Variant {number}." for number in range(30)]
    rows = asked(*variants, *(f"Compute {number}. {phrase}" for number in range(40)))
    bench = asked(LONG.format(99), *(f"{letter}? {phrase}" for letter in "abcd"))
    tasks = {
        "dataset": write(tmp_path / "t.jsonl", rows),
        "downstream": [{"dataset": write(tmp_path / "b.jsonl", bench)}],
        "evaluation": {"num_prompts": 1},
    }
    parsed = Tasks.model_validate(tasks)
    split = load(parsed)
    found = near_duplicates(parsed, split)
    assert found.num_prompts == sum("farmer" in prompt.text for prompt in split.train) >= 29
    assert len(found.pairs) == MAX_PAIRS
    assert "(the first 20)" in found.in_words()[0]


def test_generated_sets_and_short_prompts_have_no_near_duplicates(tmp_path: Path) -> None:
    for dataset in ({"kind": "countdown", "size": 20}, write(tmp_path / "t.jsonl", FILLERS)):
        parsed = Tasks.model_validate({"dataset": dataset, "evaluation": {"num_prompts": 2}})
        assert near_duplicates(parsed, load(parsed)).in_words() == []

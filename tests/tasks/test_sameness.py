"""Which prompts are one prompt: those that differ in anything a reader can see are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.datasets import JsonlDataset, Mixture, Part
from rollcast.config.errors import UserError
from rollcast.config.tasks import Downstream, Evaluation, Tasks
from rollcast.tasks.prompts import PromptSplit, load
from rollcast.tasks.same_answers import same_answer

DIFFERENT = [
    ("Compute 2²", "Compute 22"),
    ("Shift each letter by one: ABC", "Shift each letter by one: abc"),
    (
        "What does this print?\nif a:\n    b()\nc()",
        "What does this print?\nif a:\n    b()\n    c()",
    ),
    ("x₁ + 1", "x1 + 1"),
    ("½ of 8", "1⁄2 of 8"),
    ("Reverse: ﬁn", "Reverse: fin"),
    ("How many characters: ａ", "How many characters: a"),
    ("Count the blanks: a b", "Count the blanks: a  b"),
    ("Count the lines:\na\n\nb", "Count the lines:\na\nb"),
    ("Upper case of ß?", "Upper case of ss?"),
    ("Sort: a\tb", "Sort: a b"),
    ("    return x", "return x"),
]
SAME = [
    ("Compute 2+2", "Compute 2+2"),
    ("Compute 2+2", "Compute 2+2\n"),
    ("Compute 2+2", "Compute 2+2   "),
    ("a\nb", "a\r\nb"),
    ("caf\u00e9", "cafe\u0301"),
]


def rows(path: Path, *pairs: tuple[str, Any], **more: Any) -> JsonlDataset:
    path.write_text(
        "".join(json.dumps({"prompt": prompt, "answer": answer}) + "\n" for prompt, answer in pairs)
    )
    return JsonlDataset(name=path.stem, path=path, **more)


def read(dataset: JsonlDataset) -> PromptSplit:
    return load(Tasks(dataset=dataset, evaluation=Evaluation(num_prompts=1)))


@pytest.mark.parametrize("answers", ["xx", "xy"])
@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_prompts_that_differ_are_both_kept_under_ids_of_their_own(
    one: str, other: str, answers: str, tmp_path: Path
) -> None:
    split = read(
        rows(tmp_path / "r.jsonl", (one, answers[0]), (other, answers[1]), ("filler", "x"))
    )
    kept = [*split.train, *split.held_out]
    assert {prompt.text for prompt in kept} == {one, other, "filler"}
    assert len({prompt.id for prompt in kept}) == 3
    assert split.skipped == {}


@pytest.mark.parametrize(("one", "other"), SAME)
def test_a_prompt_that_comes_twice_counts_once(one: str, other: str, tmp_path: Path) -> None:
    split = read(rows(tmp_path / "r.jsonl", (one, "x"), (other, "x"), ("filler", "x")))
    assert len(split.train + split.held_out) == 2
    assert split.skipped == {"duplicate": 1}


@pytest.mark.parametrize(("one", "other"), SAME)
@pytest.mark.parametrize(
    ("verifier", "first", "second"),
    [("exact", "4", "5"), ("math", "4", "5"), ("math", "\\frac{1}{2}", "1/3")],
)
def test_a_prompt_with_two_answers_is_refused_with_both_rows(
    one: str, other: str, verifier: str, first: str, second: str, tmp_path: Path
) -> None:
    file = tmp_path / "r.jsonl"
    dataset = rows(
        file, ("filler", "x"), (one, first), ("more", "x"), (other, second), verifier=verifier
    )
    with pytest.raises(UserError) as caught:
        read(dataset)
    said = str(caught.value)
    assert f"data set {file}, line 2" in said
    assert f"data set {file}, line 4" in said
    assert repr(first) in said
    assert repr(second) in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (4, "4"),
        ("4", "4.0"),
        ("0.5", "1/2"),
        ("\\dfrac{1}{2}", "\\frac{1}{2}"),
        ("(1, 2)", "(1,2)"),
    ],
)
def test_one_answer_in_two_spellings_is_one_answer(first: Any, second: Any, tmp_path: Path) -> None:
    split = read(
        rows(tmp_path / "r.jsonl", ("p", first), ("p", second), ("filler", "x"), verifier="math")
    )
    assert split.skipped == {"duplicate": 1}


def test_two_answers_across_the_parts_of_a_mixture_or_in_a_downstream_set_are_refused(
    tmp_path: Path,
) -> None:
    one = rows(tmp_path / "one.jsonl", ("p", "4"), ("q", "1"), ("r", "1"))
    two = rows(tmp_path / "two.jsonl", ("s", "1"), ("t", "1"), ("p", "5"))
    with pytest.raises(
        UserError, match=r"one\.jsonl, line 1 and data set .*two\.jsonl, line 3: .*'4' and '5'"
    ):
        load(
            Tasks(
                dataset=Mixture(parts=(Part(dataset=one), Part(dataset=two))),
                evaluation=Evaluation(num_prompts=1),
            )
        )
    torn = rows(tmp_path / "torn.jsonl", ("u", "1"), ("u", "2"))
    with pytest.raises(UserError, match=r"torn\.jsonl, line 1 and data set .*torn\.jsonl, line 2"):
        load(
            Tasks(
                dataset=one,
                evaluation=Evaluation(num_prompts=1),
                downstream=(Downstream(dataset=torn),),
            )
        )


def test_the_answer_field_says_what_rows_of_a_users_own_verifier_agree_on(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"

    def split(*answers: str) -> PromptSplit:
        written = [
            {"prompt": "p", "answer": answer, "number": n} for n, answer in enumerate(answers)
        ]
        file.write_text(
            "".join(json.dumps(row) + "\n" for row in [*written, {"prompt": "q", "answer": "x"}])
        )
        return read(JsonlDataset(name="own", path=file, verifier="of-another-image"))

    assert split("a", "a").skipped == {"duplicate": 1}
    with pytest.raises(UserError, match=r"line 1 and data set .*, line 2"):
        split("a", "b")


def test_programs_may_have_other_tests_in_another_row(tmp_path: Path) -> None:
    """Two lists of tests do not contradict each other; published sets hold a problem more than
    once.
    """
    tests = [{"kind": "tests", "tests": f"assert f({n}) == {n}"} for n in range(2)]
    split = read(
        rows(
            tmp_path / "r.jsonl", ("p", tests[0]), ("p", tests[1]), ("q", tests[0]), verifier="code"
        )
    )
    assert split.skipped == {"duplicate": 1}


def test_ids_are_those_of_earlier_runs(tmp_path: Path) -> None:
    """A checkpoint of a run before this knows its prompts by them."""
    split = read(rows(tmp_path / "r.jsonl", ("What IS  2² ?", "4"), ("filler", "x")))
    assert {prompt.text: prompt.id for prompt in [*split.train, *split.held_out]} == {
        "What IS  2² ?": "68ebf598fa736a6e",
        "filler": "6136bce053416cc3",
    }


def test_a_number_with_an_enormous_exponent_is_compared_as_text() -> None:
    assert not same_answer("1e999999999", "1e999999998")
    assert same_answer("1e999999999", "$1e999999999$")

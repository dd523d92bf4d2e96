"""Reference answers of GSM8K and MATH-500, written in five ways, and wrong ones."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from rollcast.config.datasets import JsonlDataset, MappingName
from rollcast.config.tasks import Evaluation, Tasks
from rollcast.tasks.prompts import load

_WHOLE_NUMBER = re.compile(r"-?\d+")


def data_folder() -> Path | None:
    """The folder of task sets, or None if it is absent."""
    root = os.environ.get("ROLLCAST_SHARED_DATA")
    folder = Path(root) / "tasks" if root else None
    return folder if folder and folder.is_dir() else None


def references(folder: Path, mapping: MappingName) -> list[str]:
    """The reference answers (JSON texts) as the ready mapping makes them, one of each different
    problem.
    """
    path = folder / mapping.replace("-", "") / "test.jsonl"
    dataset = JsonlDataset(name=mapping, path=path, mapping=mapping)
    split = load(Tasks(dataset=dataset, evaluation=Evaluation(num_prompts=1)))
    return [prompt.reference for prompt in split.train + split.held_out]


def _rewritten(answer: str) -> str:
    """The value in other symbols: `\\dfrac`, plain brackets, thousands separators,
    a decimal point.
    """
    text = answer.replace("\\frac", "\\dfrac").replace("\\left", "").replace("\\right", "")
    text = re.sub(r"\\!\s*", "", text)
    if not _WHOLE_NUMBER.fullmatch(text):
        return text
    return f"{int(text):,}" if len(text.lstrip("-")) > 3 else f"{text}.0"


FORMS: dict[str, Callable[[str], str]] = {
    "boxed": lambda answer: f"So the answer is $\\boxed{{{answer}}}$.",
    "inline": lambda answer: f"The final answer is ${answer}$.",
    "round brackets": lambda answer: f"**Answer:** \\({answer}\\)",
    "after wrong thinking": lambda answer: (
        f"<think>Is it \\boxed{{-271}}?</think>\n\\[ \\boxed{{{answer}}} \\]"
    ),
    "rewritten": lambda answer: f"We get\n\\[ \\boxed{{{_rewritten(answer)}}} \\]\nas claimed.",
}


@dataclass(frozen=True, slots=True)
class Wrong:
    reference: str
    answer: str


def wrong_answers(answers: list[str], count: int, rng: random.Random) -> list[Wrong]:
    """`count` answers that are not the reference: another problem's, a number near it, the other
    sign.
    """
    wrong_pairs: list[Wrong] = []
    while len(wrong_pairs) < count:
        reference = rng.choice(answers)
        candidates = [rng.choice(answers), f"{reference}+1"]
        if _WHOLE_NUMBER.fullmatch(reference):
            number = int(reference)
            candidates += [str(number + 1), str(number - 1), str(-number), str(10 * number)]
        answer = rng.choice(candidates)
        if not _may_be_equal(reference, answer):
            wrong_pairs.append(Wrong(reference, answer))
    return wrong_pairs


def _may_be_equal(reference: str, answer: str) -> bool:
    """Decided without the verifier: by value if both are numbers, else by their letters, digits and
    signs.
    """
    try:
        return Fraction(reference) == Fraction(answer)
    except (ValueError, ZeroDivisionError):
        return _bare(reference) == _bare(answer)


def _bare(text: str) -> str:
    return re.sub(r"\\(?:left|right|text|!|,|;| )|[\s{}$]", "", text.replace("\\dfrac", "\\frac"))

"""Verdicts on right and wrong answers to the first prompts: a mistake is seen before it costs a
run.
"""

from collections.abc import Iterator

from rollcast.config.printable import one_line, short_line
from rollcast.config.tasks import Tasks
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.prompts import load
from rollcast.tasks.trial import grader, reference_answer
from rollcast.tasks.verifiers import Grade

SHOWN_CHARACTERS = 100


def examples(tasks: Tasks) -> Iterator[str]:
    """Lines: each prompt, and under it answers with their verdicts. Raises UserError."""
    prompts = load(tasks).train
    with grader(tasks) as grade_one:
        # Prompts that fit on a screen
        for prompt in prompts[:3]:
            yield f"prompt: {short_line(prompt.text, SHOWN_CHARACTERS)}"
            for answer in _answers(prompt, prompts):
                line = short_line(answer, SHOWN_CHARACTERS) or "(nothing)"
                yield f"    {line} -> {in_words(grade_one(prompt, answer))}"


def in_words(grade: Grade) -> str:
    """A verdict as a line says it."""
    if grade.status in ("ok", "wrong"):
        return f"reward {grade.reward if grade.status == 'ok' else 0:g}"
    return f"no verdict: {one_line(grade.failure)}"


def _answers(prompt: Prompt, other_prompts: list[Prompt]) -> list[str]:
    """The row's own answer as the verifier wants it, another row's, and none."""
    right_answer = _as_answer(prompt)
    wrong = next(
        (
            other_answer
            for other_prompt in other_prompts
            if (other_answer := _as_answer(other_prompt)) not in (None, right_answer)
        ),
        "no idea",
    )
    return [answer for answer in (right_answer, wrong, "") if answer is not None]


def _as_answer(prompt: Prompt) -> str | None:
    reference = reference_answer(prompt)
    if (
        reference is None or prompt.verifier == "countdown"
    ):  # whose target is no answer: an expression is
        return None
    forms = {"math": f"\\boxed{{{reference}}}", "arithmetic": f"|{reference}"}
    return forms.get(prompt.verifier, reference)

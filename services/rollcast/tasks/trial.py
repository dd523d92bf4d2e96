"""Verifiers tried on a few real rows before anything is started: what fails here would fail on
every rollout.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from rollcast.config.errors import UserError
from rollcast.config.tasks import Tasks
from rollcast.tasks.grading import Verifiers, grade
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.remote.services import Services
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.verifiers import Grade, is_built_in

_WRONG = "I think the answer is 42."
_ANSWERS = ("", _WRONG)
"""What models write early on: nothing, and something that is wrong."""


GradeOne = Callable[[Prompt, str], Grade]
"""The verdict on a completion of a prompt. Raises UserError for a verifier that is not there,
cannot be imported, or cannot be contained by this machine."""


@contextmanager
def grader(tasks: Tasks) -> Iterator[GradeOne]:
    """Grades as the run's generators would on this machine, one completion after the other."""
    verifiers = Verifiers.from_tasks(tasks)
    with closing(Sandbox(tasks.grading, verifiers)) as sandbox, asyncio.Runner() as runner:
        services = Services(tasks.verifiers, lambda name, outcome: None)

        def grade_one(prompt: Prompt, completion: str) -> Grade:
            name = prompt.verifier
            grading_place = verifiers.find(name).place
            if grading_place == "remote":
                return runner.run(services.grade(name, completion, prompt.verifier_reference))
            if grading_place != "here" and (failure_reason := sandbox.start(name)):
                raise UserError(f"verifier {name}: {failure_reason}")
            return grade(
                name, completion, prompt.verifier_reference, sandbox=sandbox, verifiers=verifiers
            )

        try:
            yield grade_one
        finally:
            runner.run(services.close())


def try_verifiers(tasks: Tasks, prompts: Iterable[Prompt]) -> list[str]:
    """Grade a few rows with every verifier of the user's own that `prompts` name: cautions on those
    whose reward is always the same.

    Raises UserError with a sentence for each verifier that gives no verdict: file and line, or what
    the service said.
    """
    rows: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        if not prompt.verifier:  # its environment rewards
            continue
        # Rows on which each verifier is tried
        if (
            not is_built_in(prompt.verifier)
            and len(tried := rows.setdefault(prompt.verifier, [])) < 3
        ):
            tried.append(prompt)
    verifiers = Verifiers.from_tasks(tasks)
    failure_messages = list[str]()
    cautions = list[str]()
    with grader(tasks) as grade_one:
        for name, tried in rows.items():
            once = (
                verifiers.find(name).place == "remote"
            )  # each of them may cost money, and the first one suffices
            gradings = [
                (prompt, answer)
                for prompt in tried
                for answer in ([_WRONG] if once else _answers(prompt))
            ]
            rewards: list[float] = []
            for prompt, answer in gradings[:1] if once else gradings:
                if (verdict := grade_one(prompt, answer)).status in ("error", "timeout"):
                    failure_messages.append(
                        f"verifier {name}: gives no verdict on the completion {answer!r}: "
                        f"{verdict.failure}"
                    )
                    break
                rewards.append(verdict.reward)
            else:
                cautions += (
                    []
                    if once
                    else _constant(name, rewards, with_right_ones=len(gradings) > 2 * len(tried))
                )
    if failure_messages:
        raise UserError("\n".join(failure_messages))
    return cautions


def _constant(name: str, rewards: list[float], *, with_right_ones: bool) -> list[str]:
    """`with_right_ones`: rows' own answers were graded, so that 0 for everything says something."""
    if len(set(rewards)) > 1 or (rewards[0] == 0.0 and not with_right_ones):
        return []
    graded = (
        "empty ones, wrong ones and the rows' own answers"
        if with_right_ones
        else "empty and wrong ones"
    )
    remedy = (
        "if it asks for a form, ask for that in the prompt"
        if rewards[0] == 0.0
        else "check what it compares"
    )
    return [
        f"verifier {name}: gives {rewards[0]:g} to each of {len(rewards)} completions ({graded}), "
        f"and nothing is learnt from equal rewards; {remedy}"
    ]


def _answers(prompt: Prompt) -> list[str]:
    """Completions that any verifier must have a verdict on; including the row's own answer, if it
    names one.
    """
    answer = reference_answer(prompt)
    return [*_ANSWERS, *([] if answer is None else [answer])]


def reference_answer(prompt: Prompt) -> str | None:
    """The text that the row gives as its answer; None if no usual field holds one."""
    reference: Any = json.loads(prompt.reference)
    if isinstance(reference, dict):
        model = reference.get("reward_model")
        answers = [reference.get(name) for name in ("answer", "solution", "ground_truth", "target")]
        answers += [model.get("ground_truth")] if isinstance(model, dict) else []
        reference = next((answer for answer in answers if answer not in (None, "")), None)
    return str(reference) if isinstance(reference, str | int | float) and reference != "" else None

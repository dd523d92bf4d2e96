"""Tries the parts of a recipe that are the user's own, in a process of their own, before anything
is started.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from typing import Any

from rollcast.config.errors import UserError
from rollcast.config.recipe import Recipe
from rollcast.config.sentences import overlap
from rollcast.local.checks.check import Start
from rollcast.local.own_program import last_errors, run_module

SETTINGS = ()
TRIAL_SECONDS = 300.0
"""How long the whole trial may take: torch is imported for a loss, which takes many seconds on a
slow disk."""


def try_custom_functions(recipe: Recipe, timeout_seconds: float = TRIAL_SECONDS) -> None:
    """Raises UserError: a sentence for each part that gives nothing which can be used."""
    if not recipe.custom_functions:
        return
    try:
        done = run_module("rollcast.recipe.trial", recipe.model_dump_json(), timeout_seconds)
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
        answers = _read_answers(output.decode() if isinstance(output, bytes) else output)
        raise UserError(
            f"{_last_tried(recipe, answers)}: had not returned after {timeout_seconds:g} s; make "
            "it fast"
        ) from None
    answers = _read_answers(done.stdout)
    failures = [answer["failed"] for answer in answers if "failed" in answer]
    num_passed = sum("passed" in answer for answer in answers)
    if done.returncode != 0 or num_passed + len(failures) < len(recipe.custom_functions):
        failures.append(
            f"{_last_tried(recipe, answers)}: ended the process that tried it (exit code "
            f"{done.returncode}): {last_errors(done)}"
        )
    if failures:
        raise UserError("\n".join(failures))


def _read_answers(text: str) -> list[dict[str, Any]]:
    """The trial's answers so far: {"tries": setting}, then {"passed": ..} or {"failed": sentence}.

    What a library writes to the same stream is passed over.
    """
    answers = []
    for line in text.splitlines():
        with suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                answers.append(answer)
    return answers


def _last_tried(recipe: Recipe, answers: list[dict[str, Any]]) -> str:
    """The part that was tried last, as errors name it."""
    settings = [answer["tries"] for answer in answers if "tries" in answer]
    if not settings:
        return "the trial of the recipe's own parts"
    return f"{settings[-1]} {recipe.custom_functions[settings[-1]].function}"


def check(start: Start) -> None:
    recipe = start.config.recipe
    # Not those settings that hold no own part: a mistake there leaves the own parts as they are.
    if not any(
        overlap(name, field) for name in recipe.custom_functions for field in start.mistaken
    ):
        try_custom_functions(recipe)

"""Tries the parts of a recipe that are the user's own, in a process of their own, before anything
is started.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field

from rollcast.config.errors import UserError
from rollcast.config.recipe import Recipe
from rollcast.config.sentences import overlap
from rollcast.local.checks.check import Start
from rollcast.local.own_program import last_errors, run_module

SETTINGS = ()
TRIAL_SECONDS = 300.0
"""How long the whole trial may take: torch is imported for a loss, which takes many seconds on a
slow disk."""


def try_own_parts(recipe: Recipe, deadline_seconds: float = TRIAL_SECONDS) -> None:
    """Raises UserError: a sentence for each part that gives nothing which can be used."""
    if not recipe.own_parts:
        return
    try:
        done = run_module("rollcast.recipe.trial", recipe.model_dump_json(), deadline_seconds)
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
        answers = TrialAnswers.read(output.decode() if isinstance(output, bytes) else output)
        raise UserError(
            f"{_describe_part(recipe, answers.tried)}: had not returned after {deadline_seconds:g} "
            "s; make it fast"
        ) from None
    answers = TrialAnswers.read(done.stdout)
    failures = answers.failures
    if done.returncode != 0 or answers.num_passed + len(failures) < len(recipe.own_parts):
        exit_sentence = f"ended the process that tried it (exit code {done.returncode})"
        failures.append(
            f"{_describe_part(recipe, answers.tried)}: {exit_sentence}: {last_errors(done)}"
        )
    if failures:
        raise UserError("\n".join(failures))


def _describe_part(recipe: Recipe, setting: str | None) -> str:
    """The part that was tried last, as errors name it."""
    if setting is None:
        return "the trial of the recipe's own parts"
    return f"{setting} {recipe.own_parts[setting].function}"


@dataclass(slots=True)
class TrialAnswers:
    """Answers of the trial so far."""

    tried: str | None = None
    """The setting that was tried last. None = none yet."""
    num_passed: int = 0
    failures: list[str] = field(default_factory=list)
    """A sentence for each part that failed."""

    @classmethod
    def read(cls, text: str) -> TrialAnswers:
        """Read the trial's output. What a library writes to the same stream is passed over."""
        answers = cls()
        for line in text.splitlines():
            try:
                answer = json.loads(line)
            except ValueError:
                continue
            if not isinstance(answer, dict):
                continue
            answers.tried = answer.get("tries", answers.tried)
            answers.num_passed += "passed" in answer
            if "failed" in answer:
                answers.failures.append(answer["failed"])
        return answers


def check(start: Start) -> None:
    recipe = start.config.recipe
    # Not those settings that hold no own part: a mistake there leaves the own parts as they are.
    if not any(overlap(name, field) for name in recipe.own_parts for field in start.mistaken):
        try_own_parts(recipe)

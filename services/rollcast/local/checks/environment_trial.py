"""Environments tried before anything is started, by `rollcast.environments.trial`."""

import json
import subprocess
from collections.abc import Iterable, Sequence

from rollcast.config.environments.settings import SessionEnvironment
from rollcast.config.errors import UserError
from rollcast.config.tasks import Tasks
from rollcast.environments.kinds.kind import missing_in_rows
from rollcast.local.checks.check import Finding, Start, warnings
from rollcast.local.own_program import last_errors, run_module
from rollcast.tasks.prompt import Prompt

SETTINGS = ("tasks",)


def try_environments(tasks: Tasks, prompts: Iterable[Prompt]) -> list[str]:
    """Cautions on environments without a tool. Programs that take the turns themselves are not
    started.

    prompts: of the run; an environment without any is not tried. Raises UserError with a sentence
    for each that fails.
    """
    rows: dict[str, object] = {}
    prompts = list(prompts)
    _check_rows(tasks, prompts)
    for prompt in prompts:
        if prompt.environment and prompt.environment not in rows:
            rows[prompt.environment] = json.loads(prompt.reference)
    tried = [
        environment
        for environment in tasks.environments
        if environment.name in rows and not isinstance(environment, SessionEnvironment)
    ]
    if not tried:
        return []
    request = {
        "environments": [environment.model_dump(mode="json") for environment in tried],
        "rows": rows,
    }
    # Each keeps its own deadline; a minute more for imports on a busy machine.
    seconds = 60.0 + sum(environment.reset_seconds + 20.0 for environment in tried)
    names = ", ".join(environment.name for environment in tried)
    try:
        done = run_module("rollcast.environments.trial", json.dumps(request), seconds)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"environments {names}: were not tried within {seconds:g} s; start them yourself"
        ) from None
    if done.returncode != 0:
        raise UserError(
            f"environments {names}: the process that tried them ended with code {done.returncode}: "
            f"{last_errors(done)}"
        )
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer["failures"]:
        raise UserError("\n".join(answer["failures"]))
    cautions: list[str] = answer["cautions"]
    return cautions


def _check_rows(tasks: Tasks, prompts: Sequence[Prompt]) -> None:
    """Raises UserError with a sentence for what rows name and this machine lacks."""
    sentences: list[str] = []
    for number, environment in enumerate(tasks.environments):
        rows = (
            json.loads(prompt.reference)
            for prompt in prompts
            if prompt.environment == environment.name
        )
        sentences += missing_in_rows(environment, f"tasks.environments.{number}", rows)
    if sentences:
        raise UserError("\n".join(sentences))


def check(start: Start) -> Iterable[Finding]:
    return warnings(try_environments(start.config.tasks, start.rewarded_prompts))

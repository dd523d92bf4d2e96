"""Environments tried before anything is started: one of each is made, reset with its first row, and ended.

What fails here would fail in every episode.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from rollcast.config.environments.settings import EnvironmentSettings, SessionEnvironment
from rollcast.config.errors import UserError
from rollcast.config.tasks import Tasks
from rollcast.environments.base import EnvironmentFailedError, Opening
from rollcast.environments.of_run import EnvironmentsOfRun
from rollcast.tasks.prompts import Prompt


def try_environments(tasks: Tasks, prompts: Iterable[Prompt]) -> list[str]:
    """Cautions on environments without a tool. Programs that take the turns themselves are not started.

    prompts: of the run; an environment without any is not tried. Raises UserError with a sentence for each that fails.
    """
    rows: dict[str, Mapping[str, Any]] = {}
    for prompt in prompts:
        if prompt.environment and prompt.environment not in rows:
            rows[prompt.environment] = json.loads(prompt.reference)
    tried = [
        environment
        for environment in tasks.environments
        if environment.name in rows and not isinstance(environment, SessionEnvironment)
    ]
    return asyncio.run(_try_each(tried, rows)) if tried else []


async def _try_each(environments: list[EnvironmentSettings], rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    failures = list[str]()
    cautions = list[str]()
    of_run = EnvironmentsOfRun(environments)
    try:
        for environment in environments:
            try:
                opening = await _try_one(of_run, environment, rows[environment.name])
            except EnvironmentFailedError as error:
                failures.append(f"environment {environment.name}: {error}")
                continue
            if not opening.tools:
                cautions.append(
                    f"environment {environment.name}: offers no tool for its first row, so that an episode is one "
                    "answer; add a public method with type hints and a docstring"
                )
    finally:
        await of_run.close()
    if failures:
        raise UserError("\n".join(failures))
    return cautions


async def _try_one(of_run: EnvironmentsOfRun, environment: EnvironmentSettings, row: Mapping[str, Any]) -> Opening:
    """Raises EnvironmentFailedError."""
    # An environment keeps its own deadline; this one is for what does not answer at all.
    try:
        async with asyncio.timeout(environment.reset_seconds + 10.0):
            live = await of_run.acquire(environment.name)
            try:
                return await live.reset(row)
            finally:
                await of_run.release(live, is_reusable=False)
    except TimeoutError:
        raise EnvironmentFailedError(f"was not ready within {environment.reset_seconds:g} seconds") from None

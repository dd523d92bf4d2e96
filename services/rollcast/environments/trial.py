"""`python -m rollcast.environments.trial`: one of each environment is made, reset with its first
row, and ended.

A failure here would be one of every episode. Standard input: {"environments": settings, "rows": a
row by name}. Standard output: {"failures": sentences, "cautions": sentences}. A process of its own,
since it runs code of the user.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rollcast.config.environments.settings import EnvironmentSettings
from rollcast.config.tasks import Tasks
from rollcast.environments.base import EnvironmentFailedError, Opening
from rollcast.environments.of_run import EnvironmentsOfRun


async def try_each(
    environments: Sequence[EnvironmentSettings], rows: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Sentences on environments that fail, and on those without a tool."""
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
                    f"environment {environment.name}: offers no tool for its first row, so that "
                    "an episode is one answer; add a public method with type hints and a docstring"
                )
    finally:
        await of_run.close()
    return {"failures": failures, "cautions": cautions}


async def _try_one(
    of_run: EnvironmentsOfRun, environment: EnvironmentSettings, row: Mapping[str, Any]
) -> Opening:
    """Raises EnvironmentFailedError."""
    # An environment keeps its own deadline; this one is for one that does not answer at all.
    try:
        async with asyncio.timeout(environment.reset_seconds + 10.0):
            live = await of_run.acquire(environment.name)
            try:
                return await live.reset(row)
            finally:
                await of_run.release(live, is_reusable=False)
    except TimeoutError:
        raise EnvironmentFailedError(
            f"was not ready within {environment.reset_seconds:g} seconds"
        ) from None


def main() -> None:
    request = json.load(sys.stdin)
    environments = Tasks.model_validate({"environments": request["environments"]}).environments
    print(json.dumps(asyncio.run(try_each(environments, request["rows"]))))


if __name__ == "__main__":
    main()

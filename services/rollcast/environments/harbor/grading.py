"""The tests of a task, and the reward that they write.

shared     in the agent's container
separate   in a fresh one of the same image, which gets the task's artifacts

Whatever keeps them from a reward is the doing of the tested programs: SpoiledError, and the lowest
reward. Were it no verdict, a model could leave every episode that it is about to lose.
"""

import asyncio
import json
import math
import time
from collections.abc import Mapping

from rollcast.environments.containers.container import COMMAND_SECONDS, Container
from rollcast.environments.containers.errors import ContainerError, SpoiledError
from rollcast.environments.containers.pool import ContainerPool
from rollcast.environments.harbor.images import task_image
from rollcast.environments.harbor.task import HarborTask, resolve_variables

MAKE_LOGS = "mkdir -p /logs/agent /logs/verifier /logs/artifacts && chmod -R 777 /logs"
PROBE = "test -w / && command -v tar && command -v head"
"""Succeeds in an image whose pods can get tests and give artifacts: podman needs no programs."""
RENEW_VERIFIER = "rm -rf /logs/verifier && mkdir -p /logs/verifier && chmod 777 /logs/verifier"
RUN_TESTS = "/tests/test.sh > /logs/verifier/test-stdout.txt 2>&1"


def grading_seconds(task: HarborTask, start_seconds: float) -> float:
    """The longest time between an agent's end and its reward."""
    tests = task.file.verifier.timeout_sec + 6 * COMMAND_SECONDS
    if task.file.verifier.environment_mode == "shared":
        return tests
    num_copies = len(list(task.artifacts))
    return tests + start_seconds + health_seconds(task) + 3 * num_copies * COMMAND_SECONDS


def health_seconds(task: HarborTask) -> float:
    """The longest time until a task's services are ready."""
    check = task.file.environment.healthcheck
    if check is None:
        return 0.0
    return check.start_period_sec + check.retries * (check.timeout_sec + check.interval_sec)


async def prepare(container: Container, task: HarborTask) -> None:
    """Make the folders of the format, and wait until the task's services are ready. Raises
    ContainerError.
    """
    try:
        await _prepare(container, task)
    except SpoiledError as error:
        # No program of a model has run in it.
        raise ContainerError(f"{task.name}: {error}") from error


async def _prepare(container: Container, task: HarborTask) -> None:
    await _run_own(container, MAKE_LOGS)
    check = task.file.environment.healthcheck
    if check is None:
        return
    num_failures = 0
    began_at = time.monotonic()
    while True:
        output = await container.run(["/bin/sh", "-c", check.command], check.timeout_sec)
        if output.code == 0 and not output.is_overdue:
            return
        is_starting = time.monotonic() - began_at < check.start_period_sec
        num_failures += not is_starting
        if num_failures >= check.retries:
            raise ContainerError(f"its health check failed {num_failures} times: {output.text}")
        await asyncio.sleep(check.start_interval_sec if is_starting else check.interval_sec)


async def grade(
    pool: ContainerPool,
    container: Container,
    task: HarborTask,
    of_machine: Mapping[str, str],
) -> float:
    """The reward of an agent's container. of_machine: variables.

    Raises SpoiledError if that has no reward, ContainerError and EnvironmentFailedError.
    """
    # What the agent left running would change files under the tests.
    await container.end_programs()
    if task.file.verifier.environment_mode == "shared":
        return await _run_tests(container, task, of_machine)
    variables = resolve_variables(task.file.environment.env, of_machine)
    fresh = await pool.acquire(task_image(task), variables)
    try:
        await prepare(fresh, task)
        for path in task.artifacts:
            await container.copy_to(fresh, path)
        return await _run_tests(fresh, task, of_machine)
    finally:
        await pool.release(fresh)


async def _run_tests(
    container: Container, task: HarborTask, of_machine: Mapping[str, str]
) -> float:
    await _run_own(container, RENEW_VERIFIER)
    await container.put(task.folder / "tests", "/tests")
    await _run_own(container, "chmod +x /tests/test.sh")
    verifier = task.file.verifier
    output = await container.run(
        ["/bin/sh", "-c", RUN_TESTS],
        verifier.timeout_sec,
        variables=resolve_variables(verifier.env, of_machine),
        user=None if verifier.user is None else str(verifier.user),
        folder=task.file.environment.workdir,
    )
    if output.is_overdue:
        raise SpoiledError(f"its tests did not end within {verifier.timeout_sec:g} s")
    for name in ("reward.json", "reward.txt"):
        content = await container.read(f"/logs/verifier/{name}", 65_536)
        if content is not None:
            return parse_reward(name, content)
    raise SpoiledError(f"its tests ended with exit code {output.code} and wrote no reward")


def parse_reward(name: str, content: bytes) -> float:
    """The reward in reward.txt or reward.json. Raises SpoiledError."""
    try:
        text = content.decode()
        reward = _parse_json(text) if name.endswith(".json") else float(text)
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError) as error:
        raise SpoiledError(f"its tests wrote {name} without a reward ({error})") from error
    if not math.isfinite(reward):
        raise SpoiledError(f"its tests wrote the reward {reward} in {name}")
    return reward


def _parse_json(text: str) -> float:
    """A number, or an object with the reward: under `reward`, or alone."""
    value = json.loads(text)
    if isinstance(value, dict):
        (value,) = value.values() if len(value) == 1 else (value["reward"],)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no number")
    return float(value)


async def _run_own(container: Container, command: str) -> None:
    output = await container.run(["/bin/sh", "-c", command], COMMAND_SECONDS, user="0", folder="/")
    if output.code:
        raise SpoiledError(f"{command} failed in its container: {output.text}")

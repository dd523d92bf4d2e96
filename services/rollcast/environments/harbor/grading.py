"""The tests of a task, and the reward that they write.

shared     in the agent's container
separate   in a fresh one of the same image, which gets the task's artifacts
"""

import asyncio
import json
import math
import time

from rollcast.environments.containers.container import Container, ContainerError
from rollcast.environments.containers.podman import PodmanContainer
from rollcast.environments.containers.pool import ContainerPool
from rollcast.environments.harbor.images import task_image
from rollcast.environments.harbor.task import HarborTask, resolve_variables

MAX_REWARD_BYTES = 1 << 16
SETUP_SECONDS = 60.0
"""Longest small command of our own in a container."""
MAKE_LOGS = "mkdir -p /logs/agent /logs/verifier /logs/artifacts && chmod -R 777 /logs"
REMOVE_REWARDS = "rm -f /logs/verifier/reward.txt /logs/verifier/reward.json"
RUN_TESTS = "/tests/test.sh > /logs/verifier/test-stdout.txt 2>&1"


class NoRewardError(Exception):
    """The tests gave no reward: no verdict on the model. The message is one sentence."""


async def prepare(container: Container, task: HarborTask) -> None:
    """Make the folders of the format, and wait until the task's services are ready. Raises
    ContainerError.
    """
    await _run_own(container, MAKE_LOGS)
    check = task.file.environment.healthcheck
    if check is None:
        return
    num_failures = 0
    began = time.monotonic()
    while True:
        output = await container.run(["/bin/sh", "-c", check.command], check.timeout_sec)
        if output.code == 0 and not output.is_overdue:
            return
        is_starting = time.monotonic() - began < check.start_period_sec
        num_failures += not is_starting
        if num_failures >= check.retries:
            raise ContainerError(f"its health check failed {num_failures} times: {output.text}")
        await asyncio.sleep(check.start_interval_sec if is_starting else check.interval_sec)


async def grade(pool: ContainerPool, container: PodmanContainer, task: HarborTask) -> float:
    """The reward of what is in the agent's container. Raises NoRewardError, ContainerError and
    EnvironmentFailedError.
    """
    if task.file.verifier.environment_mode == "shared":
        return await _run_tests(container, task)
    variables = resolve_variables(task.file.environment.env)
    fresh = await pool.acquire(task_image(task), variables)
    try:
        await prepare(fresh, task)
        for path in task.artifacts:
            await container.copy_to(fresh, path)
        return await _run_tests(fresh, task)
    finally:
        await pool.release(fresh)


async def _run_tests(container: Container, task: HarborTask) -> float:
    await _run_own(container, REMOVE_REWARDS)
    await container.put(task.folder / "tests", "/tests")
    await _run_own(container, "chmod +x /tests/test.sh")
    verifier = task.file.verifier
    output = await container.run(
        ["/bin/sh", "-c", RUN_TESTS],
        verifier.timeout_sec,
        variables=resolve_variables(verifier.env),
        user=None if verifier.user is None else str(verifier.user),
        folder=task.file.environment.workdir,
    )
    if output.is_overdue:
        raise NoRewardError(f"its tests did not end within {verifier.timeout_sec:g} s")
    for name in ("reward.json", "reward.txt"):
        content = await container.read(f"/logs/verifier/{name}", MAX_REWARD_BYTES)
        if content is not None:
            return parse_reward(name, content)
    raise NoRewardError(f"its tests ended with exit code {output.code} and wrote no reward")


def parse_reward(name: str, content: bytes) -> float:
    """The reward in reward.txt or reward.json. Raises NoRewardError."""
    try:
        text = content.decode()
        reward = _parse_json(text) if name.endswith(".json") else float(text)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise NoRewardError(f"its tests wrote {name} without a reward ({error})") from error
    if not math.isfinite(reward):
        raise NoRewardError(f"its tests wrote the reward {reward} in {name}")
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
    output = await container.run(["/bin/sh", "-c", command], SETUP_SECONDS, user="0")
    if output.code:
        raise ContainerError(f"{command} failed in its container: {output.text}")

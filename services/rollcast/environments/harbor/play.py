"""The program of one episode: `python -m rollcast.environments.harbor.play ORDER < ROW`.

    container -> agent, until it ends or its time is over -> tests -> reward is posted
        '--- ends with this process, however that ends

ORDER: {"environment": settings of the run file, "start_seconds": deadline of a container}. The exit
code is the agent's. EXIT_NO_VERDICT: the episode says nothing about the model.
"""

import asyncio
import json
import os
import shlex
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollcast.config.environments.container import ContainerSettings
from rollcast.config.environments.harbor import HarborEnvironment
from rollcast.config.errors import UserError
from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.containers.container import Container
from rollcast.environments.containers.engines import find_engine
from rollcast.environments.containers.errors import ContainerError, SpoiledError
from rollcast.environments.containers.pool import ContainerPool
from rollcast.environments.harbor.grading import grade, prepare
from rollcast.environments.harbor.images import task_image
from rollcast.environments.harbor.task import HarborTask, read_task, resolve_variables
from rollcast.processes.tree import kill_group

EXIT_NO_VERDICT = 126
"""Above the codes that a run file may name as the model's mistake."""
VARIABLES = "ROLLCAST_TASK_VARIABLES"
"""Variable with those of the machine that tasks name, as JSON; the agent does not see it."""
SHIPPED_AGENT = ("-P", "-m", "rollcast.environments.harbor.agent")


def task_settings(settings: ContainerSettings, task: HarborTask) -> ContainerSettings:
    """The container that a task asks for; settings that it leaves out are the run file's."""
    requirements = task.file.environment
    changes: dict[str, Any] = {"image": None, "warm": 0}
    if requirements.cpus is not None:
        changes["processors"] = requirements.cpus
    if requirements.memory_mb is not None:
        changes["memory_gib"] = requirements.memory_mb / 1024
    if requirements.storage_mb is not None:
        changes["disk_gib"] = requirements.storage_mb / 1024
    if requirements.network_mode == "no-network":
        changes["network"] = "none"
    return settings.model_copy(update=changes)


async def play(environment: HarborEnvironment, start_seconds: float, row: str) -> int:
    """Play one task; returns the exit code. Raises ContainerError, EnvironmentFailedError and
    UserError if there is no verdict.
    """
    of_machine: dict[str, str] = json.loads(os.environ.pop(VARIABLES, "{}"))
    task = read_task(task_folder(environment.tasks, json.loads(row)))
    settings = task_settings(environment.container, task)
    pool = ContainerPool(find_engine(settings, environment.name), settings, start_seconds)
    try:
        variables = resolve_variables(task.file.environment.env, of_machine)
        container = await pool.acquire(task_image(task), variables)
        await prepare(container, task)
        code = await _run_agent(environment, container, task, row)
        if code != 0 and code not in environment.model_exit_codes:
            return code
        try:
            reward = await grade(pool, container, task, of_machine)
        except SpoiledError as error:
            print(f"the lowest reward: {error}", flush=True)
            reward = environment.reward_range[0]
        await asyncio.to_thread(_post_reward, reward)
        return code
    finally:
        await pool.close()


def task_folder(tasks: Path, row: Mapping[str, Any]) -> Path:
    """The folder that a row names. Raises UserError."""
    name = row.get("task")
    if not isinstance(name, str) or name != Path(name).name or name in ("", ".", ".."):
        raise UserError(
            f"row: task = {name!r} is no name of a task's folder; write the data set by python -m "
            "rollcast.environments.harbor"
        )
    return tasks / name


async def _run_agent(
    environment: HarborEnvironment, container: Container, task: HarborTask, row: str
) -> int:
    """The agent's exit code; 0 if its time is over: tests see the work so far."""
    agent = task.file.agent
    inside = await container.open_commands(
        user=None if agent.user is None else str(agent.user),
        folder=task.file.environment.workdir,
    )
    process = await asyncio.create_subprocess_exec(
        *(environment.command or (sys.executable, *SHIPPED_AGENT)),
        stdin=asyncio.subprocess.PIPE,
        env={**os.environ, "ROLLCAST_CONTAINER": shlex.join(inside)},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(agent.timeout_sec):
            await process.communicate(row.encode())
    except TimeoutError:
        return 0
    finally:
        # Processes that it left, as after its time, use its container no more.
        kill_group(process.pid)
        await process.wait()
    code = process.returncode or 0
    # A signal as a shell reports it
    return code if code >= 0 else 128 - code


def _post_reward(reward: float) -> None:
    headers = {
        "authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
        "content-type": "application/json",
    }
    body = json.dumps({"reward": reward}).encode()
    # The generator's own address
    url = os.environ["ROLLCAST_REWARD_URL"]
    request = urllib.request.Request(url, body, headers)  # noqa: S310
    urllib.request.urlopen(request, timeout=30.0).close()  # noqa: S310


def main() -> int:
    order = json.loads(sys.argv[1])
    environment = HarborEnvironment.model_validate(order["environment"])
    row = sys.stdin.read()
    try:
        return asyncio.run(play(environment, order["start_seconds"], row))
    except (ContainerError, EnvironmentFailedError, UserError, OSError, ValueError) as error:
        print(error, flush=True)
        return EXIT_NO_VERDICT


if __name__ == "__main__":
    sys.exit(main())

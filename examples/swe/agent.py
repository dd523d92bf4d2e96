"""mini-swe-agent 2, as it is: its commands run in the container of the episode's task."""

import json
import os
import shlex
import sys
from typing import Any

# It asks again for a refused turn otherwise, ten times.
os.environ["MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT"] = "1"
os.environ["MSWEA_COST_TRACKING"] = "ignore_errors"
os.environ["MSWEA_SILENT_STARTUP"] = "1"

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel
from openai import APIStatusError

SYSTEM = "You repair programs. The tool bash runs commands in the repository."
TASK = (
    "{{task}}\n\nThe repository is /repo. When it is repaired, run this command alone:\n"
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
)


class ContainerEnvironment(LocalEnvironment):  # type: ignore[misc]  # it has no types
    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> Any:
        command = f"{os.environ['ROLLCAST_CONTAINER']} bash -c {shlex.quote(action['command'])}"
        return super().execute({**action, "command": command}, timeout=timeout)


model = LitellmModel(
    model_name="openai/" + os.environ["ROLLCAST_MODEL"],
    model_kwargs={"api_base": os.environ["OPENAI_BASE_URL"]},
)
agent = DefaultAgent(
    model,
    ContainerEnvironment(timeout=60),
    system_template=SYSTEM,
    instance_template=TASK,
    step_limit=40,
    cost_limit=0.0,
)
try:
    print(agent.run(json.load(sys.stdin)["prompt"]))
except APIStatusError as error:
    # The episode's budget is used up: the tests see what is there.
    if error.status_code >= 500:
        raise
    print(error)

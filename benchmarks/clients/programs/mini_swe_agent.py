import json
import os
import sys

os.environ["MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT"] = "1"
os.environ["MSWEA_COST_TRACKING"] = "ignore_errors"

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

row = json.load(sys.stdin)
model = LitellmModel(
    model_name="openai/" + os.environ["ROLLCAST_MODEL"],
    model_kwargs={"api_base": os.environ["OPENAI_BASE_URL"]},
)
agent = DefaultAgent(
    model,
    LocalEnvironment(),
    system_template="You help with a computer.",
    instance_template="{{task}}",
    step_limit=10,
    cost_limit=0.0,
)
print(agent.run(row["prompt"]))

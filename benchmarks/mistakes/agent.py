"""One action for each task: the model answers, or calls a tool that is not there.

The call ends the agent with exit code 1, as it ends openai-agents. An answer has a reward of 1 or
0.5 by chance, which nothing can be learned from.
"""

import json
import os
import random
import sys
import time
import urllib.request
from typing import Any

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def post(url: str, body: object) -> Any:
    headers = {
        "authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
        "content-type": "application/json",
    }
    return json.load(
        urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers))
    )


row = json.load(sys.stdin)
body = {
    "model": os.environ["ROLLCAST_MODEL"],
    "messages": [{"role": "user", "content": row["prompt"]}],
    "tools": [TOOL],
}
answer = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
is_tempting = bool(answer["choices"][0]["message"].get("tool_calls"))
with open(os.environ["MISTAKES_LOG"], "a") as log:
    log.write(f"{time.time()} {int(is_tempting)}\n")
if is_tempting:
    sys.exit("the model called a tool that does not exist")
post(os.environ["ROLLCAST_REWARD_URL"], {"reward": random.choice([0.5, 1.0])})

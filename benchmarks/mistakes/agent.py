"""One action for each task: the first token.

A fourth of all tokens is the tempting action, which ends with code 1.
"""

import json
import os
import sys
import time
import urllib.request
from typing import Any


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
    "max_tokens": 1,
    "return_token_ids": True,
}
answer = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
is_tempting = answer["choices"][0]["token_ids"][0] % 4 == 0
with open(os.environ["MISTAKES_LOG"], "a") as log:
    log.write(f"{time.time()} {int(is_tempting)}\n")
if is_tempting:
    sys.exit("the model called a tool that does not exist")
post(os.environ["ROLLCAST_REWARD_URL"], {"reward": 1.0})

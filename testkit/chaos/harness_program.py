"""A harness of the run kind `endpoint`: chats until the model stops calling, then posts a reward.

Only the standard library: a process for each episode starts in a tenth of a second. Nothing is
imported from Rollcast: a user's harness does not either.
"""

import json
import os
import urllib.request
from typing import Any

DIRECT, PROXIED = "127.0.0.1", "127.0.0.2"
"""The endpoint's host, and the host of the proxy before it."""
TOOL = {"type": "function", "function": {"name": "step", "parameters": {"type": "object"}}}
MAX_CALLS = 4
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def post(url: str, body: dict[str, Any]) -> Any:
    headers = {
        "content-type": "application/json",
        "authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
    }
    address = url.replace(DIRECT, PROXIED)
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)
    # An answer of the tiny model takes a second on a busy machine
    with _opener.open(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def main() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    calls = 0
    while calls < MAX_CALLS:
        body = {"model": os.environ["ROLLCAST_MODEL"], "messages": messages, "tools": [TOOL]}
        completion = post(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body)
        message = completion["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            break
        calls += 1
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": "on"}
            for call in message["tool_calls"]
        ]
    # By the number of calls, so that the episodes of a group differ
    post(os.environ["ROLLCAST_REWARD_URL"], {"reward": float(calls % 2)})


if __name__ == "__main__":
    main()

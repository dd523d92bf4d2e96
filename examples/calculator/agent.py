"""An agent with a loop of its own: the `openai` client, tools that it runs itself, and no line of
Rollcast.

    export ROLLCAST_HTTP_TOKEN=$(python -c "import secrets; print(secrets.token_hex(16))")
    python agent.py &
    rollcast up --config through_endpoint.yaml

It asks generators for tasks, by their addresses, and works on many at once: a process for each
episode would spend more time on its imports than on the episode. It ends when they have ended.
"""

import asyncio
import json
import operator
import os
import ssl
import sys
from typing import Any

import httpx2
import openai

ADDRESS = "http://127.0.0.1:8500"
"""`generator.http_port` of through_endpoint.yaml."""
AT_ONCE = 128
"""Episodes that are worked on at once, of each generator."""
START_SECONDS = 600
RETRY_SECONDS = 5
MAX_RETRIES = 12
"""A generator that starts again is back after a minute."""
TOOLS = {
    "add": (operator.add, "Add two numbers."),
    "multiply": (operator.mul, "Multiply two numbers."),
    "subtract": (operator.sub, "Subtract the second number from the first."),
}
NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
SCHEMAS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": NUMBERS, "required": ["a", "b"]},
        },
    }
    for name, (_, description) in TOOLS.items()
]


def call_tool(name: str, arguments: str) -> str:
    """The result, or what was wrong with the call: the model may learn from it."""
    try:
        operation, _ = TOOLS[name]
        given = json.loads(arguments)
        return str(operation(int(given["a"]), int(given["b"])))
    except Exception as error:
        return f"error: {error!r}"[:100]


async def solve(client: openai.AsyncOpenAI, model: str, prompt: str) -> None:
    """Chat until the model answers without a call. The verifier of the run grades that answer."""
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while True:
        # As `tools` the client would look through all fields of the schemas again, which is a
        # quarter of its time.
        given = {"tools": SCHEMAS}
        completion = await client.chat.completions.create(
            model=model, messages=messages, extra_body=given
        )
        message = completion.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return
        for call in message.tool_calls:
            assert call.type == "function"
            result = call_tool(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


async def work_on(
    task: dict[str, Any], client: openai.AsyncOpenAI, http: httpx2.AsyncClient
) -> None:
    """One task from its beginning to the report of its end."""
    own = client.with_options(base_url=task["base_url"], api_key=task["token"])
    report = {}
    try:
        await solve(own, task["model"], task["row"]["prompt"])
    except openai.APIStatusError:
        pass  # its budget is used up, or the generator has taken it back: the generator knows
    except openai.OpenAIError as error:
        report = {"failed": repr(error)}
    await http.post(
        task["end_url"], headers={"authorization": f"Bearer {task['token']}"}, json=report
    )


async def work(address: str, token: str, context: ssl.SSLContext) -> None:
    """One task after another, until the generator is gone."""
    retries = 0
    # Each worker has a pool of its own, of one connection: httpx2 looks at all of a pool's at every
    # request.
    async with httpx2.AsyncClient(timeout=300, verify=context) as http:
        client = openai.AsyncOpenAI(api_key=token, base_url=address, http_client=http)
        while retries < MAX_RETRIES:
            try:
                given = await http.post(
                    f"{address}/rollcast/v1/sessions", headers={"authorization": f"Bearer {token}"}
                )
                if given.status_code == 401:
                    raise SystemExit(given.text)
                given.raise_for_status()
                if given.status_code == 200:  # 204 says that there is no task yet
                    await work_on(given.json(), client, http)
                retries = 0
            except httpx2.HTTPError:
                retries += 1
                await asyncio.sleep(RETRY_SECONDS)


async def work_at(address: str, token: str) -> None:
    """Wait until a generator listens, and work for it."""
    context = ssl.create_default_context()
    async with asyncio.timeout(START_SECONDS), httpx2.AsyncClient(verify=context) as http:
        while True:
            try:
                await http.get(f"{address}/healthz")
                break
            except httpx2.TransportError:
                await asyncio.sleep(1)
    await asyncio.gather(*(work(address, token, context) for _ in range(AT_ONCE)))


async def main() -> None:
    token = os.environ["ROLLCAST_HTTP_TOKEN"]
    await asyncio.gather(*(work_at(address, token) for address in sys.argv[1:] or [ADDRESS]))


if __name__ == "__main__":
    asyncio.run(main())

"""The shipped agent: chat completions with one tool, `shell`, whose commands run in the container.

It ends when the model answers without a call, or when the endpoint refuses a further turn.
"""

import json
import os
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

from rollcast.environments.tools.answers import command_answer, cut

TOOL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Run a command in a shell of the machine on which the task is to be done.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command to run."}},
            "required": ["command"],
        },
    },
}


def run_in_container(command: str) -> str:
    """The output of a command, and its exit code if that is not 0."""
    # Longest command
    command_seconds = 120.0
    inside = [*shlex.split(os.environ["ROLLCAST_CONTAINER"]), "/bin/sh", "-c", command]
    try:
        completed = subprocess.run(  # noqa: S603  # this is the tool
            inside,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=command_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        # The end of this command does not end the program in the container.
        subprocess.run(  # noqa: S603  # our own program
            [*shlex.split(os.environ["ROLLCAST_CONTAINER"]), "/bin/sh", "-c", "kill -9 -1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=command_seconds,
            check=False,
        )
        return command_answer("", 0, command_seconds)
    except (ValueError, OSError) as error:  # a NUL in it, or too long
        return f"Error: the command cannot be run: {error}"
    text = completed.stdout.decode("utf-8", "replace").rstrip("\n")
    return command_answer(cut(text, 8_000), completed.returncode)


def ask(messages: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The model's next message; None = its budget is used up, or the endpoint refuses it."""
    body = {"model": os.environ["ROLLCAST_MODEL"], "messages": messages, "tools": [TOOL]}
    headers = {
        "authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
        "content-type": "application/json",
    }
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    # The generator's own address
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310
    try:
        # Longer than a turn of the model: the run's own budgets are shorter.
        with urllib.request.urlopen(request, timeout=3_600.0) as response:  # noqa: S310
            message: dict[str, Any] = json.load(response)["choices"][0]["message"]
            return message
    except urllib.error.HTTPError as error:
        # The endpoint refuses for good with 4xx; an answer of 5xx is its own failure.
        if error.code >= 500:
            raise
        print(error.read(2_000).decode("utf-8", "replace"), flush=True)
        return None


def main() -> None:
    row = json.load(sys.stdin)
    messages: list[dict[str, Any]] = [{"role": "user", "content": str(row.get("prompt", ""))}]
    while (message := ask(messages)) is not None:
        messages.append(message)
        calls = message.get("tool_calls") or []
        if not calls:
            return
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": _answer(call["function"])}
            for call in calls
        ]


def _answer(function: dict[str, Any]) -> str:
    try:
        command = json.loads(function["arguments"])["command"]
    except (ValueError, LookupError, TypeError, RecursionError):
        command = None
    if function["name"] != "shell" or not isinstance(command, str):
        return "Error: there is one tool, shell, with one parameter, command, a text"
    return run_in_container(command)


if __name__ == "__main__":
    main()

"""`INTERPRETER -I adapter.py CONTROL_DESCRIPTOR URL`: OpenEnv's own client, in its virtual
environment.

generator --- a connection for each environment, sent over the control socket ---> adapter
          <-- reset, step: four bytes of length, then JSON ----------------------->
adapter   --- its client ---> server

Each connection has a client, and so a session of the server, of its own: many episodes may share
one adapter. A connection that closes ends its session; a control socket that closes ends the
adapter. Of Rollcast it loads one file, by its path.
"""

import asyncio
import json
import runpy
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

frames = SimpleNamespace(
    **runpy.run_path(str(Path(__file__).parents[2] / "processes" / "frames.py"))
)
"""A file of Rollcast's that imports the standard library alone."""
MAX_TEXT_CHARACTERS = 200_000
"""Longest text that leaves the adapter; the loop of episodes shortens it further for the model."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
"""No proxy leads there, as in OpenEnv's client."""
MCP_ACTIONS = ("Action", "CallToolAction", "ListToolsAction")
"""Titles of the action schemas for which OpenEnv's server takes MCP's actions."""
STEP = "step"
"""The tool of an environment whose server has one kind of action."""
MISTAKES = ("invalid_args", "tool_not_found")
"""OpenEnv's errors of a tool call that are the model's."""


class ServerError(Exception):
    """The server, not the model, is to blame."""


class Session:
    """One episode after another, each with a fresh session of the server."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._client: Any = None
        self._is_mcp = False

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request of the generator; `failed` says why it cannot be given."""
        request_name = request["do"]
        seconds = request["seconds"]
        try:
            async with asyncio.timeout(seconds):
                if request_name == "reset":
                    return await self._reset(request["row"], seconds)
                if request_name == "call":
                    return await self._call(request["tool"], request["arguments"])
                await self.end()
                return {}
        except TimeoutError:
            return {"failed": f"{request_name} took longer than {seconds:g} s", "late": True}
        except ServerError as error:
            return {"failed": str(error)}
        except Exception as error:
            return {
                "failed": (
                    f"{request_name} failed at {self._url} ({type(error).__name__}: "
                    f"{one_line(error)})"
                )
            }

    async def end(self) -> None:
        """Close the session, so that another episode may have its place."""
        client = self._client
        self._client = None
        if client is not None:
            await client.close()

    async def _reset(self, row: dict[str, Any], seconds: float) -> dict[str, Any]:
        await self.end()
        action = await self._action_schema(seconds)
        self._is_mcp = action.get("title") in MCP_ACTIONS
        while True:
            self._client = new_client(self._url, seconds)
            try:
                tools = await self._mcp_tools() if self._is_mcp else [step_tool(action)]
                result = await self._client.reset(**row)
                break
            except Exception as error:
                await self.end()
                # OpenEnv's client gives the code of an error in its text alone.
                if not str(error).endswith("(code: CAPACITY_REACHED)"):
                    raise
            # Pause before a server whose sessions are all in use is asked again
            await asyncio.sleep(0.2)
        return {"tools": tools, **make_observation_answer(result)}

    async def _action_schema(self, seconds: float) -> dict[str, Any]:
        try:
            described = await asyncio.to_thread(description, f"{self._url}/schema", seconds)
            action = described["action"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            error_message = f"{type(error).__name__}: {one_line(error)}"
            raise ServerError(
                f"no OpenEnv server describes its actions at {self._url}/schema ({error_message})"
            ) from error
        if not isinstance(action, dict):
            raise ServerError(f"{self._url}/schema describes no action")
        return action

    async def _mcp_tools(self) -> list[dict[str, Any]]:
        result = await self._client.step({"type": "list_tools"})
        return [
            function(tool["name"], tool.get("description", ""), tool["input_schema"])
            for tool in result.observation["tools"]
        ]

    async def _call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._client is None:
            raise ServerError("reset comes before a call")
        action = (
            {"type": "call_tool", "tool_name": tool, "arguments": arguments}
            if self._is_mcp
            else arguments
        )
        if not self._is_mcp and tool != STEP:
            return {
                "text": f"Error: there is no tool {tool!r}; there is: {STEP}",
                "malformed": True,
            }
        try:
            result = await self._client.step(action)
        except RuntimeError as error:
            return refusal(tool, error)
        return make_call_answer(result) if self._is_mcp else make_observation_answer(result)


def description(url: str, seconds: float) -> Any:
    """The server's description of its actions and observations."""
    proxies = ProxyHandler({}) if urlsplit(url).hostname in LOCAL_NAMES else ProxyHandler()
    # Longest description of its actions by the server; it is part of every prompt.
    max_schema_bytes = 1 << 20
    with build_opener(proxies).open(url, timeout=seconds) as answer:
        content = answer.read(max_schema_bytes + 1)
    if len(content) > max_schema_bytes:
        raise ValueError(f"more than {max_schema_bytes} bytes")
    return json.loads(content)


def new_client(url: str, seconds: float) -> Any:
    """OpenEnv's client for any server. Deadlines are the adapter's."""
    from openenv import GenericEnvClient

    return GenericEnvClient(
        url,
        connect_timeout_s=seconds,
        message_timeout_s=86_400.0,
        # A larger message of the server ends the session.
        max_message_size_mb=16.0,
    )


def step_tool(action: dict[str, Any]) -> dict[str, Any]:
    """The server's action as a tool.

    `metadata` is OpenEnv's own field of every action, not the model's.
    """
    parameters = {
        key: value for key, value in action.items() if key not in ("title", "description")
    }
    properties = parameters.get("properties", {})
    parameters["properties"] = {
        key: value for key, value in properties.items() if key != "metadata"
    }
    return function(STEP, action.get("description", ""), parameters)


def function(name: str, description_text: str, parameters: Any) -> dict[str, Any]:
    """A tool as chat templates take it."""
    return {
        "type": "function",
        "function": {"name": name, "description": description_text, "parameters": parameters},
    }


def make_observation_answer(result: Any) -> dict[str, Any]:
    """An observation: its fields without the metadata, or its text if it has but one field."""
    fields = {key: value for key, value in result.observation.items() if key != "metadata"}
    values = list(fields.values())
    content = values[0] if len(values) == 1 else fields
    text = format_text(content) if fields else ""
    return {
        "text": text,
        "reward": result.reward,
        "done": bool(result.done),
        "metrics": metadata_numbers(result),
    }


def metadata_numbers(result: Any) -> dict[str, float]:
    """The numbers in an observation's metadata, which may hold anything; at most a hundred."""
    candidates = (result.observation.get("metadata"), result.metadata)
    metadata = next((value for value in candidates if isinstance(value, dict) and value), {})
    numbers = {name: value for name, value in metadata.items() if isinstance(value, int | float)}
    return dict(list(numbers.items())[:100])


def make_call_answer(result: Any) -> dict[str, Any]:
    """The answer of an MCP tool."""
    observation = result.observation
    answer = {
        "reward": result.reward,
        "done": bool(result.done),
        "metrics": metadata_numbers(result),
    }
    error = observation.get("error")
    if error:
        kind = error.get("error_type")
        if kind == "transport_error":
            raise ServerError(f"the server could not reach its tool ({error.get('message')})")
        return {
            **answer,
            "text": format_text(f"Error: {error.get('message')}"),
            "malformed": kind in MISTAKES,
        }
    content = observation.get("result")
    if isinstance(content, dict) and "data" in content:
        content = content["data"]
    return {**answer, "text": format_text(content)}


def refusal(tool: str, error: RuntimeError) -> dict[str, Any]:
    """OpenEnv's client raises RuntimeError for every error of the server; after two kinds the
    session lives on.
    """
    error_message = str(error)
    if error_message.endswith("(code: VALIDATION_ERROR)"):
        return {
            "text": f"Error: {tool}: the arguments do not fit its parameters",
            "malformed": True,
        }
    if error_message.endswith("(code: EXECUTION_ERROR)"):
        return {"text": format_text(f"Error: {error_message}")}
    raise ServerError(error_message) from error


def format_text(content: object) -> str:
    """A text of at most MAX_TEXT_CHARACTERS; JSON if the content is no text."""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    half = MAX_TEXT_CHARACTERS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters were cut ...]\n{text[-half:]}"


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


async def serve(connection: socket.socket, url: str) -> None:
    """Answer one environment's requests until its connection closes."""
    reader, writer = await asyncio.open_connection(sock=connection)
    session = Session(url)
    try:
        while True:
            request = await frames.read(reader, frames.MAX_REQUEST_BYTES)
            writer.write(frames.pack_message(await session.answer(request)))
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()
        await session.end()


async def run(control: socket.socket, url: str) -> None:
    """Serve the connections that come over the control socket until it closes."""
    loop = asyncio.get_running_loop()
    closed = asyncio.Event()
    serving: set[asyncio.Task[None]] = set()

    def take() -> None:
        content, descriptors, _, _ = socket.recv_fds(control, 16, 1)
        if not content:
            loop.remove_reader(control)
            closed.set()
        for descriptor in descriptors:
            task = loop.create_task(serve(socket.socket(fileno=descriptor), url))
            serving.add(task)
            task.add_done_callback(serving.discard)

    loop.add_reader(control, take)
    control.send(b"{}")
    await closed.wait()
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)


def main() -> None:
    descriptor, url = sys.argv[1:]
    control = socket.socket(fileno=int(descriptor))
    try:
        import openenv  # noqa: F401  # the environment's own
    except ImportError as error:
        control.send(json.dumps({"failed": one_line(error)[:500]}).encode())
        return
    asyncio.run(run(control, url))


if __name__ == "__main__":
    main()

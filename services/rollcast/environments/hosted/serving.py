"""The loop of an environment's process: one request after another, until the generator closes the connection.

A tool's exception is an answer to the model, as in TRL. What `reset`, `get_reward` or `get_call_reward` raise is the
environment's failure. A call that exceeds its deadline is interrupted here, so that the episode goes on with its state;
only code that no signal interrupts is ended by the generator.
"""

import asyncio
import inspect
import json
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rollcast.config.own_functions import failure
from rollcast.environments.hosted.definition import Definition, Instance
from rollcast.environments.hosted.frames import packed, receive
from rollcast.environments.overdue import OverdueAnswer, OverdueError
from rollcast.environments.tools.answers import cut

MAX_TEXT_CHARACTERS = 200_000
"""Longest answer of a tool that leaves the process; the loop of episodes shortens it further for the model."""


def serve(definition: Definition, connection: socket.socket) -> None:
    """Answer requests until the connection closes."""
    signal.signal(signal.SIGALRM, _interrupt)
    with asyncio.Runner() as runner:
        session = _Session(definition, runner)
        while (request := receive(connection)) is not None:
            connection.sendall(packed({**session.answer(request), "number": request["number"]}))


def _interrupt(number: int, frame: Any) -> None:
    raise OverdueError


class _Session:
    def __init__(self, definition: Definition, runner: asyncio.Runner) -> None:
        self._definition = definition
        self._runner = runner
        self._instance: Instance | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            with _deadline(float(request["seconds"])):
                match request["do"]:
                    case "reset":
                        return self._reset(request["row"])
                    case "call":
                        return self._call(request["tool"], request["arguments"])
                    case _:
                        assert self._instance is not None, "reset comes first"
                        return self._rewarded(self._instance.reward)
        except OverdueError:
            return {"overdue": True}

    def _reset(self, row: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if self._instance is None:
                self._instance = self._definition.make()
            begin = self._instance.reset
            opening = None if begin is None else self._run(begin, _accepted(begin, row))
        except OverdueError:
            raise
        except Exception as error:
            return {"failed": failure(error, in_sandbox=False)}
        if opening is not None and not isinstance(opening, str | list):
            kind = type(opening).__name__
            return {"failed": f"reset returned {kind}; it returns None, text, or a list of messages"}
        return {"tools": self._definition.schemas, "opening": opening}

    def _call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        assert self._instance is not None, "reset comes first"
        function = self._instance.tools.get(tool)
        if function is None:
            known = ", ".join(self._instance.tools) or "none"
            return {"text": f"Error: there is no tool {tool!r}; there are: {known}", "malformed": True}
        try:
            inspect.signature(function).bind(**arguments)
        except TypeError as error:
            return {"text": f"Error: {tool}: {error}", "malformed": True}
        try:
            result = self._run(function, arguments)
        except OverdueError:
            raise
        except Exception as error:
            answer = _shortened(f"Error: {error}" if str(error) else f"Error: {type(error).__name__}")
        else:
            answer = {**_shortened(_text(result)), "late": isinstance(result, OverdueAnswer)}
        return answer | self._rewarded(self._instance.call_reward)

    def _rewarded(self, function: Callable[[], Any] | None) -> dict[str, Any]:
        if function is None:
            return {"reward": None}
        try:
            reward = self._run(function, {})
            return {"reward": None if reward is None else float(reward)}
        except OverdueError:
            raise
        except Exception as error:
            return {"failed": failure(error, in_sandbox=False)}

    def _run(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        result = function(**arguments)
        if not inspect.isawaitable(result):
            return result
        loop = self._runner.get_loop()
        task = loop.create_task(_awaited(result))
        try:
            return loop.run_until_complete(task)
        except OverdueError:
            task.cancel()  # else it would go on during the next call
            loop.run_until_complete(asyncio.wait({task}))
            raise


async def _awaited(result: Any) -> Any:
    return await result


def _accepted(function: Callable[..., Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row that the function has parameters for; all if it takes any."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(row)
    wanted = {parameter.name for parameter in parameters}
    return {name: value for name, value in row.items() if name in wanted}


def _shortened(text: str) -> dict[str, Any]:
    return {"text": cut(text, MAX_TEXT_CHARACTERS), "cut": len(text) > MAX_TEXT_CHARACTERS}


def _text(result: Any) -> str:
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result)
    except (TypeError, ValueError, RecursionError):
        return str(result)


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)

"""The loop of an environment's process: one request after another, until the generator closes the
connection.

A tool's exception is an answer to the model, as in TRL. What `reset` or a method `get_...` raises
is the environment's failure. A call that exceeds its deadline is interrupted here, so that the
episode goes on with its state; only code that no signal interrupts is ended by the generator. What
the model wrote runs elsewhere (`programs`).
"""

import asyncio
import inspect
import socket
from collections.abc import Callable, Mapping
from typing import Any

from rollcast.config.function_loading import failure
from rollcast.environments.overdue import OverdueError
from rollcast.environments.python_processes.definition import Definition
from rollcast.environments.python_processes.instance import (
    Function,
    Instance,
    answer_call,
    deadline,
    interrupt_at_deadlines,
)
from rollcast.environments.python_processes.program_client import ProgramEndedError, ProgramProcess
from rollcast.processes.frames import MAX_REQUEST_BYTES, pack_message, receive

BEGUN = {"number": 0}
"""The first message: the process has its profile on, and takes requests."""


def serve(
    definition: Definition, connection: socket.socket, programs: ProgramProcess | None
) -> None:
    """Answer requests until the connection closes. programs: None = the environment has no such
    tools.
    """
    interrupt_at_deadlines()
    session = _Session(definition, programs)
    connection.sendall(pack_message(BEGUN))
    while (request := receive(connection, MAX_REQUEST_BYTES)) is not None:
        connection.sendall(pack_message({**session.answer(request), "number": request["number"]}))


class _Session:
    def __init__(self, definition: Definition, programs: ProgramProcess | None) -> None:
        self._definition = definition
        self._programs = programs
        self._runner = asyncio.Runner()
        """Makes its loop when the first coroutine is run."""
        self._instance: Instance | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        seconds = float(request["seconds"])
        if (
            request["do"] == "call"
            and self._programs is not None
            and request["tool"] in self._programs.names
        ):
            return self._call_program(
                self._programs, request["tool"], request["arguments"], seconds
            )
        try:
            with deadline(seconds):
                match request["do"]:
                    case "reset":
                        return self._reset(request["row"])
                    case "call":
                        return self._call(request["tool"], request["arguments"])
                    case "metrics":
                        return self._make_metrics_answer(self._live_instance.metrics)
                    case _:
                        return self._make_reward_answer(self._live_instance.reward)
        except OverdueError:
            return {"overdue": True}

    def _reset(self, row: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if self._instance is None:
                self._instance = self._definition.make()
            begin = self._instance.reset
            opening = None if begin is None else self._run(begin, _select_fields(begin, row))
        except Exception as error:
            return {"failed": failure(error, in_sandbox=False)}
        if opening is not None and not isinstance(opening, str | list):
            kind = type(opening).__name__
            return {
                "failed": f"reset returned {kind}; it returns None, text, or a list of messages"
            }
        return {"tools": self._definition.schemas, "opening": opening}

    def _call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        function = self._live_instance.tools.get(tool)
        if function is None:
            tool_names = ", ".join(self._live_instance.tools) or "none"
            text = f"Error: there is no tool {tool!r}; there are: {tool_names}"
            return {"text": text, "malformed": True}
        if misfit := _misfit(tool, function, arguments):
            return misfit
        answer = answer_call(lambda: self._run(function, arguments))
        return answer | self._make_reward_answer(self._live_instance.call_reward)

    def _call_program(
        self, programs: ProgramProcess, tool: str, arguments: Mapping[str, Any], seconds: float
    ) -> dict[str, Any]:
        """No signal interrupts this: the other process keeps the deadline, and has some seconds
        more to do so.
        """
        if misfit := _misfit(tool, self._live_instance.tools[tool], arguments):
            return misfit
        try:
            return programs.call(tool, arguments, seconds)
        except ProgramEndedError as error:
            return {"ended": str(error), "overdue": error.is_overdue}

    @property
    def _live_instance(self) -> Instance:
        assert self._instance is not None, "reset comes first"
        return self._instance

    def _make_reward_answer(self, function: Callable[[], Any] | None) -> dict[str, Any]:
        if function is None:
            return {"reward": None}
        try:
            reward = self._run(function, {})
            # Text is no number, though Python would read one from it: a verifier's reward is
            # refused then too.
            if isinstance(reward, str | bytes):
                raise TypeError(f"a reward is a number, not {type(reward).__name__}")
            return {"reward": None if reward is None else float(reward)}
        except Exception as error:
            return {"failed": failure(error, in_sandbox=False)}

    def _make_metrics_answer(self, function: Function | None) -> dict[str, Any]:
        if function is None:
            return {"metrics": {}}
        try:
            values = self._run(function, {})
            if not isinstance(values, Mapping):
                kind = type(values).__name__
                return {"failed": f"get_metrics returned {kind}; it returns numbers by name"}
            return {
                "metrics": {
                    name if isinstance(name, str) else repr(name): _as_number(value)
                    for name, value in values.items()
                }
            }
        except Exception as error:
            return {"failed": failure(error, in_sandbox=False)}

    def _run(self, function: Function, arguments: Mapping[str, Any]) -> Any:
        result = function(**arguments)
        if not inspect.isawaitable(result):
            return result
        loop = self._runner.get_loop()
        task = loop.create_task(_await_result(result))
        try:
            return loop.run_until_complete(task)
        except OverdueError:
            task.cancel()  # else it would go on during the next call
            loop.run_until_complete(asyncio.wait({task}))
            raise


def _misfit(tool: str, function: Function, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer to arguments that the tool does not take; None = it takes them."""
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        return {"text": f"Error: {tool}: {error}", "malformed": True}
    return None


def _as_number(value: Any) -> float | None:
    """The value, NumPy's numbers included; None = it is no number, which the generator counts."""
    if isinstance(value, str | bytes):
        return None
    try:
        return float(value)
    except Exception:  # its __float__ is the user's own
        return None


async def _await_result(result: Any) -> Any:
    return await result


def _select_fields(function: Function, row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row that the function has parameters for; all if it takes any."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(row)
    parameter_names = {parameter.name for parameter in parameters}
    return {name: value for name, value in row.items() if name in parameter_names}

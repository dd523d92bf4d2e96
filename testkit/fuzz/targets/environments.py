"""What processes and servers of environments send: frames, answers, traces, results of tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.kinds import openenv_sessions, verifiers
from rollcast.environments.openenv import adapter as openenv_adapter
from rollcast.environments.openenv_sessions.adapter import call_digest
from rollcast.environments.openenv_sessions.helper import OpenEnvRollout
from rollcast.environments.python_processes import answers
from rollcast.environments.traces import SampledRecord, UnusableTraceError
from rollcast.environments.verifiers.adapter import answer_digest
from rollcast.environments.verifiers.helper import VerifiersRollout
from rollcast.generator.episodes.reward import scaled_reward
from rollcast.generator.episodes.waits import UnusableEpisodeError
from rollcast.processes.frames import MAX_ANSWER_BYTES, FrameError, pack, read
from rollcast.rollouts.environment_metrics import bound_metrics
from testkit.fuzz.mutation import change_bytes, change_json
from testkit.fuzz.target import Target, is_json

CALL = {"id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}
TURNS: Any = [
    SimpleNamespace(number=0, parent_turn=None, assistant_message={"content": "x"}),
    SimpleNamespace(
        number=1, parent_turn=0, assistant_message={"content": "", "tool_calls": [CALL]}
    ),
]
TOKENS = ([1, 2], [3, 4, 5])
RECORD = SampledRecord(2, TURNS, lambda _: TOKENS)


def change_frame(content: bytes, pool: Sequence[bytes], chance: Random) -> bytes:
    """The content of a frame with the right length; now and then the frame itself."""
    if chance.randrange(10) == 0:
        return change_bytes(content, pool, chance)
    return pack(change_json(content[4:], [item[4:] for item in pool], chance))


def _is_frame(content: bytes) -> bool:
    return int.from_bytes(content[:4], "big") == len(content) - 4


def _frames() -> list[bytes]:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    message = {"role": "user", "content": "go"}
    return [
        pack(json.dumps({"number": 1, **fields}).encode())
        for fields in (
            {"tools": [tool], "opening": [message]},
            {"tools": [], "opening": "go"},
            {"text": "4", "malformed": False, "reward": 0.5, "late": False, "cut": True},
            {"reward": 1.0, "metrics": {"a": 1.0, "b": None}},
            {"failed": "why", "ended": "because", "overdue": True},
        )
    ]


async def _read_frame(content: bytes) -> dict[str, Any]:
    stream = asyncio.StreamReader()
    stream.feed_data(content)
    stream.feed_eof()
    return await read(stream, MAX_ANSWER_BYTES)


def _read_answer(content: bytes) -> object:
    """By each of the readers: any of them may get any answer."""
    answer = asyncio.run(_read_frame(content))
    readers: tuple[Callable[[dict[str, Any]], object], ...] = (
        lambda item: answers.get_reason(item, "failed"),
        lambda item: answers.get_flag(item, "overdue"),
        answers.get_opening,
        answers.get_reward,
        answers.get_metrics,
        lambda item: answers.get_tool_result(item, gives_rewards=True),
        lambda item: answers.check_number(item, 1),
    )
    failure: FrameError | None = None
    for reader in readers:
        try:
            reader(answer)
        except FrameError as error:
            failure = error
    if failure is not None:
        raise failure
    return answer


def _message(content: bytes) -> dict[str, Any]:
    """The message as `frames.read` returns it; empty if that would refuse it."""
    answer = json.loads(content) if is_json(content) else None
    return answer if isinstance(answer, dict) else {}


def _verifiers_traces() -> list[bytes]:
    calls = [("c", "f", '{"a": 1}')]
    records = [[answer_digest("x", []), None, True], [answer_digest("", calls), 0, True]]
    trace = {"answers": records, "metrics": {"a": 1}, "reward": 1.0, "stop_condition": "max_turns"}
    return [json.dumps(trace).encode()]


def _openenv_traces() -> list[bytes]:
    calls = [[call_digest(*TOKENS), [[0, 1]]], [call_digest(*TOKENS), []]]
    return [
        json.dumps(
            {"calls": calls, "metrics": {}, "reward": 1.0, "late": False, "exit": 0}
        ).encode()
    ]


def _traced(kind: Any, module: Any) -> Callable[[bytes], object]:
    def trace_of(content: bytes) -> object:
        answer = _message(content)
        rollout = kind(None, 1)
        rollout.note(answer)
        assert isinstance(rollout.how_it_failed + rollout.last_lines + rollout.unusable, str)
        trace = rollout.trace()
        if trace is None:
            return None
        module.join(RECORD, trace)
        bound_metrics(trace.metrics)
        return scaled_reward(trace.reward, (0.0, 1.0))

    return trace_of


def _openenv_results() -> list[bytes]:
    observations = (
        {"result": {"data": 4}, "metadata": {"a": 1.0}},
        {"error": {"error_type": "invalid_args", "message": "m"}},
        {"state": [1, 2], "metadata": {}},
    )
    results = [
        {"observation": item, "reward": 1.0, "done": False, "metadata": None}
        for item in observations
    ]
    schema = {"title": "A", "description": "d", "type": "object", "properties": {"metadata": {}}}
    return [json.dumps({"schema": schema, "result": item}).encode() for item in results]


async def _openenv_answer(content: bytes) -> object:
    """The adapter's whole way, with a client that has answered this."""
    answered = _message(content).get("result")
    result: Any = SimpleNamespace(observation={}, reward=0, done=False, metadata={})
    if isinstance(answered, dict):
        result.__dict__.update(answered)

    async def step(_: object) -> Any:
        return result

    session = openenv_adapter.Session("http://h")
    session._client = SimpleNamespace(step=step)
    for is_mcp in (False, True):
        session._is_mcp = is_mcp
        reply = await session.answer({"do": "call", "tool": "step", "arguments": {}, "seconds": 5})
        json.dumps(reply)
    return result


_NO_TRACE = (EnvironmentFailedError, UnusableTraceError, UnusableEpisodeError)
OPENENV = "environments.openenv_sessions"
TARGETS = (
    Target(
        *("environment-frame", _frames, change_frame, _is_frame, _read_answer),
        (FrameError, asyncio.IncompleteReadError),
        ("environments.python_processes.answers", "processes.frames"),
    ),
    Target(
        *("verifiers-trace", _verifiers_traces, change_json, is_json),
        _traced(VerifiersRollout, verifiers),
        _NO_TRACE,
        ("environments.verifiers.join", "environments.verifiers.helper"),
    ),
    Target(
        *("openenv-trace", _openenv_traces, change_json, is_json),
        _traced(OpenEnvRollout, openenv_sessions),
        _NO_TRACE,
        (f"{OPENENV}.join", f"{OPENENV}.helper"),
    ),
    Target(
        *("openenv-answer", _openenv_results, change_json, is_json),
        lambda content: asyncio.run(_openenv_answer(content)),
        (),
        ("environments.openenv.adapter",),
    ),
)

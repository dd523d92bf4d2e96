"""Requests of harnesses in every dialect of the endpoint. vLLM's classes check a part of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from rollcast.generator.endpoint.bodies import MAX_TOKENS, read_json
from rollcast.generator.endpoint.dialects.anthropic_messages import AnthropicMessages
from rollcast.generator.endpoint.dialects.responses import Responses
from rollcast.generator.endpoint.protocol import read_request
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.token_request import TokenRequest
from rollcast.rollouts.records import Sampling
from testkit.fuzz.mutation import change_json
from testkit.fuzz.target import Target, is_json

SAMPLING = Sampling(1.0, 1.0, 0, 7)
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
SETTINGS: dict[str, Any] = {"model": "m", "stream": False, "temperature": 1.0, "top_p": 1.0}


async def _on_engine(work: Awaitable[Any]) -> Any:
    return await work


SESSIONS: Any = SimpleNamespace(model="m", on_engine=_on_engine)
SESSION: Any = SimpleNamespace(
    histories=SimpleNamespace(call_arguments={}),
    parts=SimpleNamespace(renderer=SimpleNamespace(prompt=lambda *_: [1])),
    responses={},
)


def _as_chat(body: Any) -> object:
    return read_request(body, "m", SAMPLING, replaces=True, is_retry=None)


def _converted(dialect: Callable[[Any], Any]) -> Callable[[bytes], object]:
    def read(content: bytes) -> object:
        body = read_json(content)
        return _as_chat(asyncio.run(dialect(SESSIONS).read(body, SESSION)))

    return read


def _chats() -> list[bytes]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    tool = {"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "r"},
        {"role": "tool", "tool_call_id": "c", "content": "4"},
    ]
    limits = {
        "max_tokens": 5,
        "stream": True,
        "stop": ["a"],
        "n": 1,
        "stream_options": {"include_usage": True},
    }
    body = {**SETTINGS, **limits, "messages": messages, "tools": [tool], "tool_choice": "auto"}
    return [json.dumps(body).encode()]


def _anthropic() -> list[bytes]:
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "4"}]}
    body = {
        **SETTINGS,
        "max_tokens": 5,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [{"type": "text", "text": "y"}, use]},
            {"role": "user", "content": [result]},
        ],
        "tools": [{"name": "f", "description": "d", "input_schema": PARAMETERS}],
        "stop_sequences": ["a"],
        "tool_choice": {"type": "auto"},
    }
    return [json.dumps(body).encode()]


def _responses() -> list[bytes]:
    text = [{"type": "input_text", "text": "x"}]
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}
    items = [
        {"type": "message", "role": "user", "content": text},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}]},
        call,
        {"type": "function_call_output", "call_id": "c", "output": "4"},
    ]
    body = {
        **SETTINGS,
        "input": items,
        "instructions": "i",
        "max_output_tokens": 5,
        "tools": [{"type": "function", "name": "f", "parameters": PARAMETERS, "strict": False}],
        "tool_choice": "auto",
        "text": {"format": {"type": "text"}},
        "reasoning": {"effort": "low"},
        "store": False,
    }
    return [json.dumps(body).encode(), json.dumps({**SETTINGS, "input": "x"}).encode()]


def _tokens() -> list[bytes]:
    sampling = {"max_tokens": 5, "temperature": 1.0, "stop": ["a"], "n": 1, "logprobs": 0}
    return [json.dumps({"token_ids": [1, 2, 3], "sampling_params": sampling}).encode()]


def _read_tokens(content: bytes) -> object:
    body = read_json(content, MAX_TOKENS)
    return TokenRequest.read(body, SAMPLING, replaces=True, is_retry=None)


OWN = ("generator.endpoint.bodies", "generator.endpoint.protocol", "generator.endpoint.messages")
DIALECTS = "generator.endpoint.dialects"
_REFUSED = (RefusedRequestError,)
TARGETS = (
    Target(
        *("endpoint-chat", _chats, change_json, is_json),
        lambda content: _as_chat(read_json(content)),
        *(_REFUSED, OWN),
    ),
    Target(
        *("endpoint-anthropic", _anthropic, change_json, is_json, _converted(AnthropicMessages)),
        *(_REFUSED, (*OWN, f"{DIALECTS}.anthropic_messages")),
    ),
    Target(
        *("endpoint-responses", _responses, change_json, is_json, _converted(Responses)),
        *(_REFUSED, (*OWN, f"{DIALECTS}.responses", f"{DIALECTS}.response_items")),
    ),
    Target(
        *("endpoint-tokens", _tokens, change_json, is_json, _read_tokens),
        *(_REFUSED, ("generator.endpoint.token_request",)),
    ),
)

"""OpenAI's responses, converted by vLLM: https://platform.openai.com/docs/api-reference/responses

    instructions, input, tools, tool_choice,
    max_output_tokens, stream                        as of a chat completion
    previous_response_id                             of this session, unless `store` was false
    temperature, reasoning, text.format,
    a custom tool's grammar, ...                     settings of sampling: the run's are used
    background, and tools that a host carries out    refused, or not shown to the model

A response is remembered as the chat that it ends, without the instructions. Reasoning that a client
sends back is dropped.
"""

import json
import time
from collections.abc import AsyncIterator, Mapping, Set
from typing import Any

from rollcast.generator.endpoint.dialects.response_items import (
    delta_events,
    empty_message,
    empty_message_events,
    joined_text,
    read_items,
    without_grammars,
)
from rollcast.generator.endpoint.protocol import check_size, describe_invalid
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.generator.endpoint.sessions import Sessions
from rollcast.generator.vllm import protocol

Message = dict[str, Any]
CONVERTED: Set[str] = {
    *(
        "model",
        "instructions",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_output_tokens",
        "stream",
    ),
    *("temperature", "top_p", "text", "reasoning", "store", "previous_response_id", "metadata"),
}
"""Settings that vLLM's class checks. No other list of a body reaches it: it tries many classes for
each element."""
IGNORED: Set[str] = {
    *(
        "input",
        "request_id",
        "background",
        "include",
        "truncation",
        "stream_options",
        "max_tool_calls",
    ),
    *(
        "client_metadata",
        "prompt_cache_retention",
        "user",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
    ),
}
"""Settings that change no token."""
ANSWER_ITEMS = frozenset({"message", "function_call", "custom_tool_call"})


class Responses:
    """One request of /v1/responses. `read` sets its parts."""

    _request: Any
    _session: HarnessSession
    _messages: list[Message]

    def __init__(self, sessions: Sessions) -> None:
        self._model = sessions.model

    async def read(self, body: Any, session: HarnessSession) -> Any:
        if not isinstance(body, dict):
            raise RefusedRequestError("the body is not a JSON object")
        items = body.get("input")
        check_size([items] if isinstance(items, str) else items, "input", body)
        if body.get("background"):
            raise RefusedRequestError(
                "background = true is not served; wait for the answer, or stream it"
            )
        earlier_messages = self._earlier_messages(body.get("previous_response_id"), session)
        settings = {
            name: value for name, value in body.items() if name in CONVERTED and value is not None
        }
        tools_without_grammar = without_grammars(settings.get("tools"))
        if tools_without_grammar is not None:
            settings["tools"] = tools_without_grammar
        try:
            # pydantic tries thirty classes for each item of another form, which takes minutes for
            # ten thousand of them.
            request = protocol.ResponsesRequest.model_validate({**settings, "input": ""})
            utils = protocol.responses_utils
            new_messages = utils.construct_input_messages(
                request_input=list(read_items(items, session.histories.call_arguments))
                if isinstance(items, list)
                else items
            )
            tools = utils.construct_tool_dicts(request.tools, request.tool_choice)
        except RefusedRequestError:
            raise
        except Exception as error:  # pydantic's and vLLM's own checks
            raise describe_invalid(error) from None
        self._request = request
        self._session = session
        self._messages = [
            *earlier_messages,
            *(_as_chat_message(message) for message in new_messages),
        ]
        instructions = (
            [{"role": "system", "content": request.instructions}] if request.instructions else []
        )
        chat_body = _chat_body(body, request, [*instructions, *self._messages], tools)
        if tools_without_grammar is not None:
            chat_body["structured_outputs"] = "the grammar of a custom tool"
        return chat_body

    def answer(self, completion: dict[str, Any]) -> dict[str, Any]:
        (choice,) = completion["choices"]
        message = choice["message"]
        output = protocol.responses_utils.build_response_output_items(
            message.get("reasoning"),
            message.get("content"),
            _calls(message),
            tools=self._request.tools,
        )
        if not any(item.type in ANSWER_ITEMS for item in output):
            output.append(empty_message())
        self._remember(message)
        return self._response(output, choice["finish_reason"], completion["usage"])

    async def stream(self, parts: AsyncIterator[str]) -> AsyncIterator[str]:
        events = _Events()
        processor = protocol.responses_events.SimpleStreamingEventProcessor(
            tools=self._request.tools
        )
        message: Message = {"content": "", "tool_calls": []}
        finish_reason = usage = None
        async for chat_event in parts:
            # After the first part: a stream of which nothing was read is not abandoned by its end.
            if not events.num_sent:
                created = self._response([], None, None)
                yield events.write("response.created", {"response": created})
                yield events.write("response.in_progress", {"response": created})
            chunk = _chunk(chat_event)
            if chunk is None:
                continue
            if "error" in chunk:
                yield events.write(
                    "error", {"code": chunk["error"]["code"], "message": chunk["error"]["message"]}
                )
                return
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                finish_reason = choice.get("finish_reason") or finish_reason
                delta = choice["delta"]
                message["content"] += delta.get("content") or ""
                message["tool_calls"] += delta.get("tool_calls") or ()
                for event in delta_events(processor, delta):
                    yield events.encode(event)
        if not message["content"] and not message["tool_calls"]:
            for event in empty_message_events(processor):
                yield events.encode(event)
        for event in processor.close_current():
            yield events.encode(event)
        self._remember(message)
        response = self._response(processor.output_items, finish_reason, usage)
        yield events.write(f"response.{response['status']}", {"response": response})

    def _earlier_messages(self, response_id: object, session: HarnessSession) -> list[Message]:
        if response_id is None:
            return []
        messages = session.responses.get(str(response_id))
        if messages is None:
            raise RefusedRequestError(
                f"previous_response_id = {str(response_id)[:100]!r}: this session has no such "
                "response, or it was not stored; send the whole history as input",
                404,
                "previous_response_not_found",
            )
        return messages

    def _remember(self, message: Message) -> None:
        """Keep the chat with its answer for a request that continues it."""
        if self._request.store is False:
            return
        answer = {"role": "assistant", "content": message.get("content") or ""}
        if message.get("tool_calls"):
            answer["tool_calls"] = [
                {name: call[name] for name in ("id", "type", "function")}
                for call in message["tool_calls"]
            ]
        self._session.responses.add(self._request.request_id, [*self._messages, answer])

    def _response(
        self, output: list[Any], finish_reason: str | None, usage: Mapping[str, int] | None
    ) -> dict[str, Any]:
        """A response; without a reason to finish it is in progress."""
        status = "in_progress" if finish_reason is None else "completed"
        if finish_reason == "length":
            status = "incomplete"
        task = self._session.task
        response = protocol.ResponsesResponse.from_request(
            self._request,
            sampling_params=protocol.SamplingParams(
                temperature=task.sampling.temperature,
                top_p=task.sampling.top_p,
                max_tokens=self._request.max_output_tokens or task.length.max_tokens,
            ),
            model_name=self._model,
            created_time=int(time.time()),
            output=output,
            status=status,
            usage=None if usage is None else _usage(usage),
        )
        body: dict[str, Any] = response.model_dump(mode="json", warnings=False)
        return body


class _Events:
    """Numbers the events of one stream."""

    def __init__(self) -> None:
        self.num_sent = 0

    def encode(self, event: Any) -> str:
        """An event of vLLM's processor."""
        return self.write(event.type, event.model_dump(mode="json", warnings=False))

    def write(self, kind: str, fields: Mapping[str, Any]) -> str:
        """One server-sent event."""
        body = {**fields, "type": kind, "sequence_number": self.num_sent}
        self.num_sent += 1
        return f"event: {kind}\ndata: {json.dumps(body)}\n\n"


def _chat_body(
    body: Mapping[str, Any],
    request: Any,
    messages: list[Message],
    tools: list[dict[str, Any]] | None,
) -> dict[str, Any]:
    """The settings of a chat completion that ask for the same."""
    tool_choice = body.get("tool_choice")
    if isinstance(tool_choice, dict) and "name" in tool_choice:
        tool_choice = {"type": "function", "function": {"name": tool_choice["name"]}}
    text_format = (body.get("text") or {}).get("format")
    settings = {
        "model": request.model,
        "messages": messages,
        "tools": [{**tool, "function": _without_none(tool["function"])} for tool in tools or ()]
        or None,
        "tool_choice": tool_choice if tools else None,
        "parallel_tool_calls": body.get("parallel_tool_calls") if tools else None,
        "max_completion_tokens": request.max_output_tokens,
        "stream": request.stream,
        "stream_options": {"include_usage": True} if request.stream else None,
        "temperature": body.get("temperature"),
        "top_p": body.get("top_p"),
        "response_format": None if (text_format or {}).get("type") == "text" else text_format,
        "reasoning_effort": (body.get("reasoning") or {}).get("effort"),
    }
    other_settings = {
        name: value for name, value in body.items() if name not in CONVERTED | IGNORED
    }
    return other_settings | {name: value for name, value in settings.items() if value is not None}


def _as_chat_message(message: Mapping[str, Any]) -> Message:
    """The fields of a message that chat completions have; parts of text are joined."""
    fields = {
        name: message[name]
        for name in ("role", "name", "tool_call_id", "tool_calls")
        if name in message
    }
    return {**fields, "content": joined_text(message.get("content"))}


def _without_none(function: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in function.items() if value is not None}


def _calls(message: Message) -> list[Any]:
    return [
        protocol.FunctionCall(
            id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"]
        )
        for call in message.get("tool_calls") or ()
    ]


def _chunk(chat_event: str) -> dict[str, Any] | None:
    """The content of one event of a chat completion; None at its end."""
    text = chat_event.removeprefix("data: ").strip()
    if text == "[DONE]":
        return None
    chunk: dict[str, Any] = json.loads(text)
    return chunk


def _usage(usage: Mapping[str, int]) -> dict[str, Any]:
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }

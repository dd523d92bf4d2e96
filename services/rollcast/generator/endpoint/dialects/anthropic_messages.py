"""Anthropic's messages, converted by vLLM: https://docs.anthropic.com/en/api/messages

    system, messages, tools, tool_choice,
    stop_sequences, max_tokens, stream                    as of a chat completion
    temperature, top_p, top_k, thinking, output_config    settings of sampling: the run's are used

Thinking is sent with a signature of no meaning, and dropped when a client sends it back, as with
other clients.
"""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from rollcast.chat.base import ChatRenderer
from rollcast.generator.endpoint.bodies import measure
from rollcast.generator.endpoint.call import check_renderable, render_prompt
from rollcast.generator.endpoint.messages import read_messages
from rollcast.generator.endpoint.protocol import check_size, describe_invalid
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.generator.endpoint.sessions import Sessions
from rollcast.generator.vllm import protocol

KINDS: Mapping[int, str] = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    500: "api_error",
    503: "overloaded_error",
}


class AnthropicMessages:
    """One request of /v1/messages."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def read(self, body: Any, session: HarnessSession) -> Any:
        return await read_as_chat(body, session, self._sessions, protocol.AnthropicMessagesRequest)

    def answer(self, completion: dict[str, Any]) -> dict[str, Any]:
        converted = protocol.AnthropicServingMessages.messages_full_converter(
            None, protocol.ChatCompletionResponse.model_validate(completion)
        )
        message: dict[str, Any] = converted.model_dump(exclude_none=True)
        return message | {"stop_sequence": converted.stop_sequence}

    async def stream(self, parts: AsyncIterator[str]) -> AsyncIterator[str]:
        errors: list[str] = []

        async def completion_parts() -> AsyncIterator[str]:
            async for event in parts:
                if event.startswith('data: {"error"'):
                    errors.append(event)
                    return
                yield event

        async for event in protocol.AnthropicServingMessages.message_stream_converter(
            None, completion_parts()
        ):
            yield event
        for error_event in errors:
            error = json.loads(error_event.removeprefix("data: "))["error"]
            body = {"type": "error", "error": {"type": "api_error", "message": error["message"]}}
            yield f"event: error\ndata: {json.dumps(body)}\n\n"


async def read_as_chat(
    body: Any, session: HarnessSession, sessions: Sessions, request_class: Any
) -> dict[str, Any]:
    """The body of a chat completion. Raises RefusedRequestError."""
    if not isinstance(body, dict):
        raise RefusedRequestError("the body is not a JSON object")
    check_size(body.get("messages"), "messages", body)
    try:
        request = request_class.model_validate(_without_hosted_tools(body))
        # Reminders within the chat keep their place if the template allows it, so that a history
        # only grows.
        has_later_system = any(message.role == "system" for message in request.messages)
        merges = has_later_system and not await sessions.on_engine(
            _takes_later_system(session.parts.renderer)
        )
        chat = protocol.AnthropicServingMessages.to_chat_completion_request(
            request, merge_inline_system=merges
        )
    except Exception as error:  # pydantic's and vLLM's own checks
        raise describe_invalid(error) from None
    chat_body: dict[str, Any] = chat.model_dump(exclude_none=True, exclude_unset=True)
    return chat_body


def _without_hosted_tools(body: dict[str, Any]) -> dict[str, Any]:
    """The body without tools that Anthropic's servers carry out or whose schema only its models
    know; and without an empty list of tools."""
    tools = body.get("tools")
    if not isinstance(tools, list):
        return body
    own_tools = [
        tool
        for tool in tools
        if not isinstance(tool, dict)
        or "input_schema" in tool
        or tool.get("type") in (None, "custom")
    ]
    rest = {
        name: value
        for name, value in body.items()
        if name != "tools" and (own_tools or name != "tool_choice")
    }
    return {**rest, "tools": own_tools} if own_tools else rest


async def count_tokens(body: Any, session: HarnessSession, sessions: Sessions) -> int:
    """The tokens of a chat with its tools, which is neither sampled nor recorded.

    Raises RefusedRequestError.
    """
    chat_body = await read_as_chat(body, session, sessions, protocol.AnthropicCountTokensRequest)
    # Again, for tools that came within messages.
    check_size(chat_body["messages"], "messages", chat_body)
    messages = read_messages(chat_body["messages"])
    check_renderable(session, measure(messages).characters)

    async def render() -> int:
        return len(render_prompt(session, messages, chat_body.get("tools") or ()))

    return await sessions.on_engine(render())


async def _takes_later_system(renderer: ChatRenderer) -> bool:
    """Whether the template renders a message of the system that is not the first."""
    system = {"role": "system", "content": "a"}
    user = {"role": "user", "content": "b"}
    try:
        renderer.prompt([system, user, system, user], ())
    except Exception:  # templates raise of all kinds
        return False
    return True


def anthropic_error(refusal: RefusedRequestError) -> dict[str, Any]:
    """A refusal in Anthropic's form."""
    kind = KINDS.get(refusal.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": refusal.sentence}}

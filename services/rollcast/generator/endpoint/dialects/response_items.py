"""The items of OpenAI's responses: those of a request as messages of a chat, those of an answer as
items and events.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rollcast.generator.endpoint.messages import part_texts
from rollcast.generator.endpoint.protocol import describe_invalid
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.vllm import protocol


def read_items(items: list[Any], call_arguments: Mapping[str, str]) -> Iterator[Any]:
    """The items as vLLM's conversion takes them. Raises RefusedRequestError.

    call_arguments: arguments as the model wrote them, by the id of the call. They may be long, so
    each is restored once.
    """
    restorable = dict(call_arguments)
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise RefusedRequestError(f"input.{index}: is not an object")
        match item.get("type", "message"):
            case "reasoning":
                # No chat template gets it, as with other clients that send it back. An answer of
                # reasoning alone is an empty one.
                if not _belongs_to_answer(items[index + 1 : index + 2]):
                    yield {"role": "assistant", "content": ""}
            case "function_call":
                try:
                    yield protocol.responses_utils.ResponseFunctionToolCall.model_validate(item)
                except ValueError as error:
                    raise RefusedRequestError(f"input.{index}.{describe_invalid(error)}") from None
            case "message" if isinstance(item.get("role"), str):
                yield {**item, "content": joined_text(item.get("content"))}
            case "custom_tool_call":
                yield _restore_arguments(item, restorable)
            case "function_call_output" | "custom_tool_call_output":
                yield item
            case kind:
                raise RefusedRequestError(
                    f"input.{index}.type = {str(kind)[:100]!r}: no such item is served"
                )


def _restore_arguments(item: dict[str, Any], call_arguments: dict[str, str]) -> Any:
    """A custom call with the arguments that the model wrote, if the client sends the input that it
    received: the input alone does not say in which form the model wrote it.
    """
    utils = protocol.responses_utils
    call_id = str(item.get("call_id"))
    arguments = call_arguments.pop(call_id, None)
    if arguments is None or utils.decode_custom_tool_input(arguments) != item.get("input"):
        return item
    return utils.ResponseFunctionToolCall(
        type="function_call", call_id=call_id, name=str(item.get("name")), arguments=arguments
    )


def _belongs_to_answer(following: list[Any]) -> bool:
    """Whether the item after a reasoning, if there is one, is of the same answer."""
    return any(
        isinstance(item, dict)
        and (
            item.get("type") in ("function_call", "custom_tool_call")
            or item.get("role") == "assistant"
        )
        for item in following
    )


def joined_text(content: Any) -> Any:
    """The content as one text if it has parts of text only: vLLM's conversion keeps the first of an
    assistant's.
    """
    if not isinstance(content, list):
        return content
    texts = part_texts(content, ("input_text", "output_text", "text"))
    return content if texts is None else "".join(texts)


def without_grammars(tools: Any) -> list[Any] | None:
    """The tools without the formats that custom ones have for their input; None if none has one."""
    if not isinstance(tools, list):
        return None
    shown_tools = [
        {name: value for name, value in tool.items() if name != "format"}
        if isinstance(tool, dict) and tool.get("type") == "custom"
        else tool
        for tool in tools
    ]
    return None if shown_tools == tools else shown_tools


def empty_message() -> Any:
    """An answer without a text or a call, which a client can send back."""
    utils = protocol.responses_utils
    text = utils.ResponseOutputText(text="", annotations=[], type="output_text")
    return utils.ResponseOutputMessage(
        id=f"msg_{utils.random_uuid()}",
        content=[text],
        role="assistant",
        status="completed",
        type="message",
    )


def empty_message_events(processor: Any) -> Iterator[Any]:
    """The events of an answer without a text or a call."""
    state, _ = processor.resolve_target_state(protocol.DeltaMessage(content="x"))
    yield from processor.close_current()
    yield from processor.open(state)


def delta_events(processor: Any, delta: Mapping[str, Any]) -> Iterator[Any]:
    """The events of one part of a message, as vLLM's server makes them."""
    events = protocol.responses_events
    whole_delta = protocol.DeltaMessage.model_validate(delta)
    for atomic_delta in events.split_delta(whole_delta):
        state, call = processor.resolve_target_state(atomic_delta)
        if state.name == "NONE":
            continue
        if processor.needs_transition(state, call):
            yield from processor.close_current()
            yield from processor.open(state, call)
        yield from processor.emit_delta(atomic_delta, None)
